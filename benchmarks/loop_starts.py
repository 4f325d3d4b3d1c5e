"""Run `miner loop` on the news of `make loop-news` from weaker start encoders.

    python benchmarks/loop_starts.py --data DATA --output build/loop-starts [thousand lexicon unseeded pivot]
    python benchmarks/loop.py build/loop-starts/thousand --gold build/loop-starts/news/gold

DATA is a directory of collected corpora, as for `make loop-news`. The runs differ from configs/loop-news.yaml in the seed data, in the
vocabulary (VOCABULARY_SIZE pieces, since there is too little text for more) and in the steps per round (STEPS):

thousand: 1,000 Tatoeba pairs per language, drawn at random
lexicon:  no sentence pairs: the news of each language, code-switched with MUSE lexicons
unseeded: Tatoeba pairs of all languages except Hungarian
pivot:    English, German and French; English-German and English-French pairs from Tatoeba with different English sentences.
          German-French has no seed pairs and is mined like the others
"""

import argparse
import gzip
import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from miner.languages import canonical

ROOT = Path(__file__).parent.parent
ENGLISH, UNSEEDED = canonical("en"), canonical("hu")
PIVOTED = ("de", "fr")
PAIRS_PER_LANGUAGE = 1000
STEPS, VOCABULARY_SIZE = 180, 8000
SEED = 0

Groups = dict[int, list[dict[str, Any]]]  # group -> its rows of seed.parquet


def read_seed(news: Path) -> Groups:
    """Return the seed of `make loop-news`."""
    groups: Groups = defaultdict(list)
    for row in pq.read_table(news / "seed.parquet").to_pylist():
        groups[row["group"]].append(row)
    return groups


def write_seed(groups: Groups, select_langs: Callable[[int], set[str]], path: Path) -> None:
    """Write the seed with English and the languages that `select_langs` returns for each group."""
    rows = []
    for number, group in groups.items():
        kept = [row for row in group if row["lang"] in select_langs(number) | {ENGLISH}]
        rows += kept if {row["lang"] for row in kept} > {ENGLISH} else []
    pq.write_table(pa.Table.from_pylist(rows), path, compression="zstd")


def write_thousand(news: Path, path: Path) -> None:
    groups = read_seed(news)
    drawn: dict[int, set[str]] = defaultdict(set)
    langs = sorted({row["lang"] for group in groups.values() for row in group} - {ENGLISH})
    for lang in langs:
        candidates = [number for number, group in groups.items() if any(row["lang"] == lang for row in group)]
        for number in random.Random(f"{SEED} {lang}").sample(candidates, PAIRS_PER_LANGUAGE):
            drawn[number].add(lang)
    write_seed(groups, lambda number: drawn[number], path)


def write_unseeded(news: Path, path: Path) -> None:
    groups = read_seed(news)
    langs = {row["lang"] for group in groups.values() for row in group} - {UNSEEDED}
    write_seed(groups, lambda _: langs, path)


def write_pivot(news: Path, path: Path) -> None:
    """Keep the German translations of every second English sentence, and the French ones of the others."""
    write_seed(read_seed(news), lambda number: {canonical(PIVOTED[number % 2])}, path)


def lexicon_sources(data: Path, news: Path, folder: Path) -> list[dict[str, Any]]:
    """Return sources of news in each language, code-switched to English, and of English news, code-switched to all others."""
    words: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with gzip.open(data / "lexicons/muse.en-xx.tsv.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            lang, english, other = line.rstrip("\n").split("\t")
            words[lang].append((english, other))
    folder.mkdir(parents=True, exist_ok=True)
    langs = sorted(path.name.removesuffix(".txt.gz") for path in (news / "text").iterdir() if path.name != "en.txt.gz")
    for lang in langs:
        (folder / f"en-{lang}.txt").write_text("".join(f"{english}\t{other}\n" for english, other in words[lang]))
        (folder / f"{lang}-en.txt").write_text("".join(f"{other}\t{english}\n" for english, other in words[lang]))
    lexicons = {"en": [f"{folder}/en-{lang}.txt" for lang in langs], **{lang: [f"{folder}/{lang}-en.txt"] for lang in langs}}
    return [
        {
            "name": f"switched-{lang}",
            "strategy": "unsupervised",
            "files": [f"{news}/text/{lang}.txt.gz"],
            "weight": len(langs) if lang == "en" else 1,
            "code_switch": {"lexicons": files, "ratio": 0.7},
        }
        for lang, files in lexicons.items()
    ]


def config(start: str, data: Path, output: Path) -> dict[str, Any]:
    """Return configs/loop-news.yaml with another start encoder."""
    news, seed = output / "news", output / f"{start}-seed"
    text = (ROOT / "configs/loop-news.yaml").read_text().replace("build/loop-news-data", str(news))
    values: dict[str, Any] = yaml.safe_load(text)
    if start == "lexicon":
        sources = lexicon_sources(data, news, seed)
    else:
        {"thousand": write_thousand, "unseeded": write_unseeded, "pivot": write_pivot}[start](news, seed.with_suffix(".parquet"))
        sources = [{**values["start"]["train"]["data"][0], "files": [str(seed.with_suffix(".parquet"))]}]
    values["start"]["train"]["data"], values["training"]["training"]["steps"] = sources, STEPS
    for train_config in (values["start"]["train"], values["training"]):
        train_config["encoder"]["vocabulary"]["size"] = VOCABULARY_SIZE
    seed_weight = sum(source.get("weight", 1) for source in sources)
    mined = values["training"]["data"][1]
    values["training"]["data"] = [*sources, {**mined, "weight": mined["weight"] * seed_weight}]
    if start == "pivot":
        langs = [canonical(lang) for lang in PIVOTED]
        values["corpora"] = {lang: files for lang, files in values["corpora"].items() if lang in (ENGLISH, *langs)}
        values["pivot"], values["pairs"] = None, [[ENGLISH, langs[0]], [ENGLISH, langs[1]], langs]
        name = "-".join(PIVOTED)
        for part in ("dev", "test"):
            tasks = {lang: task for lang, task in values["evaluation"][part].items() if lang in PIVOTED}
            uri = str(news / part / f"{name}.tsv")
            tasks[name] = {"source": uri, "target": uri, "source_column": PIVOTED[0], "target_column": PIVOTED[1]}
            values["evaluation"][part] = tasks
    return values


def main() -> None:
    starts = ("thousand", "lexicon", "unseeded", "pivot")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starts", nargs="*", metavar="START", help=f"one of {', '.join(starts)}; default: all")
    parser.add_argument("--data", type=Path, required=True, help="directory with train/, eval/ and lexicons/")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if unknown := set(arguments.starts) - set(starts):
        parser.error(f"unknown start {min(unknown)}; one of {', '.join(starts)}")
    news, data = arguments.output / "news", arguments.data
    prepare = [sys.executable, ROOT / "configs/loop_news_data.py", "--data", data, "--output", news, "--also", *PIVOTED]
    subprocess.run(list(map(str, prepare)), check=True)
    for start in arguments.starts or starts:
        config_path = arguments.output / f"{start}.yaml"
        config_path.write_text(yaml.safe_dump(config(start, data, arguments.output), sort_keys=False))
        loop = [Path(sys.executable).parent / "miner", "loop", config_path, "--output", arguments.output / start]
        subprocess.run([*map(str, loop), *(["--resume"] if (arguments.output / start).exists() else [])], check=True)


if __name__ == "__main__":
    main()
