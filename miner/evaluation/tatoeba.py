"""Tatoeba: sentence retrieval between English and each other language, as in XTREME. See docs/evaluation.md for the protocol."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import torch

from miner import storage
from miner.encoders import Encoder
from miner.errors import DataError
from miner.evaluation.inputs import encode, read_lines
from miner.evaluation.retrieval import HEADS, Accuracy, Hits, accuracy, by_cosine, hits, search
from miner.evaluation.scores import Score, mean, table
from miner.evaluation.settings import TatoebaTask
from miner.search.parallel import parallel_for

FILE = re.compile(r"tatoeba\.([a-z]{3})-eng\.tsv(?:\.gz)?")

# The languages of XTREME's two averages, under the ISO 639-3 codes of the files: Chinese is cmn, Persian pes, Swahili swh.
SETS = {
    "tatoeba14": ["ara", "bul", "cmn", "deu", "ell", "fra", "hin", "rus", "spa", "swh", "tha", "tur", "urd", "vie"],
    "tatoeba36": [
        *("afr", "ara", "ben", "bul", "cmn", "deu", "ell", "est", "eus", "fin", "fra", "heb", "hin", "hun", "ind", "ita", "jav", "jpn"),
        *("kat", "kaz", "kor", "mal", "mar", "nld", "pes", "por", "rus", "spa", "swh", "tam", "tel", "tgl", "tha", "tur", "urd", "vie"),
    ],
}


@dataclass(frozen=True, eq=False)
class TatoebaResult:
    """What `miner eval tatoeba` found: by language, `forward` from it to English and `backward` from English to it."""

    hits: Mapping[str, Hits]

    @property
    def sets(self) -> dict[str, Sequence[str]]:
        """The languages of each average that all languages of are measured."""
        return {name: codes for name, codes in {**SETS, "all": list(self.hits)}.items() if all(code in self.hits for code in codes)}

    def averages(self, languages: Mapping[str, Accuracy]) -> dict[str, Accuracy]:
        """An average is over languages, each counting the same."""
        found = {name: [languages[code] for code in codes] for name, codes in self.sets.items()}
        return {name: Accuracy(fmean(a.forward for a in group), fmean(a.backward for a in group)) for name, group in found.items()}

    def figures(self) -> dict[str, Any]:
        languages = {code: accuracy(found) for code, found in self.hits.items()}
        averages = self.averages(languages)
        return {
            "languages": {code: {"n": len(self.hits[code]), **found.figures()} for code, found in languages.items()},
            "average": {name: averages[name].mean if name in averages else None for name in (*SETS, "all")},
        }

    def summary(self) -> str:
        languages = {code: accuracy(found) for code, found in self.hits.items()}
        rows = {**languages, **self.averages(languages)}
        lacking = {name: [code for code in codes if code not in languages] for name, codes in SETS.items()}
        notes = [f"no average {name}: no file for {', '.join(codes)}" for name, codes in lacking.items() if codes]
        return "\n".join([table(HEADS, {name: found.cells() for name, found in rows.items()}), *notes])

    def scores(self) -> dict[str, Score]:
        return {f"accuracy, {name}": Score({code: self.hits[code] for code in codes}, mean) for name, codes in self.sets.items()}


def evaluate(encoder: Encoder, task: TatoebaTask) -> TatoebaResult:
    """A folder of tatoeba.xxx-eng.tsv.gz (xxx<TAB>English, no header) -> accuracy by language.

    Raises DataError where there are no such files, or one is empty or not as it should be.
    """
    pairs = {code: read_pairs(path) for code, path in find_files(task.data).items()}
    # All languages at once: many share their English sentences, and transformers like big batches.
    vectors = encode(encoder, [text for foreign, english in pairs.values() for text in foreign + english])
    codes, sizes = list(pairs), np.repeat([len(foreign) for foreign, _ in pairs.values()], 2)
    sides = np.split(vectors, np.cumsum(sizes)[:-1])
    found: dict[str, Hits] = {}

    def find(number: int) -> None:
        found[codes[number]] = hits(by_cosine(*search(sides[2 * number], sides[2 * number + 1], k=1)))

    parallel_for(len(codes), find, torch.device("cpu"))
    return TatoebaResult({code: found[code] for code in codes})


def find_files(folder: str) -> dict[str, str]:
    """ISO 639-3 code -> file, by code."""
    if not storage.is_folder(folder):
        raise DataError(f"{folder}: no such folder; name the one with the files tatoeba.xxx-eng.tsv.gz")
    files = {match[1]: storage.join(folder, name) for name in storage.names_in(folder) if (match := FILE.fullmatch(name))}
    if not files:
        raise DataError(f"{folder}: no files tatoeba.xxx-eng.tsv.gz; choose another --data")
    return files


def read_pairs(path: str) -> tuple[list[str], list[str]]:
    """A file of foreign<TAB>English -> its two columns."""
    foreign, english = read_lines(path, "1"), read_lines(path, "2")
    if not foreign:
        raise DataError(f"{path}: no lines; download it again")
    return foreign, english
