"""`miner loop` on the news of `make loop-news`, from weaker starts.

    python benchmarks/loop_starts.py --data DATA --output build/loop-starts [thousand lexicon unseeded pivot]
    python benchmarks/loop.py build/loop-starts/thousand --gold build/loop-starts/news/gold

DATA is a folder of collected corpora, as for `make loop-news`. Only the data of the first encoder, and what stands for it in later
rounds, differ from configs/loop-news.yaml; and encoders have PIECES pieces, as the text is too little for more, and train for STEPS steps
a round:

thousand: 1,000 Tatoeba pairs a language, drawn at random
lexicon:  no pair at all: every language's news, with words replaced by those of MUSE's lexicons (code switching)
unseeded: Tatoeba's pairs of all languages but Hungarian
pivot:    English, German and French; Tatoeba's English-German and English-French pairs, of different English sentences. German-French,
          of which there is no pair, is mined with the others
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
PAIRS = 1000  # of a language
STEPS, PIECES = 180, 8000
SEED = 0

Groups = dict[int, list[dict[str, Any]]]  # group -> its rows of seed.parquet


def seed_groups(news: Path) -> Groups:
    """The seed of `make loop-news`: group -> its sentences."""
    found: Groups = defaultdict(list)
    for row in pq.read_table(news / "seed.parquet").to_pylist():
        found[row["group"]].append(row)
    return found


def keep(groups: Groups, langs: Callable[[int], set[str]], place: Path) -> None:
    """Write the seed with those languages of each group besides English that `langs` tells."""
    rows = []
    for number, group in groups.items():
        kept = [row for row in group if row["lang"] in langs(number) | {ENGLISH}]
        rows += kept if {row["lang"] for row in kept} > {ENGLISH} else []
    pq.write_table(pa.Table.from_pylist(rows), place, compression="zstd")


def thousand(news: Path, place: Path) -> None:
    groups = seed_groups(news)
    drawn: dict[int, set[str]] = defaultdict(set)
    langs = sorted({row["lang"] for group in groups.values() for row in group} - {ENGLISH})
    for lang in langs:
        having = [number for number, group in groups.items() if any(row["lang"] == lang for row in group)]
        for number in random.Random(f"{SEED} {lang}").sample(having, PAIRS):
            drawn[number].add(lang)
    keep(groups, lambda number: drawn[number], place)


def unseeded(news: Path, place: Path) -> None:
    groups = seed_groups(news)
    langs = {row["lang"] for group in groups.values() for row in group} - {UNSEEDED}
    keep(groups, lambda _: langs, place)


def pivot(news: Path, place: Path) -> None:
    """Of every second English sentence the German translations, of the others the French ones."""
    keep(seed_groups(news), lambda number: {canonical(PIVOTED[number % 2])}, place)


def lexicon_sources(data: Path, news: Path, place: Path) -> list[dict[str, Any]]:
    """The news of every language, switched to English words, or from English to those of all others."""
    words: dict[str, list[tuple[str, str]]] = defaultdict(list)
    with gzip.open(data / "lexicons/muse.en-xx.tsv.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            lang, english, other = line.rstrip("\n").split("\t")
            words[lang].append((english, other))
    place.mkdir(parents=True, exist_ok=True)
    langs = sorted(path.name.removesuffix(".txt.gz") for path in (news / "text").iterdir() if path.name != "en.txt.gz")
    for lang in langs:
        (place / f"en-{lang}.txt").write_text("".join(f"{english}\t{other}\n" for english, other in words[lang]))
        (place / f"{lang}-en.txt").write_text("".join(f"{other}\t{english}\n" for english, other in words[lang]))
    lexicons = {"en": [f"{place}/en-{lang}.txt" for lang in langs], **{lang: [f"{place}/{lang}-en.txt"] for lang in langs}}
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
    """configs/loop-news.yaml with another start."""
    news, place = output / "news", output / f"{start}-seed"
    text = (ROOT / "configs/loop-news.yaml").read_text().replace("build/loop-news-data", str(news))
    values: dict[str, Any] = yaml.safe_load(text)
    if start == "lexicon":
        sources = lexicon_sources(data, news, place)
    else:
        {"thousand": thousand, "unseeded": unseeded, "pivot": pivot}[start](news, place.with_suffix(".parquet"))
        sources = [{**values["start"]["train"]["data"][0], "files": [str(place.with_suffix(".parquet"))]}]
    values["start"]["train"]["data"], values["training"]["training"]["steps"] = sources, STEPS
    for recipe in (values["start"]["train"], values["training"]):
        recipe["encoder"]["vocabulary"]["size"] = PIECES
    share = sum(source.get("weight", 1) for source in sources)
    mined = values["training"]["data"][1]
    values["training"]["data"] = [*sources, {**mined, "weight": mined["weight"] * share}]
    if start == "pivot":
        langs = [canonical(lang) for lang in PIVOTED]
        values["corpora"] = {lang: files for lang, files in values["corpora"].items() if lang in (ENGLISH, *langs)}
        values["pivot"], values["pairs"] = None, [[ENGLISH, langs[0]], [ENGLISH, langs[1]], langs]
        name = "-".join(PIVOTED)
        for part in ("dev", "test"):
            tasks = {lang: task for lang, task in values["evaluation"][part].items() if lang in PIVOTED}
            uri = str(news / part / f"{name}.tsv")
            tasks[name] = {"source": uri, "target": uri, "text_column": PIVOTED[0], "target_column": PIVOTED[1]}
            values["evaluation"][part] = tasks
    return values


def main() -> None:
    starts = ("thousand", "lexicon", "unseeded", "pivot")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("starts", nargs="*", metavar="START", help=f"of {', '.join(starts)}; all of them if none is named")
    parser.add_argument("--data", type=Path, required=True, help="folder with train/, eval/ and lexicons/")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    if strange := set(arguments.starts) - set(starts):
        parser.error(f"no start {min(strange)}; choose of {', '.join(starts)}")
    news, data = arguments.output / "news", arguments.data
    prepare = [sys.executable, ROOT / "configs/loop_news_data.py", "--data", data, "--output", news, "--also", *PIVOTED]
    subprocess.run(list(map(str, prepare)), check=True)
    for start in arguments.starts or starts:
        place = arguments.output / f"{start}.yaml"
        place.write_text(yaml.safe_dump(config(start, data, arguments.output), sort_keys=False))
        loop = [Path(sys.executable).parent / "miner", "loop", place, "--output", arguments.output / start]
        subprocess.run([*map(str, loop), *(["--resume"] if (arguments.output / start).exists() else [])], check=True)


if __name__ == "__main__":
    main()
