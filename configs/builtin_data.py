"""Prepare the training data of the built-in encoder: openly licensed parallel text, as groups of translations.

    python configs/builtin_data.py --data DATA --output build/builtin-data

DATA is a folder of collected corpora with `train/` and `eval/`, one row a line, gzip. Two tables come out:
`groups.parquet` (group, lang, text, source): the texts of a group say the same, in one language or several;
`counts.json`: rows by source and language, and what was left out and why.

Left out: sources whose licence forbids commercial use or is not stated (SOURCES lists what remains, with its licence), languages
outside LANGUAGES, and every text that also stands in an evaluation file or in the demo corpora (letters and digits of the
lower-cased NFKC form compared).
"""

import argparse
import gzip
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from miner.languages import canonical

# What may be trained on: a file or folder of DATA/train -> its licence.
SOURCES = {
    "tatoeba.en-xx.tsv.gz": "CC BY 2.0 FR",
    "tatoeba.non_english_pairs.tsv.gz": "CC BY 2.0 FR",
    "tanaka_small.en-ja.tsv.gz": "CC BY 2.0 FR",
    "bible": "public domain; hi bn mr ta te CC BY-SA 4.0; pt CC BY 3.0 BR",
    "l10n": "CC BY 3.0, CC BY 4.0, Apache-2.0, MIT, MPL-2.0, LGPL-2.1+, GPL-2.0+, GPL-3.0+, AGPL-3.0, by project",
    "python_docs": "CC0 1.0; English PSF/0BSD",
    "tico19": "CC0 1.0",
    "ud_pud": "CC BY-SA 3.0",
    "xquad": "CC BY-SA 4.0",
    "xcopa": "CC BY 4.0",
    "mgsm": "CC BY 4.0",
    "nusax": "CC BY-SA 4.0",
    "nllb_seed": "CC BY-SA 4.0",
    "mlqe_pe.tsv.gz": "CC0 1.0",
    "floresv1_wikipedia.en-xx.tsv.gz": "CC BY-SA",
    "indian_parallel.en-xx.tsv.gz": "CC BY-SA 3.0",
    "korean_parallel.en-ko.tsv.gz": "CC BY-SA 3.0",
    "sick_train.en-xx.tsv.gz": "CC BY-SA 4.0 (ja), MIT (nl)",
}
UNLICENSED_PROJECTS = ("djangodocs-",)  # ids within l10n whose repository holds no licence

# The languages of the encoder: the pieces of its vocabulary are few, and each language takes a share of them.
CODES = """
    en de fr es it pt nl ru uk pl cs hu fi sv da tr el bg ro he ar hi zh zh-Hant ja ko vi id
    jv tl eu ml ta te af bn mr ur fa et ka kk sw th
"""
LANGUAGES = frozenset(canonical(code) for code in CODES.split())
EVALUATION = ("eval", "nli", "train/newstest_multi", "train/newstest_pairs.tsv.gz", "train/wmt21_multilingual")
NOT_A_LETTER = re.compile(r"[\W_]+")


def match_key(text: str) -> str:
    """What two texts share when they are one sentence to a decontamination."""
    return NOT_A_LETTER.sub("", unicodedata.normalize("NFKC", text).lower())


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def evaluation_keys(data: Path, examples: Path) -> set[str]:
    """Every sentence of every evaluation file and of the demo corpora."""
    keys = set()
    for name in EVALUATION:
        place = data / name
        for path in [place] if place.is_file() else sorted(place.rglob("*.gz")):
            for row in rows(path):
                keys.update(match_key(cell) for cell in row)
    for path in sorted(examples.glob("*.txt")):
        keys.update(match_key(line) for line in path.read_text(encoding="utf-8").splitlines())
    # Labels, years and language codes are cells too; no sentence worth keeping has so few letters.
    return {key for key in keys if len(key) > 3}


def texts(place: Path) -> Iterator[tuple[str, str, str]]:
    """(group name, language code, text) of one source; pairs with one English sentence share a group."""
    if place.is_dir():
        for path in sorted(place.glob("*.tsv.gz")):
            lang = path.name.removesuffix(".tsv.gz")
            for name, text in rows(path):
                if not name.startswith(UNLICENSED_PROJECTS):
                    yield name, lang, text
        return
    lines = rows(place)
    header = next(lines)
    for number, row in enumerate(lines):
        cells = dict(zip(header, row, strict=True))
        if "text1" in cells:
            pair = [(cells["lang1"], cells["text1"]), (cells["lang2"], cells["text2"])]
        elif "xx" in cells:
            pair = [("en", cells["en"]), (cells["lang"], cells["xx"])]
        else:
            pair = [(lang, cells[lang]) for lang in ("en", "ja", "ko") if lang in cells]
        english = [text for lang, text in pair if lang == "en"]
        for lang, text in pair:
            yield (match_key(english[0]) if english else str(number)), lang, text


def collect(data: Path, forbidden: set[str]) -> tuple[pa.Table, Counter[str]]:
    """The table of groups, and counts of what was kept and dropped."""
    counts: Counter[str] = Counter()
    columns: dict[str, list[object]] = {"group": [], "lang": [], "text": [], "source": []}
    groups = 0
    for source in SOURCES:
        members: dict[str, dict[tuple[str, str], None]] = {}
        for name, code, text in texts(data / "train" / source):
            lang = canonical(code)
            if lang not in LANGUAGES:
                counts["dropped: language"] += 1
            elif match_key(text) in forbidden:
                counts["dropped: in an evaluation file or the demo"] += 1
            else:
                members.setdefault(name, {})[(lang, text)] = None
        for group in members.values():
            if len({lang for lang, _ in group}) < 2:
                counts["dropped: no translation left"] += len(group)
                continue
            for lang, text in group:
                counts[f"{source} {lang}"] += 1
                for column, value in zip(columns.values(), (groups, lang, text, source), strict=True):
                    column.append(value)
            groups += 1
        print(f"{source}: {groups} groups so far", file=sys.stderr)
    schema = pa.schema([("group", pa.int64()), ("lang", pa.string()), ("text", pa.string()), ("source", pa.string())])
    return pa.table(columns, schema=schema), counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/ and eval/")
    parser.add_argument("--examples", type=Path, default=Path(__file__).parent.parent / "examples", help="demo corpora to keep out")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    forbidden = evaluation_keys(arguments.data, arguments.examples)
    table, counts = collect(arguments.data, forbidden)
    arguments.output.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, arguments.output / "groups.parquet", compression="zstd")
    (arguments.output / "counts.json").write_text(json.dumps(dict(sorted(counts.items())), indent=1, ensure_ascii=False) + "\n")
    print(f"{table.num_rows} texts; {arguments.output / 'groups.parquet'}")


if __name__ == "__main__":
    main()
