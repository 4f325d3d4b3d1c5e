"""Collect the texts by which `miner calibrate` measures an encoder: sentences with their translations, and without.

    python configs/calibration_texts.py --data DATA

DATA is the directory of collected corpora that `builtin_data.py` reads. The output is one table (source, group, lang, text), in which the
texts of a group are translations of each other. The same data and seed give the same bytes.

Left out are texts of the evaluation files and of the demo, in any language, with their translations: compared by the letters and digits of
their lower-cased NFKC form.
"""

import argparse
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from builtin_data import EVALUATION_SOURCES, match_key, match_keys, read_rows

from miner.encoders.calibration_texts import SCHEMA, TEXTS
from miner.languages import canonical
from miner.text.normalise import clean_all

SEED = 1
ENGLISH = "en"
MIN_CHARS = 20  # of an English text; a shorter one is often a phrase

Group = dict[str, str]  # language -> text


@dataclass(frozen=True)
class Source:
    """Which groups of a source are taken: at most `num_groups` of each entry of `languages`, whose texts are translations."""

    path: str  # in DATA
    num_groups: int
    languages: tuple[tuple[str, ...], ...]


# The built-in encoder was not trained on PUD, and on TICO-19 in Bengali, French and Russian.
SOURCES = {
    "ud-pud": Source(
        "ud_pud", 500, (("en", "ar", "cs", "de", "fi", "fr", "hi", "id", "is", "ja", "ko", "pl", "sv", "th", "tr", "zh-Hant"),)
    ),
    "tico-19": Source("tico19", 500, (("en", "am", "bn", "fr", "ha", "om", "ru", "sw", "ta", "zh"),)),
    "tatoeba": Source("tatoeba.en-xx.tsv.gz", 300, (("en", "el"), ("en", "he"), ("en", "hu"), ("en", "uk"), ("en", "vi"))),
    "bible": Source("bible", 300, (("en", "he", "hu", "ja", "mi", "uk", "vi"),)),
    "nllb-seed": Source("nllb_seed", 3000, (("eng_Latn",),)),  # without translations
}


def read_groups(path: Path, languages: tuple[str, ...]) -> Iterator[Group]:
    """Yield the groups of a source that have a text in each language."""
    if path.is_dir():
        texts = [dict(read_rows(path / f"{lang}.tsv.gz")) for lang in languages]
        for name in sorted(set.intersection(*map(set, texts))):
            yield {lang: rows[name] for lang, rows in zip(languages, texts, strict=True)}
    else:
        for lang, english, other in read_rows(path):
            if lang == languages[1]:
                yield {ENGLISH: english, lang: other}


def select(groups: Iterator[Group], num_groups: int, excluded: set[str], chance: random.Random) -> list[Group]:
    """Return random groups without short and excluded texts. The selected texts are excluded from then on."""
    selected: list[Group] = []
    for group in chance.sample(candidates := list(groups), len(candidates)):
        cleaned = dict(zip(group, clean_all(list(group.values())), strict=True))
        keys = set(map(match_key, cleaned.values()))
        if len(selected) < num_groups and not keys & excluded and len(next(iter(cleaned.values()))) >= MIN_CHARS:
            selected.append(cleaned)
            excluded |= keys
    return selected


def collect(data: Path, sources: Mapping[str, Source], excluded: set[str]) -> pa.Table:
    """Return the table, sorted by language so that it compresses well."""
    rows, num_groups = [], 0
    for name, source in sources.items():
        for languages in source.languages:
            groups = read_groups(data / "train" / source.path, languages)
            for group in select(groups, source.num_groups, excluded, random.Random(f"{SEED} {name} {languages}")):
                rows += [(name, num_groups, canonical(lang), text) for lang, text in group.items()]
                num_groups += 1
    columns = zip(*sorted(rows, key=lambda row: (row[2], row[1])), strict=True)
    return pa.table([pa.array(column).cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with train/, nli/ and eval/")
    parser.add_argument("--examples", type=Path, default=Path(__file__).parent.parent / "examples", help="demo corpora to exclude")
    parser.add_argument("--output", type=Path, default=TEXTS, help="file to write")
    arguments = parser.parse_args()
    table = collect(arguments.data, SOURCES, match_keys(arguments.data, EVALUATION_SOURCES, arguments.examples))
    pq.write_table(table, arguments.output, compression="zstd", compression_level=19, use_dictionary=["source", "lang"])
    print(f"{table.num_rows} texts of {len(table['lang'].unique())} languages; {arguments.output}, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
