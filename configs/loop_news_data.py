"""Prepare the data of `make loop-news`: news that nobody aligned, a seed of everyday sentences, and news held out.

    python configs/loop_news_data.py --data DATA --output build/loop-news-data

DATA is a folder of collected corpora with `train/` and `eval/`, one row a line, gzip. Into the output come:
`text/xx.txt.gz`: the news of a language, shuffled on its own; `gold/en-xx.tsv`: which of its lines translate which English ones,
looked at only to tell how many mined pairs are right; `seed.parquet`: Tatoeba's translations (group, lang, text);
`dev/xx.tsv`, `test/xx.tsv` (en, xx): news held out, none of which stands in the texts; `tatoeba/`: the Tatoeba test sets.
`--also de fr` writes `gold/`, `dev/de-fr.tsv` and `test/de-fr.tsv` of a pair without English, too.
"""

import argparse
import gzip
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from miner.languages import canonical
from miner.text.near_duplicates import skeleton

# Language -> the ISO 639-3 code of its Tatoeba test set.
LANGUAGES = {"cs": "ces", "de": "deu", "es": "spa", "fi": "fin", "fr": "fra", "hu": "hun", "ru": "rus", "tr": "tur"}
MULTI = ("cs", "de", "es", "fr", "hu", "ru")  # in the test sets of 2008 to 2013, in up to eight languages each
PAIRED = ("cs", "de", "fi", "fr", "ru", "tr")  # in those of later years, with English only
DEV_SHARE = 3  # every third of the held-out lines is for dev, the others are for the test
TAIL_2009 = 1500  # the last lines of 2009 are held out for hu, which has no later ones
LATER_HELD = {"fi": "newstest2018", "tr": "newstest2018"}  # for those that are not in the sets of 2013

Row = dict[str, str]  # language -> the sentence
Pair = tuple[str, str]  # of languages


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def news(data: Path) -> tuple[list[Row], list[Row]]:
    """The rows that are mined, and those that are held out."""
    texts = {lang: dict(rows(data / f"train/newstest_multi/{lang}.tsv.gz")) for lang in ("en", *MULTI)}
    mined: list[Row] = []
    held: list[Row] = []
    tail = set(sorted(name for name in texts["en"] if name.startswith("newstest2009-"))[-TAIL_2009:])
    for name in texts["en"]:
        row = {lang: of[name] for lang, of in texts.items() if name in of}
        (held if name.startswith("newstest2013-") or name in tail else mined).append(row)
    for first, second, year, english, other in rows(data / "train/newstest_pairs.tsv.gz"):
        if first == "en" and second in PAIRED:
            (held if year == LATER_HELD.get(second) else mined).append({"en": english, second: other})
    return mined, held


def without(found: list[Row], held: list[Row]) -> list[Row]:
    """The rows of which no sentence is held out."""
    known = {(lang, skeleton(text)) for row in held for lang, text in row.items()}
    return [row for row in found if not any((lang, skeleton(text)) in known for lang, text in row.items())]


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_text(found: list[Row], output: Path, seed: int, pairs: list[Pair]) -> None:
    """The text of each language, each sentence once and in an order of its own, and the alignment that is thereby hidden."""
    places: dict[str, dict[str, int]] = {}
    for lang in ("en", *LANGUAGES):
        lines = sorted({row[lang] for row in found if lang in row})
        random.Random(f"{seed} {lang}").shuffle(lines)
        write_lines(output / "text" / f"{lang}.txt.gz", lines)
        places[lang] = {line: number for number, line in enumerate(lines, 1)}
    for one, other in pairs:
        true = {(places[one][row[one]], places[other][row[other]]) for row in found if one in row and other in row}
        name = f"{canonical(one)}-{canonical(other)}.tsv"
        write_lines(output / "gold" / name, [f"{source}\t{target}" for source, target in sorted(true)])


def write_held(held: list[Row], output: Path, pairs: list[Pair]) -> None:
    for one, other in pairs:
        lines = [f"{row[one]}\t{row[other]}" for row in held if one in row and other in row]
        name, header = f"{other if one == 'en' else f'{one}-{other}'}.tsv", f"{one}\t{other}"
        write_lines(output / "dev" / name, [header, *lines[::DEV_SHARE]])
        write_lines(output / "test" / name, [header, *(line for at, line in enumerate(lines) if at % DEV_SHARE)])


def write_seed(data: Path, output: Path) -> None:
    """Groups of an English sentence and its translations."""
    groups: dict[str, set[tuple[str, str]]] = {}
    for lang, english, other in rows(data / "train/tatoeba.en-xx.tsv.gz"):
        if lang in LANGUAGES:
            groups.setdefault(skeleton(english), set()).update({(canonical("en"), english), (canonical(lang), other)})
    records = [
        {"group": number, "lang": lang, "text": text} for number, group in enumerate(groups.values()) for lang, text in sorted(group)
    ]
    pq.write_table(pa.Table.from_pylist(records), output / "seed.parquet", compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="of the shuffling")
    parser.add_argument("--also", nargs=2, action="append", default=[], metavar="LANG", help="a pair without English")
    arguments = parser.parse_args()
    pairs = [*(("en", lang) for lang in LANGUAGES), *map(tuple, arguments.also)]
    mined, held = news(arguments.data)
    mined = without(mined, held)
    write_text(mined, arguments.output, arguments.seed, pairs)
    write_held(held, arguments.output, pairs)
    write_seed(arguments.data, arguments.output)
    (arguments.output / "tatoeba").mkdir(exist_ok=True)
    for code in LANGUAGES.values():
        name = f"tatoeba.{code}-eng.tsv.gz"
        shutil.copyfile(arguments.data / "eval/tatoeba" / name, arguments.output / "tatoeba" / name)
    print(f"{len(mined):,} sentences to mine in up to {len(MULTI) + 1} languages, {len(held):,} held out; {arguments.output}")


if __name__ == "__main__":
    main()
