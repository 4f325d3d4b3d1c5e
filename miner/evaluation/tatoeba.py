"""Tatoeba: sentence retrieval between English and each other language, as in XTREME. See docs/evaluation.md for the protocol."""

import logging
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from miner import storage
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.lines import encode, read_lines
from miner.evaluation.retrieval import Accuracy, by_cosine, search, table

FILE = re.compile(r"tatoeba\.([a-z]{3})-eng\.tsv\.gz")

# The languages of XTREME's two averages, under the ISO 639-3 codes of the files: Chinese is cmn, Persian pes, Swahili swh.
SETS = {
    "tatoeba14": ["ara", "bul", "cmn", "deu", "ell", "fra", "hin", "rus", "spa", "swh", "tha", "tur", "urd", "vie"],
    "tatoeba36": [
        *("afr", "ara", "ben", "bul", "cmn", "deu", "ell", "est", "eus", "fin", "fra", "heb", "hin", "hun", "ind", "ita", "jav", "jpn"),
        *("kat", "kaz", "kor", "mal", "mar", "nld", "pes", "por", "rus", "spa", "swh", "tam", "tel", "tgl", "tha", "tur", "urd", "vie"),
    ],
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """What `miner eval tatoeba` found: by language, `forward` from it to English and `backward` from English to it."""

    languages: Mapping[str, Accuracy]

    def average(self, languages: list[str]) -> Accuracy | None:
        """The mean over these languages; None where one was not measured."""
        if not all(code in self.languages for code in languages):
            return None
        found = [self.languages[code] for code in languages]
        return Accuracy(fmean(accuracy.forward for accuracy in found), fmean(accuracy.backward for accuracy in found))

    @property
    def averages(self) -> dict[str, Accuracy | None]:
        return {name: self.average(codes) for name, codes in {**SETS, "all": list(self.languages)}.items()}

    def figures(self) -> dict[str, Any]:
        return {
            "languages": {code: accuracy.figures() for code, accuracy in self.languages.items()},
            "average": {name: accuracy and accuracy.mean for name, accuracy in self.averages.items()},
        }

    def summary(self) -> str:
        averages = {name: accuracy for name, accuracy in self.averages.items() if accuracy is not None}
        return table({**self.languages, **averages})


def evaluate(encoder: Encoder, folder: str) -> Result:
    """A folder of tatoeba.xxx-eng.tsv.gz (xxx<TAB>English, no header) -> accuracy by language.

    Raises DataError where there are no such files, or one is empty or not as it should be.
    """
    pairs = {code: read_pairs(path) for code, path in find_files(folder).items()}
    for name, codes in SETS.items():
        if missing := [code for code in codes if code not in pairs]:
            logger.warning("no average %s: %s has no file for %s", name, folder, ", ".join(missing))
    # All languages at once: many share their English sentences, and transformers like big batches.
    vectors = encode(encoder, [text for foreign, english in pairs.values() for text in foreign + english])
    languages, start = {}, 0
    for code, (foreign, _) in pairs.items():
        middle, end = start + len(foreign), start + 2 * len(foreign)
        languages[code] = by_cosine(*search(vectors[start:middle], vectors[middle:end], k=1))
        start = end
    return Result(languages)


def find_files(folder: str) -> dict[str, str]:
    """ISO 639-3 code -> file, by code."""
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder; name the one with the files tatoeba.xxx-eng.tsv.gz")
    fs, path = storage.filesystem(folder)
    names = sorted(posixpath.basename(str(name)) for name in fs.ls(path, detail=False))
    files = {match[1]: storage.join(folder, name) for name in names if (match := FILE.fullmatch(name))}
    if not files:
        raise DataError(f"{folder}: no files tatoeba.xxx-eng.tsv.gz; choose another --data")
    return files


def read_pairs(path: str) -> tuple[list[str], list[str]]:
    """A file of foreign<TAB>English -> its two columns."""
    foreign, english = read_lines(path, "1"), read_lines(path, "2")
    if not foreign:
        raise DataError(f"{path}: no lines; download it again")
    return foreign, english
