"""Forms of words: inflected ones from lists, and those with a particle that is written as a part of the word."""

import io
import lzma
import random
import re
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from package_files import PlainUnpickler, Texts, canonical, clean_word, find

Words = dict[tuple[str, str], str]  # (language, word) -> the English text of its group

MAX_FORMS = 5  # of a word, drawn at random
MAX_FORMS_OF_LANGUAGE = 150_000  # before MAX_FORMS
SKIPPED_INFLECTIONS = {"en", "enm", "la", "ast", "gv"}
SERBO_CROATIAN = re.compile("[a-zčćđšž]+")  # the words of hbs that are Croatian; others have marks of pitch, or Cyrillic letters
CLITICS = {  # language -> words that take them, and the word with each
    "amh_Ethi": (re.compile("[\u1200-\u135a]{2,}"), ("የ{}", "በ{}", "ለ{}", "ከ{}", "{}ን")),
    "ara_Arab": (re.compile("(?!ال)[\u0621-\u064a]{3,}"), ("ال{}", "وال{}", "بال{}", "لل{}", "و{}")),
    "heb_Hebr": (re.compile("[\u05d0-\u05ea]{2,}"), ("ה{}", "ב{}", "ל{}", "ו{}", "מ{}")),
    "kor_Kore": (re.compile("[가-힣]+[가-닣닥-힣]"), ("{}은", "{}이", "{}을", "{}의", "{}에")),  # not verbs, which end in 다
}
AFTER_VOWELS = {"은": "는", "이": "가", "을": "를"}  # Korean particles
FINAL_CONSONANTS = 28  # of a Korean syllable, with none


def inflections(packages: Path, known: Words) -> Iterator[tuple[str, Texts]]:
    """Yield (English, inflected forms) of the known words, by simplemma's lists of forms and lemmas."""
    with zipfile.ZipFile(find(packages, "simplemma-1.1.2-*.whl")[0]) as wheel:
        for name in sorted(name for name in wheel.namelist() if name.endswith(".plzma")):
            code = Path(name).stem
            if code in SKIPPED_INFLECTIONS:
                continue
            lang = canonical("hr" if code == "hbs" else code)
            lemmas = PlainUnpickler(io.BytesIO(lzma.decompress(wheel.read(name)))).load()
            forms = [(form.decode(), lemma.decode()) for form, lemma in lemmas.items() if form != lemma and (lang, lemma.decode()) in known]
            random.Random(0).shuffle(forms)
            counts: Counter[str] = Counter()
            for form, lemma in [pair for pair in forms if is_inflection(code, *pair)][:MAX_FORMS_OF_LANGUAGE]:
                counts[lemma] += 1
                if counts[lemma] <= MAX_FORMS:
                    yield known[lang, lemma], [(lang, clean_word(form))]


def is_inflection(code: str, form: str, lemma: str) -> bool:
    """Return whether a form is in the letters of its lemma: some lists have transcriptions."""
    return script(form) == script(lemma) and (code != "hbs" or SERBO_CROATIAN.fullmatch(form) is not None)


def clitic_forms(known: Words) -> Iterator[tuple[str, Texts]]:
    """Yield (English, forms) of the known words of languages that write articles, prepositions or particles as a part of the word."""
    for lang, (pattern, clitics) in CLITICS.items():
        words = [word for other, word in known if other == lang and pattern.fullmatch(word)]
        random.Random(0).shuffle(words)
        for word in words[: MAX_FORMS_OF_LANGUAGE // len(clitics)]:
            yield known[lang, word], [(lang, korean_form(word, clitic)) for clitic in clitics]


def korean_form(word: str, clitic: str) -> str:
    """Return the word with a clitic; after a vowel, Korean particles differ."""
    if clitic[-1] in AFTER_VOWELS and (ord(word[-1]) - ord("가")) % FINAL_CONSONANTS == 0:
        clitic = clitic[:-1] + AFTER_VOWELS[clitic[-1]]
    return clitic.format(word)


def script(text: str) -> str:
    """Return the first word of the Unicode name of the first letter."""
    return unicodedata.name(text[:1] or " ", "?").split()[0]
