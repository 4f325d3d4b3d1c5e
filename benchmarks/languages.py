"""Measure how well a static encoder retrieves translations in languages with little text, and in texts that are spelled otherwise.

    python benchmarks/languages.py --data DATA [--encoder builtin] [--part seed] [--part news] [--part rights] [--part spelling]

DATA is the folder that `configs/builtin_data.py` reads; none of these lines is trained on. Retrieval accuracy in percent, the mean of both
directions, against English unless the table says French, by ratio margin with k = 4 and rescored by late interaction:

- seed: the last 600 lines of NLLB-Seed, in 39 languages;
- news: the last 600 pairs of MAFAND (news of Africa), and of other sets whose licence forbids commercial use;
- rights: the paragraphs of the Universal Declaration of Human Rights, about 50 or 90 of a language, among 500 other English lines;
- spelling: news, XNLI and Tatoeba as published, and as people and tools write them.
"""

import argparse
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean

import anyascii
from builtin import xnli
from news_data import Lines, news, rows

from miner.config.choices import default_candidates
from miner.encoders import load_encoder
from miner.encoders.base import TokenEncoder
from miner.evaluation.inputs import encode
from miner.evaluation.retrieval import accuracy, hits, retrieve
from miner.mining.late_scores import TokenSides

SEED_LINES = 600  # the last ones, of 6,193
OTHER_LINES = 600
DISTRACTORS = 500  # English lines of NLLB-Seed beside the paragraphs of the declaration
MARKS_ARABIC = "\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652"
MARKS_HEBREW = "\u05b0\u05b1\u05b2\u05b4\u05b5\u05b6\u05b7\u05b8\u05b9\u05bb\u05bc"
LOOK_ALIKES = str.maketrans("авекмнорстухАВЕКМНОРСТУХ", "abekmhopctyxABEKMHOPCTYX")
ARABIC_LETTERS = str.maketrans({"ی": "ي", "ک": "ك", "ہ": "ه"})  # as keyboards for Arabic write Persian and Urdu
THAI_CLUSTERS = re.compile(r"(?:[เแโใไ]?[ก-ฮ][^ก-ฮเแโใไ\s]*){1,2}|\S")
JAPANESE_RUNS = re.compile(r"[\u3040-\u309f]+|[\u30a0-\u30ff]+|[\u4e00-\u9fff]+|[^\s\u3040-\u30ff\u4e00-\u9fff]+")
CHINESE_WORDS = re.compile(r"[\u4e00-\u9fff]{1,2}|[^\s\u4e00-\u9fff]+")

Spelling = Callable[[str, random.Random], str]


def seed(data: Path) -> Iterator[tuple[str, Lines]]:
    """Yield (language, lines) of NLLB-Seed."""
    folder = data / "train/nllb_seed"
    english = [text for _, text in rows(folder / "eng_Latn.tsv.gz")]
    for path in sorted(folder.glob("*.tsv.gz")):
        lang = path.name.removesuffix(".tsv.gz")
        if lang != "eng_Latn":
            yield lang, (english[-SEED_LINES:], [text for _, text in rows(path)][-SEED_LINES:])


def other_news(data: Path) -> Iterator[tuple[str, Lines]]:
    """Yield (language, lines) of sets that are not to be trained on for their licence."""
    pairs = defaultdict(list)
    for name in ("mafand", "mafand_more"):
        for first, second, _, text1, text2 in rows(data / f"train/{name}.en_fr-african.tsv.gz"):
            if first in ("en", "fr"):
                pairs[second if first == "en" else f"{second}, French"].append((text1, text2))
    for lang, english, other in rows(data / "train/autshumato.en-xx.tsv.gz"):
        if lang in ("nso", "ts"):
            pairs[lang].append((english, other))
    for lang, name in (("bo", "lotsawa.en-bo"), ("ayr", "globalvoices.en-ayr")):
        pairs[lang] = [(row[-2], row[-1]) for row in rows(data / f"train/{name}.tsv.gz")][1:]
    for lang, lines in sorted(pairs.items()):
        unique = list({english: (english, other) for english, other in lines}.values())[-OTHER_LINES:]
        yield lang, ([english for english, _ in unique], [other for _, other in unique])


def rights(data: Path) -> Iterator[tuple[str, Lines]]:
    """Yield (language, lines) of the declaration, followed by the same English lines on both sides."""
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    for key, lang, text in rows(data / "train/udhr.tsv.gz"):
        texts[lang][key] = text
    distractors = [text for _, text in rows(data / "train/nllb_seed/eng_Latn.tsv.gz")][:DISTRACTORS]
    for lang in sorted(texts.keys() - {"eng", "lang"}):
        keys = [key for key in texts[lang] if key in texts["eng"]]
        yield lang, ([texts["eng"][key] for key in keys] + distractors, [texts[lang][key] for key in keys] + distractors)


def spellings() -> dict[str, list[tuple[str, Spelling]]]:
    """Return the names and functions of the spellings of each language."""
    roman: tuple[str, Spelling] = ("in Latin letters", lambda text, _: anyascii.anyascii(text))
    plain: tuple[str, Spelling] = ("without diacritics", lambda text, _: drop_marks(text))
    return {
        "ar": [("with vowel marks", lambda text, chance: add_marks(text, MARKS_ARABIC, chance)), ("with tatweel", add_tatweel)],
        "he": [("with points", lambda text, chance: add_marks(text, MARKS_HEBREW, chance))],
        "vi": [plain, ("decomposed", lambda text, _: unicodedata.normalize("NFD", text))],
        "th": [("with spaces", lambda text, _: " ".join(THAI_CLUSTERS.findall(text)))],
        "hi": [roman],
        "el": [roman, plain],
        "ru": [roman, ("a third of the look-alike letters Latin", mix_scripts)],
        "ja": [("with spaces", lambda text, _: " ".join(JAPANESE_RUNS.findall(text)))],
        "zh": [("with spaces", lambda text, _: " ".join(CHINESE_WORDS.findall(text)))],
        "ko": [("without spaces", lambda text, _: text.replace(" ", ""))],
        "ur": [("with Arabic letters", lambda text, _: text.translate(ARABIC_LETTERS))],
        "fa": [("with Arabic letters", lambda text, _: text.translate(ARABIC_LETTERS))],
        "tr": [("in upper case", lambda text, _: text.replace("i", "İ").upper()), plain],
        "cs": [plain],
        "pl": [plain],
        "fr": [("read in the wrong encoding", lambda text, _: text.encode().decode("cp1252", "replace"))],
        "yor": [plain],
        "ibo": [plain],
    }


def drop_marks(text: str) -> str:
    """Return the text without diacritics; Đ and Ł, which have no decomposition, lose their stroke."""
    bare = "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    return bare.translate(str.maketrans("đĐłŁıİ", "dDlLiI"))


def add_marks(text: str, marks: str, chance: random.Random) -> str:
    return "".join(letter + (chance.choice(marks) if unicodedata.category(letter) == "Lo" else "") for letter in text)


def add_tatweel(text: str, chance: random.Random) -> str:
    return re.sub(r"(?<=[بتثجحخسشصضطظعغفقكلمنهي])(?=[\u0621-\u064a])", lambda _: "ـ" * chance.choice((0, 0, 0, 3)), text)


def mix_scripts(text: str, chance: random.Random) -> str:
    return "".join(letter.translate(LOOK_ALIKES) if chance.random() < 1 / 3 else letter for letter in text)


def spelling_sets(data: Path) -> dict[str, Lines]:
    """Return lines in the languages of `spellings`: news, else XNLI, else Tatoeba."""
    african = dict(other_news(data))
    sets: dict[str, Lines] = {**xnli(data), **news(data), "yor": african["yor"], "ibo": african["ibo"]}
    for lang, name in (("he", "heb"), ("fa", "pes")):
        pairs = list(rows(data / f"eval/tatoeba/tatoeba.{name}-eng.tsv.gz"))
        sets[lang] = ([english for _, english in pairs], [other for other, _ in pairs])
    return sets


def measure(encoder: TokenEncoder, lines: Lines, num_counted: int | None = None) -> tuple[float, float]:
    """Return the accuracies by margin and rescored, of the first lines, None for all."""
    english, other = lines
    vectors = encode(encoder, english + other)
    tokens = TokenSides(encoder.token_vectors(english), encoder.token_vectors(other), default_candidates(map(len, lines)))
    answers = retrieve(vectors[: len(english)], vectors[len(english) :], 4, tokens)
    margin, late = (100 * accuracy(hits(answers[score])[:num_counted])["mean"] for score in ("ratio", "late"))
    return margin, late


def print_table(name: str, figures: dict[str, tuple[float, float]]) -> None:
    margin, late = (mean(column) for column in zip(*figures.values(), strict=True))
    print(f"\n## {name}\n\n| language | margin | rescored |\n|---|---|---|")
    print("\n".join(f"| {lang} | {row[0]:.1f} | {row[1]:.1f} |" for lang, row in figures.items()))
    print(f"| **mean of {len(figures)}** | **{margin:.2f}** | **{late:.2f}** |", flush=True)


def print_spellings(encoder: TokenEncoder, data: Path) -> None:
    print("\n## Spelling\n\n| language | spelling | margin | rescored |\n|---|---|---|---|")
    sets = spelling_sets(data)
    for lang, variants in spellings().items():
        english, other = sets[lang]
        for name, spell in [("as published", lambda text, _: text), *variants]:
            chance = random.Random(lang)
            margin, late = measure(encoder, (english, [spell(text, chance) for text in other]))
            print(f"| {lang} | {name} | {margin:.1f} | {late:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", default="builtin")
    parser.add_argument("--part", action="append", choices=("seed", "news", "rights", "spelling"))
    arguments = parser.parse_args()
    encoder = load_encoder(arguments.encoder)
    if not isinstance(encoder, TokenEncoder):
        parser.error(f"{arguments.encoder} has no token vectors; give a static encoder")
    parts = arguments.part or ["seed", "news", "rights", "spelling"]
    if "seed" in parts:
        print_table("NLLB-Seed", {lang: measure(encoder, lines) for lang, lines in seed(arguments.data)})
    if "news" in parts:
        print_table("News of Africa, and others", {lang: measure(encoder, lines) for lang, lines in other_news(arguments.data)})
    if "rights" in parts:
        sets = rights(arguments.data)
        print_table("Declaration of Human Rights", {lang: measure(encoder, lines, len(lines[0]) - DISTRACTORS) for lang, lines in sets})
    if "spelling" in parts:
        print_spellings(encoder, arguments.data)


if __name__ == "__main__":
    main()
