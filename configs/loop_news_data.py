"""Prepare the data of `make loop-news`: monolingual news, a parallel seed of everyday sentences, and held-out parallel news.

    python configs/loop_news_data.py --data DATA --output build/loop-news-data

DATA is a directory of collected corpora with `train/` and `eval/`: gzip files with one row per line. Outputs:
`text/xx.txt.gz`: the news of a language, shuffled independently;
`gold/en-xx.tsv`: pairs of line numbers that are translations, used only to report precision and recall;
`seed.parquet`: translations from Tatoeba (group, lang, text);
`dev/xx.tsv`, `test/xx.tsv` (en, xx): held-out news, none of which is in the texts;
`tatoeba/`: the Tatoeba test sets.
`--also de fr` also writes `gold/`, `dev/de-fr.tsv` and `test/de-fr.tsv` for a pair without English.
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
MULTI_PARALLEL = ("cs", "de", "es", "fr", "hu", "ru")  # test sets of 2008 to 2013, in up to eight languages
PAIRED = ("cs", "de", "fi", "fr", "ru", "tr")  # later test sets, pairs with English only
DEV_INTERVAL = 3  # every third held-out line is in dev, the others in test
HELD_OUT_2009_LINES = 1500  # the last lines of 2009, held out for hu, which has no later test sets
HELD_OUT_YEARS = {"fi": "newstest2018", "tr": "newstest2018"}  # for languages without a test set of 2013

Row = dict[str, str]  # language -> sentence
LanguagePair = tuple[str, str]


def read_rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def read_news(data: Path) -> tuple[list[Row], list[Row]]:
    """Return the rows to mine and the held-out rows."""
    texts = {lang: dict(read_rows(data / f"train/newstest_multi/{lang}.tsv.gz")) for lang in ("en", *MULTI_PARALLEL)}
    mined: list[Row] = []
    held_out: list[Row] = []
    last_2009 = set(sorted(name for name in texts["en"] if name.startswith("newstest2009-"))[-HELD_OUT_2009_LINES:])
    for name in texts["en"]:
        row = {lang: sentences[name] for lang, sentences in texts.items() if name in sentences}
        (held_out if name.startswith("newstest2013-") or name in last_2009 else mined).append(row)
    for first, second, year, english, other in read_rows(data / "train/newstest_pairs.tsv.gz"):
        if first == "en" and second in PAIRED:
            (held_out if year == HELD_OUT_YEARS.get(second) else mined).append({"en": english, second: other})
    return mined, held_out


def drop_held_out(rows: list[Row], held_out: list[Row]) -> list[Row]:
    """Return the rows without a held-out sentence."""
    excluded = {(lang, skeleton(text)) for row in held_out for lang, text in row.items()}
    return [row for row in rows if not any((lang, skeleton(text)) in excluded for lang, text in row.items())]


def write_lines(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def write_corpora(rows: list[Row], output: Path, seed: int, pairs: list[LanguagePair]) -> None:
    """Write the distinct sentences of each language in random order, and the gold pairs of line numbers."""
    line_numbers: dict[str, dict[str, int]] = {}
    for lang in ("en", *LANGUAGES):
        lines = sorted({row[lang] for row in rows if lang in row})
        random.Random(f"{seed} {lang}").shuffle(lines)
        write_lines(output / "text" / f"{lang}.txt.gz", lines)
        line_numbers[lang] = {line: number for number, line in enumerate(lines, 1)}
    for source, target in pairs:
        sources, targets = line_numbers[source], line_numbers[target]
        gold = {(sources[row[source]], targets[row[target]]) for row in rows if source in row and target in row}
        name = f"{canonical(source)}-{canonical(target)}.tsv"
        write_lines(output / "gold" / name, [f"{source_line}\t{target_line}" for source_line, target_line in sorted(gold)])


def write_dev_and_test(held_out: list[Row], output: Path, pairs: list[LanguagePair]) -> None:
    for source, target in pairs:
        lines = [f"{row[source]}\t{row[target]}" for row in held_out if source in row and target in row]
        name, header = f"{target if source == 'en' else f'{source}-{target}'}.tsv", f"{source}\t{target}"
        write_lines(output / "dev" / name, [header, *lines[::DEV_INTERVAL]])
        write_lines(output / "test" / name, [header, *(line for number, line in enumerate(lines) if number % DEV_INTERVAL)])


def write_seed(data: Path, output: Path) -> None:
    """Write groups of an English sentence and its translations."""
    groups: dict[str, set[tuple[str, str]]] = {}
    for lang, english, other in read_rows(data / "train/tatoeba.en-xx.tsv.gz"):
        if lang in LANGUAGES:
            groups.setdefault(skeleton(english), set()).update({(canonical("en"), english), (canonical(lang), other)})
    records = [
        {"group": number, "lang": lang, "text": text} for number, group in enumerate(groups.values()) for lang, text in sorted(group)
    ]
    pq.write_table(pa.Table.from_pylist(records), output / "seed.parquet", compression="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="directory with train/ and eval/")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0, help="seed of the shuffling")
    parser.add_argument("--also", nargs=2, action="append", default=[], metavar="LANG", help="language pair without English")
    arguments = parser.parse_args()
    pairs = [*(("en", lang) for lang in LANGUAGES), *map(tuple, arguments.also)]
    mined, held_out = read_news(arguments.data)
    mined = drop_held_out(mined, held_out)
    write_corpora(mined, arguments.output, arguments.seed, pairs)
    write_dev_and_test(held_out, arguments.output, pairs)
    write_seed(arguments.data, arguments.output)
    (arguments.output / "tatoeba").mkdir(exist_ok=True)
    for code in LANGUAGES.values():
        name = f"tatoeba.{code}-eng.tsv.gz"
        shutil.copyfile(arguments.data / "eval/tatoeba" / name, arguments.output / "tatoeba" / name)
    print(f"{len(mined):,} sentences to mine in up to {len(MULTI_PARALLEL) + 1} languages, {len(held_out):,} held out; {arguments.output}")


if __name__ == "__main__":
    main()
