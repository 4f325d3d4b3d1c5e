"""The rounds of configs/loop-msimcse.yaml on a transformer trained from scratch, in English and German.

    python benchmarks/training_study.py run --data DATA --work STUDY --only words
    python benchmarks/loop_msimcse.py run --data DATA --study STUDY --work DIR [--seeds 0 1]
    python benchmarks/loop_msimcse.py table --work DIR

In place of the pretrained model, the transformer that has learnt words from lexicons (`words` of training_study.py) learns 6,000 pairs of
Tatoeba. The recipe then runs with its own settings, but for the model, mean pooling, files, sizes and learning rates. The corpora are other
sentences of Tatoeba: 3,000 translations and 600 sentences on each side without one. The known translations only measure precision and
recall; 900 further ones are planted. DIR/loop-SEED has the output of `miner loop`.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import study_data
import yaml

RECIPE = Path(__file__).parent.parent / "configs" / "loop-msimcse.yaml"
CODES = {"de": "deu_Latn"}
ENGLISH = "eng_Latn"
PRETRAINING, PLANTED, DEV, TRANSLATED, SINGLES = 6000, 900, 400, 3000, 600  # pairs per language
NLI = 600  # entailed rows in a round
COLUMNS = {"source": "en", "target": "xx"}


def prepare(data: Path, folder: Path) -> None:
    """Write the data of pretraining, the corpora with their gold pairs, planted pairs, dev and test sets."""
    folder.mkdir(parents=True)
    for name in ("planted", "gold", "tatoeba"):
        (folder / name).mkdir()
    english: list[str] = []
    pairs_by_lang: dict[str, list[tuple[str, str]]] = {}
    pretraining: list[tuple[str, str]] = []
    for lang, code in CODES.items():
        pairs = iter(study_data.read_pairs(data, lang, seed=0))
        drawn = {name: [next(pairs) for _ in range(count)] for name, count in (("train", PRETRAINING), ("planted", PLANTED), ("dev", DEV))}
        pretraining += drawn["train"]
        study_data.write_lines(folder / "planted" / f"{ENGLISH}-{code}.tsv", ("\t".join(pair) for pair in drawn["planted"]))
        study_data.write(folder / f"dev.{lang}.tsv", "en xx", drawn["dev"])
        pairs_by_lang[lang] = [next(pairs) for _ in range(TRANSLATED)]
        english += [pair[0] for pair in pairs_by_lang[lang]] + [next(pairs)[0] for _ in range(SINGLES)]
        singles = [next(pairs)[1] for _ in range(SINGLES)]
        write_corpus(folder / f"{code}.txt", [*(pair[1] for pair in pairs_by_lang[lang]), *singles])
        name = f"tatoeba.{study_data.TATOEBA[lang]}-eng.tsv.gz"
        shutil.copyfile(data / "eval/tatoeba" / name, folder / "tatoeba" / name)
    write_corpus(folder / f"{ENGLISH}.txt", english)
    for lang, code in CODES.items():
        write_gold(folder, code, pairs_by_lang[lang])
    study_data.write(folder / "pairs.tsv", "en xx", pretraining)
    study_data.write_english_nli(data, folder / "nli.tsv")
    study_data.write_sts(data, folder / "sts.tsv", "dev")


def write_corpus(path: Path, texts: Sequence[str]) -> None:
    lines = list(dict.fromkeys(texts))
    random.Random(path.name).shuffle(lines)
    study_data.write_lines(path, lines)


def write_gold(folder: Path, code: str, pairs: Sequence[tuple[str, str]]) -> None:
    """Write the line numbers of the translations that are in the corpora."""
    sides = [(folder / f"{lang}.txt").read_text(encoding="utf-8").split("\n") for lang in (ENGLISH, code)]
    numbers = [{text: number for number, text in enumerate(lines, 1)} for lines in sides]
    lines = (f"{numbers[0][source]}\t{numbers[1][target]}" for source, target in pairs)
    study_data.write_lines(folder / "gold" / f"{ENGLISH}-{code}.tsv", lines)


def pretrain(study: Path, work: Path, seed: int) -> Path:
    """Train the transformer that knows words on a few translations."""
    output = work / f"pretrained-{seed}"
    if not (output / "encoder").exists():
        values = {
            "encoder": {"kind": "transformer", "model": str(study / f"words-{seed}" / "encoder"), "pooling": "mean", "max_tokens": 16},
            "data": [{"strategy": "parallel", "files": [str(work / "data" / "pairs.tsv")], "columns": COLUMNS}],
            "objective": [{"loss": "info_nce", "two_way": True}],
            "training": {"steps": 300, "batch_size": 64, "lr": 2e-3, "warmup": 0.1, "clip": 1.0, "seed": seed},
        }
        miner("train", write_config(work / f"pretraining-{seed}.yaml", values), "--output", output)
    return output / "encoder"


def recipe(work: Path, seed: int, encoder: Path) -> dict[str, Any]:
    """Return the recipe with the files, the model and the sizes of this benchmark."""
    values, data = yaml.safe_load(RECIPE.read_text()), work / "data"
    values["corpora"] = {code: [str(data / f"{code}.txt")] for code in (ENGLISH, *CODES.values())}
    values["mining"] |= {name: str(data / name / "{source}-{target}.tsv") for name in ("planted", "gold")}
    tasks = {}
    for lang in CODES:
        path = str(data / f"dev.{lang}.tsv")
        tasks[lang] = {"source": path, "target": path, "source_column": "en", "target_column": "xx"}
    values["evaluation"] = {"dev": tasks, "tatoeba": str(data / "tatoeba")}
    start, rounds = values["start"]["train"], values["training"]
    start["encoder"]["model"] = str(encoder)
    for config in (start, rounds):
        config["encoder"] |= {"pooling": "mean", "head": "none", "max_tokens": 16}
    start["evaluation"]["files"] = [str(data / "sts.tsv")]
    for config, lr in ((start, 1e-4), (rounds, 1e-3)):
        next(source for source in config["data"] if source["name"] == "nli")["files"] = [str(data / "nli.tsv")]
        config["training"] |= {"batch_size": 64, "dtype": "float32", "lr": lr, "seed": seed}
        config["evaluation"]["every"] = 20
    next(source for source in rounds["data"] if source["name"] == "nli")["limit"] = NLI  # as many as mined pairs, as in the recipe
    values["selection"]["validation"] = 0.1
    rounds["training"]["epochs"] = 4
    values["stop"] |= {"rounds": 2, "patience": 2}
    return values  # type: ignore[no-any-return]


def write_config(path: Path, values: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump(values))
    return path


def miner(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "miner.cli.main", *map(str, arguments)], check=True)


def run_all(arguments: argparse.Namespace) -> None:
    work: Path = arguments.work
    if not (work / "data").exists():
        prepare(arguments.data, work / "data")
    for seed in arguments.seeds:
        path = write_config(work / f"loop-{seed}.yaml", recipe(work, seed, pretrain(arguments.study, work, seed)))
        miner("loop", path, "--output", work / f"loop-{seed}", "--resume", "--no-report")


def print_table(arguments: argparse.Namespace) -> None:
    """Print a row per round: means and standard deviations over the seeds, mined pairs over both language pairs."""
    runs = [json.loads(path.read_text()) for path in sorted(arguments.work.glob("loop-*/loop.json"))]
    heads = ("threshold", "pairs", "precision", "recall", "dev", "tatoeba")
    print(f"| encoder | {' | '.join(heads)} | seeds |\n{'|---' * (len(heads) + 2)}|")
    rows = [("start", [figures(run["start"]) for run in runs])]
    count = max(len(run["rounds"]) for run in runs)
    rows += [(f"round {at:02d}", [figures(run["rounds"][at]) for run in runs if at < len(run["rounds"])]) for at in range(count)]
    for name, lines in rows:
        cells = [
            study_data.mean_and_deviation([line[head] for line in lines if head in line], 2 if head == "threshold" else 1) for head in heads
        ]
        print(f"| {name} | {' | '.join(cells)} | {len(lines)} |")


def figures(outcome: dict[str, Any]) -> dict[str, float]:
    """Return the scores in percent, and what was mined."""
    scores = {"dev": 100 * fmean(outcome["dev"].values()), "tatoeba": 100 * outcome["tatoeba"]}
    if "selection" not in outcome:
        return scores
    pairs = list(outcome["selection"]["pairs"].values())
    num_selected = sum(pair["selected"] for pair in pairs)
    precision = 100 * sum(pair["precision"] * pair["selected"] for pair in pairs) / max(1, num_selected)
    mined = {"threshold": fmean(pair["threshold"] for pair in pairs), "pairs": num_selected, "precision": precision}
    return {**scores, **mined, "recall": 100 * fmean(pair["recall"] for pair in pairs)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--data", type=Path, help="input folder of configs/builtin_data.py; required by run")
    parser.add_argument("--study", type=Path, help="work folder of training_study.py; required by run")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments = parser.parse_args()
    if arguments.command == "run" and None in (arguments.data, arguments.study):
        parser.error("run needs --data and --study")
    {"run": run_all, "table": print_table}[arguments.command](arguments)


if __name__ == "__main__":
    main()
