"""Every evaluation on real files: its command, its figures, its time and its memory, as the table of evaluation.md.

python benchmarks/evaluation.py --data DATA [--encoder builtin] [--only sts bucc ...]

DATA is laid out as configs/eval.yaml says. BUCC's own files may not be passed on, so the demo corpora are put into its layout.
"""

import argparse
import gzip
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
DEV = 0.3  # share of the demo's sentences, and of its gold pairs, that are the dev split
LANGUAGES, LINES = 100, 1000  # of the suite over many languages


@dataclass(frozen=True)
class Case:
    """A command, and what of its figures is shown: name -> the way there."""

    command: str
    shown: dict[str, str] = field(default_factory=dict)


NEWS = "{data}/eval/classification/masakhanews_headlines.tsv.gz"
NUSAX = "{data}/eval/classification/nusax_sentiment.tsv.gz"
FLICKR = "{data}/eval/multi30k/test_2016_flickr.en-de-fr-cs.tsv.gz"
ALIGNED = f"{FLICKR} {FLICKR} --text-column de --target-column en"
ACCURACY = {"accuracy": "mean.accuracy", "macro F1": "mean.macro_f1"}
CASES = [
    Case("tatoeba --data {data}/eval/tatoeba", {"14": "average.tatoeba14", "36": "average.tatoeba36", "all 112": "average.all"}),
    Case(
        f"retrieval {ALIGNED}",
        {"cosine": "accuracy.cosine.mean", "ratio": "accuracy.ratio.mean", "xSIM error": "xsim.mean", "F1": "f1.cosine.mean"},
    ),
    Case(
        "bucc --data {made}",
        {pair: f"pairs.{pair}.test.f1" for pair in ("en-de", "en-hi", "en-ru")} | {"oracle en-de": "pairs.en-de.oracle.f1"},
    ),
    Case("sts --data {data}/eval/sts/sts17.tsv.gz --track-column track", {"Spearman, mean": "mean.spearman", "all": "all.spearman"}),
    *(
        Case(f"sts --data {{data}}/eval/sts/{name}.tsv.gz --track-column lang1 --track-column lang2", {"Spearman, mean": "mean.spearman"})
        for name in ("stsb_multi_mt.test", "korsts.test", "jsts.ja.valid", "klue_sts.ko.dev", "jsick_sts.en-ja.test", "sick_nl.nl.test")
    ),
    Case(
        f"clustering --data {NEWS} --text-column headline --label-column category --lang-column lang",
        {"purity": "mean.purity", "V-measure": "mean.v_measure"},
    ),
    Case(f"classification --train {NUSAX} --test {NUSAX} --split-column split --lang-column lang", ACCURACY),
    Case(f"classification --train {NUSAX} --test {NUSAX} --split-column split --lang-column lang --train-lang id", ACCURACY),
    Case(
        f"classification --train {NEWS} --test {NEWS} --split-column split --lang-column lang"
        " --text-column headline --label-column category",
        ACCURACY,
    ),
    Case(
        "pair-classification --train {data}/eval/classification/pawsx.dev.tsv.gz --test {data}/eval/classification/pawsx.test.tsv.gz"
        " --lang-column lang --train-lang en",
        ACCURACY,
    ),
    Case(
        "pair-classification --train {data}/nli/xnli.dev.tsv.gz --test {data}/nli/xnli.test.tsv.gz --first-column premise"
        " --second-column hypothesis --lang-column lang --train-lang en",
        ACCURACY,
    ),
    Case("language-probe --data {data}/nli/xnli.test.tsv.gz --text-column premise", {"accuracy": "accuracy", "chance": "chance"}),
    Case(f"alignment {ALIGNED}", {"alignment": "alignment", "uniformity": "uniformity.mean"}),
    Case("map --data {data}/train/udhr.tsv.gz", {"cosine in English": "languages.eng.cosine", "in Lao": "languages.lao.cosine"}),
    Case(
        "bitext {made}/mined --gold {examples}/gold.en-de.tsv",
        {"precision": "gold.mined.precision", "recall": "gold.mined.recall", "best F1": "gold.best.f1"},
    ),
    Case(f"suite --config {ROOT / 'configs' / 'eval.yaml'} --data {{data}}"),
    Case("suite --config {made}/hundred/suite.yaml"),
]
NO_ENCODER = ("bitext",)
MINER = [sys.executable, "-m", "miner.cli.main"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--only", nargs="+", help="tasks")
    given = parser.parse_args()
    print("| command: `miner eval` ... | figures | seconds | peak memory |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), given.encoder)
        hundred(Path(given.data) / "eval" / "tatoeba", Path(folder) / "hundred")
        places = {"data": given.data, "made": folder, "examples": str(EXAMPLES)}
        for case in CASES:
            if given.only is None or case.command.split()[0] in given.only:
                print(row(case, places, given.encoder, Path(folder) / "figures.json"), flush=True)


def row(case: Case, places: dict[str, str], encoder: str, figures: Path) -> str:
    """Run a command in a process of its own -> its row."""
    words = shlex.split(case.command.format(**places))
    options = [] if words[0] in NO_ENCODER else ["--encoder", encoder]
    start = time.perf_counter()
    process = subprocess.Popen([*MINER, "eval", *words, *options, "--json", str(figures)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - start
    if status:
        sys.exit(f"{case.command}: failed")
    found = json.loads(figures.read_text())
    shown = ", ".join(f"{name} {at(found, way):.4f}" for name, way in case.shown.items())
    command = case.command.format(**{name: name.upper() for name in places}).replace(f"{ROOT}/", "")
    return f"| `{command}` | {shown} | {took:.1f} | {used.ru_maxrss / 2**20:.2f} GB |"  # Linux tells KB


def at(found: Any, way: str) -> float:
    for name in way.split("."):
        found = found[name]
    return float(found)


def prepare(folder: Path, encoder: str) -> None:
    """The demo corpora in BUCC's layout, and mined pairs of two of them."""
    for lang in ("de", "hi", "ru"):
        split(folder, lang)
    sides = [str(EXAMPLES / f"{lang}.txt") for lang in ("en", "de")]
    options = ["--source-lang", "en", "--target-lang", "de", "--encoder", encoder, "--threshold", "-inf"]
    subprocess.run([*MINER, "mine", *sides, *options, "--output", str(folder / "mined")], check=True, stdout=subprocess.DEVNULL)


def hundred(tatoeba: Path, folder: Path) -> None:
    """A suite over LANGUAGES languages of LINES sentences: those of Tatoeba with most, their lines numbered where they come again.

    Labels are the lengths of the translations: of no interest but for the time it takes to learn them.
    """
    pairs = {path.name.split(".")[1][:3]: gzip.decompress(path.read_bytes()).decode().splitlines() for path in sorted(tatoeba.iterdir())}
    folder.mkdir()
    rows = ["lang\tsplit\tlabel\ttext"]
    for lang in sorted(pairs, key=lambda lang: -len(pairs[lang]))[:LANGUAGES]:
        cells = [pairs[lang][number % len(pairs[lang])].split("\t") for number in range(LINES)]
        mine = [cell if number < len(pairs[lang]) else [f"{text} {number}" for text in cell] for number, cell in enumerate(cells)]
        write(folder / f"tatoeba.{lang}-eng.tsv", ("\t".join(cell) for cell in mine))
        rows += [f"{lang}\t{('train', 'test')[n % 2]}\t{min(3, len(english) // 15)}\t{text}" for n, (text, english) in enumerate(mine)]
    write(folder / "table.tsv", rows)
    table = {"data": "table.tsv", "lang_column": "lang"}
    tasks = [{"task": "tatoeba", "data": "."}, {"task": "language-probe", **table}, {"task": "clustering", **table}]
    tasks.append({"task": "classification", "train": "table.tsv", "test": "table.tsv", "lang_column": "lang", "split_column": "split"})
    (folder / "suite.yaml").write_text(json.dumps({"data": str(folder), "tasks": tasks}))


def split(folder: Path, lang: str) -> None:
    """Deal out the sentences of English and another language to dev and test; both sides of a gold pair come together."""
    chance = random.Random(lang)
    gold = [tuple(map(int, line.split("\t"))) for line in lines(EXAMPLES / f"gold.en-{lang}.tsv")]
    texts = {side: lines(EXAMPLES / f"{side}.txt") for side in ("en", lang)}
    in_dev = {side: {number: chance.random() < DEV for number in range(1, len(texts[side]) + 1)} for side in texts}
    for one, other in gold:
        in_dev[lang][other] = in_dev["en"][one]
    for name, wanted in (("dev", True), ("test", False)):
        for side, sentences in texts.items():
            rows = (f"{side}-{number}\t{text}" for number, text in enumerate(sentences, start=1) if in_dev[side][number] == wanted)
            write(folder / f"en-{lang}.{name}.{side}", rows)
        write(folder / f"en-{lang}.{name}.gold", (f"en-{one}\t{lang}-{other}" for one, other in gold if in_dev["en"][one] == wanted))


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def write(path: Path, rows: Any) -> None:
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
