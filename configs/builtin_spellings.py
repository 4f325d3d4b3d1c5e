"""How people and tools write: the normalisation of the built-in encoder, and other spellings of its training texts.

`build_charsmap` changes the rules of SentencePiece's `nmt_nfkc_cf`, which the encoder's model contains: what never carries meaning for
it disappears there, so that nothing has to be done when texts are encoded. `SPELLINGS` are the ones that do carry meaning, or cannot be
undone by rules: they are trained on.
"""

import io
import itertools
import re
import sys
import tempfile
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyascii
import sentencepiece

from miner.encoders.word_cache import UNSPACED

DELETED = [
    *range(0x0591, 0x05BE), 0x05BF, 0x05C1, 0x05C2, 0x05C4, 0x05C5, 0x05C7,  # Hebrew accents and points
    0x0610, 0x0611, 0x0612, 0x0613, 0x0614, 0x0615, 0x061A, *range(0x064B, 0x0653), 0x0656, 0x0657, 0x0658, 0x0670,  # Arabic vowel marks
    *range(0x06D6, 0x06DD), *range(0x06DF, 0x06E5), 0x06E7, 0x06E8, *range(0x06EA, 0x06EE),  # and those of the Quran
    0x0640,  # tatweel
    0x0307,  # the dot of a Turkish capital letter that was lower-cased elsewhere
]  # fmt: skip
REPLACED = {0x0671: "ا", 0x0130: "i"}
LOOK_ALIKES = dict(zip("авекмнорстухі", "abekmhopctyxi", strict=True))  # Cyrillic -> Latin
CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяіїєґўѓќјљњћђџәғқңөұүһ"
MISREAD = [*range(0xA0, 0x180), *range(0x391, 0x3CF), *range(0x410, 0x460), *map(ord, "‘’“”–—…€™•")]  # UTF-8 as if it were Windows-1252
SPACE = "\u2581"


def build_charsmap() -> bytes:
    """Return the compiled normalisation rules: those of SentencePiece's nmt_nfkc_cf, changed."""
    folding = sentencepiece.SentencePieceProcessor(model_proto=_train_rules(normalization_rule_name="nmt_nfkc_cf"))
    rules = {text: replacement for text, replacement in _change_rules(folding) if text != replacement}
    rules |= dict(_joining_rules(rules))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        lines = ("\t".join(" ".join(f"{ord(letter):X}" for letter in side) for side in rule) for rule in rules.items())
        path.write_text("\n".join(lines) + "\n")
        model = _train_rules(normalization_rule_tsv=str(path))
    print(f"{len(rules)} rules", file=sys.stderr)
    charsmap: bytes = parse_model(model).normalizer_spec.precompiled_charsmap
    return charsmap


def _train_rules(**normalization: str) -> bytes:
    """Return a SentencePiece model that has only its normalisation."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g h"] * 20), model_writer=model, vocab_size=12, model_type="unigram",
        hard_vocab_limit=False, minloglevel=2, **normalization,
    )  # fmt: skip
    return model.getvalue()


def _joining_rules(rules: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield rules that delete the space before a letter of UNSPACED."""
    is_unspaced = re.compile(f"[{UNSPACED}]").match
    letters = {chr(code): chr(code) for code in range(0x0E00, 0x1800) if is_unspaced(chr(code))}
    for text, replacement in (letters | rules).items():
        if is_unspaced(text):
            yield f" {text}", replacement


def parse_model(model: bytes) -> Any:
    from transformers.utils import sentencepiece_model_pb2_new as proto

    return proto.ModelProto.FromString(model)


def _change_rules(processor: sentencepiece.SentencePieceProcessor) -> Iterator[tuple[str, str]]:
    """Yield (text, replacement) of letters, letters with marks, and sequences of letters."""

    def fold(text: str) -> str:
        folded: str = processor.normalize(f"a{text}a")[2:-1].replace(SPACE, " ")
        return folded

    deleted = dict.fromkeys(DELETED)

    def change(text: str) -> str:
        result = fold(text.translate(REPLACED)).translate(deleted)
        return "".join(str(unicodedata.digit(letter)) if unicodedata.category(letter) == "Nd" else letter for letter in result)

    for code in range(0x20, 0x1FBFF):
        letter = chr(code)
        if unicodedata.category(letter) in ("Cn", "Co", "Cs") or 0x3400 <= code <= 0x9FFF or 0xAC00 <= code <= 0xD7A3:
            continue
        if (changed := change(letter)) != letter:
            yield letter, changed
        composed = change(unicodedata.normalize("NFC", letter))
        base, *marks = unicodedata.normalize("NFD", letter)
        for order in itertools.permutations(marks):  # the last mark may be apart, or all of them
            for parts in (base + "".join(order), unicodedata.normalize("NFC", base + "".join(order[:-1])) + "".join(order[-1:])):
                if parts != letter and unicodedata.normalize("NFC", parts) == unicodedata.normalize("NFC", letter):
                    yield parts, composed
    for code in range(0xAC00, 0xD7A4):
        yield unicodedata.normalize("NFD", chr(code)), chr(code)
    yield from _look_alike_rules()
    for code in MISREAD:
        misread = chr(code).encode().decode("cp1252", "replace")
        if len(misread) > 1 and "\ufffd" not in misread and change(chr(code)).strip():
            yield misread, change(chr(code))


def _look_alike_rules() -> Iterator[tuple[str, str]]:
    """Yield Cyrillic letters beside Latin ones that look like Cyrillic ones: words are in one script."""
    latin = {image: letter for letter, image in LOOK_ALIKES.items()}
    for own, other in itertools.product(CYRILLIC + CYRILLIC.upper(), [*latin, *(image.upper() for image in latin)]):
        if (own.isupper() and other.islower()) or own.islower() == other.islower():
            yield own + other, own.lower() + latin[other.lower()]
        if other.isupper() or own.islower():
            yield other + own, latin[other.lower()] + own.lower()
    for own, first, second in itertools.product(CYRILLIC[:32], latin, latin):
        for triple in (own + first + second, first + own + second, first + second + own):
            yield triple, "".join(latin.get(letter, letter) for letter in triple)


def drop_marks(text: str) -> str:
    """Return the text without diacritics, which keyboards lack."""
    bare = "".join(letter for letter in unicodedata.normalize("NFD", text) if not unicodedata.combining(letter))
    return bare.translate(str.maketrans("đĐłŁıɓɗƙƴŋɛɔǝ", "dDlLibdkyneoe"))


def write_in_latin(text: str) -> str:
    latin: str = anyascii.anyascii(text)
    return latin


def use_arabic_letters(text: str) -> str:
    """Write Persian and Urdu as a keyboard for Arabic does."""
    return text.translate(str.maketrans({"ی": "ي", "ک": "ك", "ہ": "ه", "ۀ": "ه", "ھ": "ه"}))


Spelling = Callable[[str], str]
ROMANISED = [
    "hin_Deva", "ell_Grek", "rus_Cyrl", "ukr_Cyrl", "bul_Cyrl", "ben_Beng", "urd_Arab", "fas_Arab", "mar_Deva", "nep_Deva",
    "mkd_Cyrl", "srp_Cyrl", "kat_Geor", "hye_Armn",
]  # fmt: skip
WITHOUT_MARKS = [
    "vie_Latn", "tur_Latn", "ces_Latn", "pol_Latn", "ron_Latn", "hun_Latn", "slk_Latn", "hrv_Latn", "lit_Latn", "lav_Latn",
    "por_Latn", "spa_Latn", "fra_Latn", "ell_Grek", "yor_Latn", "ibo_Latn", "ewe_Latn", "fon_Latn", "kbp_Latn", "bam_Latn",
    "dyu_Latn", "twi_Latn", "aka_Latn", "lin_Latn", "mos_Latn", "nus_Latn", "din_Latn", "kik_Latn", "lua_Latn",
]  # fmt: skip
ARABIC_LETTERS = ["fas_Arab", "urd_Arab"]
# Languages, name and function of a spelling.
SPELLINGS: list[tuple[list[str], str, Spelling]] = [
    (ROMANISED, "latin", write_in_latin),
    (WITHOUT_MARKS, "plain", drop_marks),
    (ARABIC_LETTERS, "arabic-letters", use_arabic_letters),
    (["kor_Kore"], "unspaced", lambda text: text.replace(" ", "")),
]
