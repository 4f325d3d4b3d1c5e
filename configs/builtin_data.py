"""Prepare the training data of the built-in encoder: openly licensed parallel text, as groups of translations.

    python configs/builtin_packages.py --packages DIR --output DATA/packages
    python configs/builtin_data.py --data DATA --output build/builtin-data

DATA is a directory of collected corpora with `train/`, `packages/` and `eval/`: gzip files with one row per line. Outputs:
`groups.parquet` (group, lang, text, source): the texts of a group are translations or paraphrases of each other;
`words.parquet`: the same for words and phrases, of which none is in two groups;
`counts.json`: number of rows by source and language, and of dropped rows by reason.

Dropped: sources whose licence forbids commercial use or is not stated (SOURCES lists the others with their licences), languages
with fewer than MIN_TEXTS texts besides lexicons and messages of programs that are not in FLORES_200, the development lines of
NLLB-Seed, and texts that are also in an evaluation or calibration file or the demo corpora, compared by the letters and digits of
their lower-cased NFKC form.
"""

import argparse
import gzip
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from miner.errors import ConfigError
from miner.languages import UNDETERMINED, canonical

# Training sources: file or directory in DATA -> licence. Lexicons are read last, for the languages of the other sources.
SOURCES = {
    "train/tatoeba.en-xx.tsv.gz": "CC BY 2.0 FR",
    "train/tatoeba.non_english_pairs.tsv.gz": "CC BY 2.0 FR",
    "train/tanaka_small.en-ja.tsv.gz": "CC BY 2.0 FR",
    "train/bible": "public domain; hi bn mr ta te CC BY-SA 4.0; pt CC BY 3.0 BR",
    "train/l10n": "CC BY 3.0, CC BY 4.0, Apache-2.0, MIT, MPL-2.0, LGPL-2.1+, GPL-2.0+, GPL-3.0+, AGPL-3.0, by project",
    "train/python_docs": "CC0 1.0; English PSF/0BSD",
    "train/tico19": "CC0 1.0",
    "train/xquad": "CC BY-SA 4.0",
    "train/xcopa": "CC BY 4.0",
    "train/mgsm": "CC BY 4.0",
    "train/nusax": "CC BY-SA 4.0",
    "train/nllb_seed": "CC BY-SA 4.0",
    "train/mlqe_pe.tsv.gz": "CC0 1.0",
    "train/floresv1_wikipedia.en-xx.tsv.gz": "CC BY-SA",
    "train/indian_parallel.en-xx.tsv.gz": "CC BY-SA 3.0",
    "train/korean_parallel.en-ko.tsv.gz": "CC BY-SA 3.0",
    "train/sick_train.en-xx.tsv.gz": "CC BY-SA 4.0 (ja), MIT (nl)",
    "packages/libreoffice.tsv.gz": "MPL-2.0",
    "packages/games.tsv.gz": "Wesnoth, Freeciv and Widelands GPL-2.0+; Cataclysm CC BY-SA 3.0",
    "packages/mozilla.tsv.gz": "MPL-2.0",
    "packages/manuals.tsv.gz": "GNOME's help CC BY-SA 3.0; Debian's installation guide, KStars and KMyMoney GPL-2.0+; Marble LGPL-2.1+;"
    " calibre GPL-3.0",
    "packages/mediawiki.tsv.gz": "GPL-2.0+",
    "train/l10n_more": "MediaWiki, GNOME, VLC and Tux Paint GPL-2.0+ and LGPL-2.1+; LibreOffice and Firefox MPL-2.0",
    "train/african_storybook": "CC BY",
    "train/bayelemabaga.fr-bam.tsv.gz": "CC BY-SA 4.0",
    "train/sona_za.en-xx.tsv.gz": "CC BY 4.0",
    "lexicons/gatitos.en-xx.tsv.gz": "CC BY 4.0",
    "lexicons/cldr.en-xx.tsv.gz": "Unicode-3.0",
    "lexicons/panlex_swadesh.en-xx.tsv.gz": "CC0 1.0",
    "lexicons/dsac_terms.en-xx.tsv.gz": "CC BY-SA 4.0",
}
WORDS = {
    "packages/words.tsv.gz": "FreeDict GPL-2.0+, GPL-3.0+ and CC BY-SA 3.0, by dictionary; JMdict, JMnedict and CC-CEDICT CC BY-SA 4.0;"
    " GeoNames CC BY 4.0; CLDR Unicode-3.0; libhangul BSD-3-Clause; iso-codes LGPL-2.1+; KGeography and libgweather GPL-2.0+;"
    " OpenStreetMap's tagging schema ISC; games as above; simplemma's word forms ODbL, CC BY-SA 3.0, CC BY 4.0, AGPL-3.0, MIT"
}
# Words, and messages of programs, alone do not make a language.
NOT_COUNTED = ("lexicons/", "packages/manuals", "packages/mediawiki", "packages/mozilla")
UNLICENSED_PROJECTS = ("djangodocs-",)  # prefixes of ids in l10n whose repository has no licence

MIN_TEXTS = 500  # per language, without those of the sources NOT_COUNTED
# The languages of FLORES-200: each of them is trained, however few its texts are.
FLORES_CODES = """
ace acm acq aeb afr ajp apc sqi amh ara ars ary arz asm ast awa aym azb aze bak bam ban bel bem ben bho bjn bod bos bug bul cat ceb ces
cjk ckb crh cym dan deu din dyu dzo ell eng epo est eus ewe fao fas fij fil fin fon fra ful fur fuv gla gle glg grn guj hat hau heb hin
hne hrv hun hye ibo ilo ind isl ita jav jpn kab kac kam kan kas kat kau kaz kbp kea khm kik kin kir kmb kon kor kur lao lav lij lim lin
lit lmo ltg ltz lua lug luo lus mag mai mal mar min mkd mlg mlt mni mon mos mri msa mya nep nld nno nob nso nus nya oci ori orm pag pan
pap pol por prs pus que quy ron run rus sag san sat scn shn sin slk slv smo sna snd som sot spa srd srp ssw sun swa swe szl tam taq tat
tel tgk tha tir tpi tsn tso tuk tum tur aka tzm uig ukr umb urd uzb vec vie war wol xho yid yor yue zho zul
"""
FLORES_200 = frozenset(FLORES_CODES.split())
DEVELOPMENT_LINES = ("train/nllb_seed", "s5593")  # its lines from this id on are not trained on
MERGED_LANGUAGES = {"pbt_Arab": "pus_Arab"}  # the same written language under two codes
EVALUATION_SOURCES = ("eval", "nli", "train/newstest_multi", "train/newstest_pairs.tsv.gz", "train/wmt21_multilingual")
# Probabilities are fitted to text that the encoder was not trained on, whose pairs score lower (`benchmarks/probability.py`).
CALIBRATION_SOURCES = ("train/ud_pud", *(f"train/tico19/{lang}.tsv.gz" for lang in ("bn", "fr", "ru")))
MIN_KEY_LETTERS = 4  # shorter cells are no sentences
NOT_A_LETTER = re.compile(r"[\W_]+")


def match_key(text: str) -> str:
    """Return the key by which texts are compared for decontamination."""
    return NOT_A_LETTER.sub("", unicodedata.normalize("NFKC", text).lower())


def read_rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def evaluation_keys(data: Path, examples: Path) -> set[str]:
    """Return the keys of all sentences of the evaluation and calibration files and the demo corpora."""
    return match_keys(data, (*EVALUATION_SOURCES, *CALIBRATION_SOURCES), examples)


def match_keys(data: Path, sources: Iterable[str], examples: Path) -> set[str]:
    """Return the keys of all sentences of some sources and the demo corpora."""
    keys: set[str] = set()
    for name in sources:
        source = data / name
        for path in [source] if source.is_file() else sorted(source.rglob("*.gz")):
            for row in read_rows(path):
                keys.update(match_key(cell) for cell in row)
    for path in sorted(examples.glob("*.txt")):
        keys.update(match_key(line) for line in path.read_text(encoding="utf-8").splitlines())
    # Labels, years and language codes are cells too.
    return {key for key in keys if len(key) >= MIN_KEY_LETTERS}


def read_texts(source: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (group name, language code, text) of a source. Pairs with the same English sentence share a group."""
    if source.is_dir():
        for path in sorted(source.glob("*.tsv.gz")):
            lang = path.name.removesuffix(".tsv.gz")
            for name, text in read_rows(path):
                is_development = str(source).endswith(DEVELOPMENT_LINES[0]) and name >= DEVELOPMENT_LINES[1]
                if not name.startswith(UNLICENSED_PROJECTS) and not is_development:
                    yield name, lang, text
        return
    rows = read_rows(source)
    header = next(rows)
    for number, row in enumerate(rows):
        cells = dict(zip(header, row, strict=True))
        if "id" in cells:
            yield cells["id"], cells["lang"], cells["text"]
            continue
        if "text1" in cells:
            pair = [(cells["lang1"], cells["text1"]), (cells["lang2"], cells["text2"])]
        elif "xx" in cells:
            pair = [("en", cells["en"]), (cells["lang"], cells["xx"])]
        else:
            pair = [(lang, cells[lang]) for lang in ("en", "fr", "ja", "ko", "bam") if lang in cells]
        english = [text for lang, text in pair if lang == "en"]
        for lang, text in pair:
            yield (match_key(english[0]) if english else str(number)), lang, text


def find_languages(data: Path, sources: Iterable[str], min_texts: int = MIN_TEXTS) -> set[str]:
    """Return the languages of FLORES-200, and those with at least `min_texts` texts, without those of the sources NOT_COUNTED."""
    codes = Counter(code for source in sources if not source.startswith(NOT_COUNTED) for _, code, _ in read_texts(data / source))
    counts: Counter[str] = Counter()
    for code, count in codes.items():
        counts[language_of(code)] += count
    return {lang for lang, count in counts.items() if count >= min_texts and lang != UNDETERMINED}


@cache
def language_of(code: str) -> str:
    """Return the canonical language of a code of the data, `und` for a code of no registered language."""
    try:
        lang = canonical(code)
    except ConfigError:
        return UNDETERMINED
    return MERGED_LANGUAGES.get(lang, lang)


def collect_groups(data: Path, excluded_keys: set[str], sources: Iterable[str], languages: set[str]) -> tuple[pa.Table, Counter[str]]:
    """Return the table of groups, and counts of kept and dropped texts."""
    counts: Counter[str] = Counter()
    columns: dict[str, list[object]] = {"group": [], "lang": [], "text": [], "source": []}
    num_groups = 0
    for source in sources:
        members: dict[str, dict[tuple[str, str], None]] = {}
        for name, code, text in read_texts(data / source):
            lang = language_of(code)
            if lang not in languages and lang.partition("_")[0] not in FLORES_200:
                counts["dropped: language"] += 1
            elif match_key(text) in excluded_keys:
                counts["dropped: in an evaluation file or the demo"] += 1
            else:
                members.setdefault(name, {})[(lang, text)] = None
        for group in members.values():
            if len({lang for lang, _ in group}) < 2:
                counts["dropped: no translation left"] += len(group)
                continue
            for lang, text in group:
                counts[f"{source} {lang}"] += 1
                for column, value in zip(columns.values(), (num_groups, lang, text, source), strict=True):
                    column.append(value)
            num_groups += 1
        print(f"{source}: {num_groups} groups so far", file=sys.stderr)
    schema = pa.schema([("group", pa.int64()), ("lang", pa.string()), ("text", pa.string()), ("source", pa.string())])
    return pa.table(columns, schema=schema), counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="directory with train/ and eval/")
    parser.add_argument("--examples", type=Path, default=Path(__file__).parent.parent / "examples", help="demo corpora to exclude")
    parser.add_argument("--without-packages", action="store_true", help="leave out the sources in DATA/packages")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    excluded_keys = evaluation_keys(arguments.data, arguments.examples)
    sources, words = (
        [source for source in names if not (arguments.without_packages and source.startswith("packages/"))] for names in (SOURCES, WORDS)
    )
    languages = find_languages(arguments.data, sources)
    arguments.output.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    for name, names in (("groups.parquet", sources), ("words.parquet", words)):
        table, source_counts = collect_groups(arguments.data, excluded_keys, names, languages)
        pq.write_table(table, arguments.output / name, compression="zstd")
        print(f"{table.num_rows} texts; {arguments.output / name}")
        counts += source_counts
    (arguments.output / "counts.json").write_text(json.dumps(dict(sorted(counts.items())), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
