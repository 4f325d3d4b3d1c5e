"""Run every evaluation on real files and print the table of evaluation.md: command, figures, time and memory.

python benchmarks/evaluation.py --data DATA [--encoder builtin] [--only sts bucc ...]

DATA has the layout of configs/eval.yaml. BUCC's own files may not be redistributed, so the demo corpora are written in its layout.
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
DEV_SHARE = 0.3  # of the demo's sentences and gold pairs
NUM_LANGUAGES, NUM_LINES = 100, 1000  # of the suite over many languages


@dataclass(frozen=True)
class Case:
    """A command, and the figures to print."""

    command: str
    figures: dict[str, str] = field(default_factory=dict)  # label -> path in the JSON, such as mean.accuracy


NEWS = "{data}/eval/classification/masakhanews_headlines.tsv.gz"
NUSAX = "{data}/eval/classification/nusax_sentiment.tsv.gz"
FLICKR = "{data}/eval/multi30k/test_2016_flickr.en-de-fr-cs.tsv.gz"
ALIGNED = f"{FLICKR} {FLICKR} --source-column de --target-column en"
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
    arguments = parser.parse_args()
    print("| command: `miner eval` ... | figures | seconds | peak memory |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), arguments.encoder)
        write_hundred_languages(Path(arguments.data) / "eval" / "tatoeba", Path(folder) / "hundred")
        folders = {"data": arguments.data, "made": folder, "examples": str(EXAMPLES)}
        for case in CASES:
            if arguments.only is None or case.command.split()[0] in arguments.only:
                print(run_case(case, folders, arguments.encoder, Path(folder) / "figures.json"), flush=True)


def run_case(case: Case, folders: dict[str, str], encoder: str, json_file: Path) -> str:
    """Run a command in a process of its own and return its table row."""
    words = shlex.split(case.command.format(**folders))
    options = [] if words[0] in NO_ENCODER else ["--encoder", encoder]
    start = time.perf_counter()
    process = subprocess.Popen([*MINER, "eval", *words, *options, "--json", str(json_file)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"{case.command}: failed")
    figures = json.loads(json_file.read_text())
    cells = ", ".join(f"{label} {figure_at(figures, path):.4f}" for label, path in case.figures.items())
    command = case.command.format(**{name: name.upper() for name in folders}).replace(f"{ROOT}/", "")
    return f"| `{command}` | {cells} | {seconds:.1f} | {usage.ru_maxrss / 2**20:.2f} GB |"  # Linux reports KB


def figure_at(figures: Any, path: str) -> float:
    for key in path.split("."):
        figures = figures[key]
    return float(figures)


def prepare(folder: Path, encoder: str) -> None:
    """Write the demo corpora in BUCC's layout, and mine two of them."""
    for lang in ("de", "hi", "ru"):
        split(folder, lang)
    sides = [str(EXAMPLES / f"{lang}.txt") for lang in ("en", "de")]
    options = ["--source-lang", "en", "--target-lang", "de", "--encoder", encoder, "--threshold", "-inf"]
    subprocess.run([*MINER, "mine", *sides, *options, "--output", str(folder / "mined")], check=True, stdout=subprocess.DEVNULL)


def write_hundred_languages(tatoeba: Path, folder: Path) -> None:
    """Write a suite over the NUM_LANGUAGES largest languages of Tatoeba, with NUM_LINES sentences each; repeated lines get a number.

    Labels are classes of the length of the translation; they only serve to measure the time of training.
    """
    pairs = {path.name.split(".")[1][:3]: gzip.decompress(path.read_bytes()).decode().splitlines() for path in sorted(tatoeba.iterdir())}
    folder.mkdir()
    rows = ["lang\tsplit\tlabel\ttext"]
    for lang in sorted(pairs, key=lambda lang: -len(pairs[lang]))[:NUM_LANGUAGES]:
        cells = [pairs[lang][number % len(pairs[lang])].split("\t") for number in range(NUM_LINES)]
        mine = [cell if number < len(pairs[lang]) else [f"{text} {number}" for text in cell] for number, cell in enumerate(cells)]
        write(folder / f"tatoeba.{lang}-eng.tsv", ("\t".join(cell) for cell in mine))
        rows += [f"{lang}\t{('train', 'test')[n % 2]}\t{min(3, len(english) // 15)}\t{text}" for n, (text, english) in enumerate(mine)]
    write(folder / "table.tsv", rows)
    table = {"data": "table.tsv", "lang_column": "lang"}
    tasks = [{"task": "tatoeba", "data": "."}, {"task": "language-probe", **table}, {"task": "clustering", **table}]
    tasks.append({"task": "classification", "train": "table.tsv", "test": "table.tsv", "lang_column": "lang", "split_column": "split"})
    (folder / "suite.yaml").write_text(json.dumps({"data": str(folder), "tasks": tasks}))


def split(folder: Path, lang: str) -> None:
    """Split the sentences of English and another language into dev and test, with both sides of a gold pair in one split."""
    rng = random.Random(lang)
    gold = [tuple(map(int, line.split("\t"))) for line in lines(EXAMPLES / f"gold.en-{lang}.tsv")]
    texts = {side: lines(EXAMPLES / f"{side}.txt") for side in ("en", lang)}
    in_dev = {side: {number: rng.random() < DEV_SHARE for number in range(1, len(texts[side]) + 1)} for side in texts}
    for source, target in gold:
        in_dev[lang][target] = in_dev["en"][source]
    for name, is_dev in (("dev", True), ("test", False)):
        for side, sentences in texts.items():
            rows = (f"{side}-{number}\t{text}" for number, text in enumerate(sentences, start=1) if in_dev[side][number] == is_dev)
            write(folder / f"en-{lang}.{name}.{side}", rows)
        write(
            folder / f"en-{lang}.{name}.gold",
            (f"en-{source}\t{lang}-{target}" for source, target in gold if in_dev["en"][source] == is_dev),
        )


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def write(path: Path, rows: Any) -> None:
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
