"""Tatoeba: sentence retrieval between English and each other language, as in XTREME. See docs/evaluation.md for the protocol."""

import re
from collections.abc import Mapping
from itertools import chain
from statistics import fmean
from typing import Literal

import pydantic

from miner.config.datasets import DatasetFiles, TableFile
from miner.encoders import Encoder
from miner.encoders.base import search_device
from miner.errors import DataError
from miner.evaluation.inputs import TextPart, encode_parts
from miner.evaluation.lines import read_lines
from miner.evaluation.retrieval import DIRECTIONS, Hits, accuracy, both_directions, hits, nearest_by_cosine
from miner.evaluation.scores import EvaluationResult, Score, figure_table, mean
from miner.evaluation.task_base import BarChart, TaskSettings
from miner.io import storage
from miner.languages import canonical
from miner.mining.in_memory import search_vectors
from miner.research.datasets.columns import read_dataset_columns
from miner.research.datasets.file_groups import comparable
from miner.search.parallel import parallel_for

FILE = re.compile(r"tatoeba\.([a-z]{3})-eng\.tsv(?:\.gz)?")

# The languages of XTREME's two averages, by the ISO 639-3 codes of the files: Chinese is cmn, Persian pes, Swahili swh.
SETS = {
    "tatoeba14": ["ara", "bul", "cmn", "deu", "ell", "fra", "hin", "rus", "spa", "swh", "tha", "tur", "urd", "vie"],
    "tatoeba36": [
        *("afr", "ara", "ben", "bul", "cmn", "deu", "ell", "est", "eus", "fin", "fra", "heb", "hin", "hun", "ind", "ita", "jav", "jpn"),
        *("kat", "kaz", "kor", "mal", "mar", "nld", "pes", "por", "rus", "spa", "swh", "tam", "tel", "tgl", "tha", "tur", "urd", "vie"),
    ],
}


class TatoebaTask(TaskSettings):
    """Measure retrieval by cosine between English and each language of Tatoeba, with XTREME's averages.

    Forward is from the language to English, backward from English to the language.

    \b
    Example:
      miner eval tatoeba --data LASER/data/tatoeba/v1 --encoder builtin --json tatoeba.json
    """

    CHART = BarChart(
        groups="languages",
        value="mean",
        caption="Accuracy, the mean of both directions",
        axis="accuracy",
        is_share=True,
    )

    task: Literal["tatoeba"] = "tatoeba"
    data: TableFile = pydantic.Field(
        description="The release of LASER or XTREME; or a directory of files tatoeba.xxx-eng.tsv.gz: xxx<TAB>English, no header."
    )

    def evaluate(self, encoder: Encoder) -> EvaluationResult:
        """Measure accuracy by language on a release, or on a folder of tatoeba.xxx-eng.tsv.gz (xxx<TAB>English, no header).

        Raise DataError if there are no such files, or one is empty or malformed.
        """
        tables = find_tables(self.data)
        pairs = {code: read_pairs(path) for code, path in tables.items()} or _dataset_pairs(as_dataset(self.data))
        # Encode all languages at once: many share their English sentences, and transformers are faster with large batches.
        parts = [(TextPart(foreign, lang=code), TextPart(english, lang="eng")) for code, (foreign, english) in pairs.items()]
        codes, sides = list(pairs), encode_parts(encoder, list(chain.from_iterable(parts)))
        hits_by_code: dict[str, Hits] = {}
        device = search_device(encoder)

        def retrieve(number: int) -> None:
            neighbours = search_vectors(sides[2 * number], sides[2 * number + 1], 1, device)
            hits_by_code[codes[number]] = hits(nearest_by_cosine(*neighbours))

        parallel_for(len(codes), retrieve, device)
        return _summarise({code: hits_by_code[code] for code in codes})


def _summarise(hits: Mapping[str, Hits]) -> EvaluationResult:
    """Report the accuracy of each language, and the unweighted means over the sets of languages of which all are measured."""
    languages = {code: accuracy(of_language) for code, of_language in hits.items()}
    sets = {name: codes for name, codes in {**SETS, "all": list(hits)}.items() if all(code in hits for code in codes)}
    averages = {
        name: both_directions(fmean(languages[code]["forward"] for code in codes), fmean(languages[code]["backward"] for code in codes))
        for name, codes in sets.items()
    }
    missing = {name: [code for code in codes if code not in hits] for name, codes in SETS.items()}
    notes = [f"no average {name}: no file for {', '.join(codes)}" for name, codes in missing.items() if codes]
    return EvaluationResult(
        {
            "languages": {code: {"n": len(hits[code]), **shares} for code, shares in languages.items()},
            "average": {name: averages[name]["mean"] if name in averages else None for name in (*SETS, "all")},
        },
        "\n".join([figure_table({**languages, **averages}, DIRECTIONS), *notes]),
        {f"accuracy, {name}": Score({code: hits[code] for code in codes}, mean) for name, codes in sets.items()},
    )


def _dataset_pairs(files: DatasetFiles) -> dict[str, tuple[list[str], list[str]]]:
    """Return both sides of each language of a release, by the codes of `SETS` where XTREME's copy has codes of its own."""
    codes = {canonical(code): code for code in SETS["tatoeba36"]}
    pairs: dict[str, tuple[list[str], list[str]]] = {}
    for foreign, english, langs in read_dataset_columns(files, ["source", "target", "source_lang"]):
        for text, translation, lang in zip(foreign, english, langs, strict=True):
            sides = pairs.setdefault(codes.get(comparable(lang), lang), ([], []))
            sides[0].append(text)
            sides[1].append(translation)
    return dict(sorted(pairs.items()))


def find_tables(data: TableFile) -> dict[str, str]:
    """Return the paths of the files tatoeba.xxx-eng.tsv.gz by ISO 639-3 code, sorted by code; none of a release."""
    if isinstance(data, DatasetFiles) or not storage.is_folder(data):
        return {}
    return {match[1]: storage.join(data, name) for name in storage.names_in(data) if (match := FILE.fullmatch(name))}


def as_dataset(data: TableFile) -> DatasetFiles:
    """Return the release that a path or a config names."""
    return data if isinstance(data, DatasetFiles) else DatasetFiles(dataset="tatoeba", path=data)


def read_pairs(path: str) -> tuple[list[str], list[str]]:
    """Return the two columns of a file of foreign<TAB>English."""
    foreign, english = read_lines(path, "1"), read_lines(path, "2")
    if not foreign:
        raise DataError(f"{path}: no lines; download it again")
    return foreign, english
