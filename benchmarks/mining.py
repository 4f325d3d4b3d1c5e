"""Precision and recall of mining with each filter, on the demo corpora and on a harder set.

python benchmarks/mining.py                  examples/
python benchmarks/mining.py --data DATA      and real news with near misses

DATA is a folder of corpora with `train/` and `eval/`, gzip TSV. The harder set is derived from it deterministically: WMT news, of which
three in five sentences have their translation on the other side, with near misses: the translation with other numbers or another
name, the untranslated line, half of the translation, the translation into a third language, and lists of words on both sides. None of
the near misses counts as a pair.

For each setting of the filters: precision, recall and F1 above a threshold, and the precision above the one whose recall equals
that without filters.
"""

import argparse
import gzip
import json
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from miner.config.commands import FromCandidatesConfig, MineConfig, PairFilters, SentenceFilters
from miner.text.normalise import clean_all
from pipelines.mining import mine

EXAMPLES = Path(__file__).parent.parent / "examples"
LANGUAGES = ("de", "fr", "ru", "fi", "hi", "zh")
THIRD = {"de": "es", "fr": "es", "ru": "es"}  # another language of the same news
NAMES = {  # the name in the text, and its replacement
    "de": ("Tom", "Peter"),
    "fr": ("Tom", "Pierre"),
    "ru": ("Том", "Борис"),
    "fi": ("Tom", "Pekka"),
    "hi": ("टॉम", "पीटर"),
    "zh": ("汤姆", "彼得"),
}
PAIRS, NAMED = 2000, 300  # of news, and of sentences with a name, at most
MIN_MARGIN = 1.0

Pair = tuple[str, str]  # English, other
Sides = tuple[dict[str, None], dict[str, None]]  # the lines of both, each once
SETTINGS: dict[str, tuple[str, ...]] = {
    "none": (),
    **{name: (name,) for name in PairFilters.usual()},
    "recommended": tuple(PairFilters.recommended()),
    "all": tuple(PairFilters.usual()),
}


@dataclass(frozen=True)
class Task:
    """Two texts to mine, and their true pairs by line, from 1."""

    name: str
    lang: str
    english: Path
    other: Path
    gold: frozenset[tuple[int, int]]


def demo() -> Iterator[Task]:
    for lang in ("de", "ru", "hi"):
        lines = (EXAMPLES / f"gold.en-{lang}.tsv").read_text(encoding="utf-8").splitlines()
        gold = frozenset((int(source), int(target)) for source, target in (line.split("\t") for line in lines))
        yield Task(f"examples en-{lang}", lang, EXAMPLES / "en.txt", EXAMPLES / f"{lang}.txt", gold)


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def news(data: Path, lang: str) -> list[tuple[str, str, str | None]]:
    """Return (English, other, third language if available)."""
    multi = data / "train/newstest_multi"
    if (multi / f"{lang}.tsv.gz").exists():
        english, other = dict(rows(multi / "en.tsv.gz")), dict(rows(multi / f"{lang}.tsv.gz"))
        third = dict(rows(multi / f"{THIRD[lang]}.tsv.gz"))
        return [(english[key], other[key], third[key]) for key in sorted(english.keys() & other.keys() & third.keys())]
    pairs = data / "train/newstest_pairs.tsv.gz"
    return [(row[3], row[4], None) for row in rows(pairs) if row[:2] == ["en", lang]]


def named(data: Path, lang: str) -> list[Pair]:
    """Return short sentences about Tom."""
    pairs = [(row[1], row[2]) for row in rows(data / "train/tatoeba.en-xx.tsv.gz") if row[0] == lang]
    return [pair for pair in pairs if "Tom" in pair[0] and NAMES[lang][0] in pair[1]]


def other_numbers(text: str, generator: random.Random) -> str:
    """Replace every number by another one with as many digits."""

    def replace_number(match: re.Match[str]) -> str:
        digits = len(match[0])
        return str((int(match[0]) + generator.randrange(1, 9 * 10 ** (digits - 1))) % (9 * 10 ** (digits - 1)) + 10 ** (digits - 1))

    return re.sub(r"\d{1,12}", replace_number, text)


def half(text: str) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2]) if len(words) > 3 else text[: len(text) // 2]


def tags(text: str) -> str:
    """Return a list of words, like the tags below an article."""
    words = text.split() if text.count(" ") > 3 else re.findall("..", text)
    return ", ".join(word.strip(".,;:!?") for word in words[:8])


def near_misses(english: str, other: str, third: str | None, lang: str, generator: random.Random) -> list[str]:
    """Return near misses of a translation: each kind for a tenth of the sentences, numbers and names for half of those that have any."""
    kinds: list[tuple[float, Callable[[], str | None]]] = [
        (0.5, lambda: other_numbers(other, generator) if re.search(r"\d", english) and re.search(r"\d", other) else None),
        (0.1, lambda: english.removesuffix(".") + "!"),
        (0.1, lambda: half(other)),
        (0.1, lambda: third),
        (0.5, lambda: other.replace(*NAMES[lang]) if "Tom" in english and NAMES[lang][0] in other else None),
    ]
    lines = [make() for share, make in kinds if generator.random() < share]
    return [line for line in lines if line is not None and line != other]


def hard(data: Path, lang: str, folder: Path) -> Task:
    """Write the harder set of one language under `folder`."""
    generator = random.Random(lang)
    triples: list[tuple[str, str, str | None]] = news(data, lang)
    triples = generator.sample(triples, min(PAIRS, len(triples)))
    about_tom = named(data, lang)
    triples += [(english, other, None) for english, other in generator.sample(about_tom, min(NAMED, len(about_tom)))]
    sides: Sides = ({}, {})
    true: list[Pair] = []
    for number, triple in enumerate(triples):
        english, other = clean_all(triple[:2])
        if english in sides[0] or other in sides[1]:
            continue
        kind = number % 5  # three in five have both sides, one only English, one only the other
        lines = ([english] if kind != 3 else [], [other] if kind != 4 else [])
        lines[1].extend(near_misses(english, other, triple[2], lang, generator) if kind != 3 else [])
        if number % 20 == 0:
            for side, line in zip(lines, (english, other), strict=True):
                side.append(tags(line))
        for side, new in zip(sides, lines, strict=True):
            for line in clean_all(new):
                side.setdefault(line)
        if kind < 3:
            true.append((english, other))
    return _written(lang, folder, sides, true, generator)


def _written(lang: str, folder: Path, sides: Sides, true: list[Pair], generator: random.Random) -> Task:
    paths, numbers = [], []
    for side, code in zip(sides, ("en", lang), strict=True):
        lines = list(side)
        generator.shuffle(lines)
        numbers.append({line: number for number, line in enumerate(lines, start=1)})
        paths.append(folder / f"{lang}.{code}.txt")
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Task(f"news en-{lang}", lang, paths[0], paths[1], frozenset((numbers[0][english], numbers[1][other]) for english, other in true))


@dataclass(frozen=True)
class MinedPairs:
    """The margins (n,) of pairs, best first, whether they are true pairs (n,), and the number of true pairs in the corpora."""

    margins: np.ndarray
    is_correct: np.ndarray
    num_true: int

    def at(self, threshold: float) -> tuple[float, float, float]:
        """Return precision, recall and F1 of the pairs above a threshold."""
        is_above = self.margins > threshold
        correct = float(self.is_correct[is_above].sum())
        return correct / max(1, is_above.sum()), correct / self.num_true, 2 * correct / (is_above.sum() + self.num_true)

    def precision_at(self, recall: float) -> float:
        """Return the precision of the fewest best pairs with this recall; NaN if it is not reached."""
        correct = np.cumsum(self.is_correct)
        enough = np.flatnonzero(correct >= recall * self.num_true - 1e-9)
        return float(correct[enough[0]] / (enough[0] + 1)) if len(enough) else np.nan


def search(task: Task, output: Path, sentence_filters: bool) -> None:
    """Mine without pair filters, to have the candidates."""
    filters = SentenceFilters(**dict.fromkeys(SentenceFilters.usual(), True)) if sentence_filters else SentenceFilters.none()
    languages = {"source_lang": "en", "target_lang": task.lang}
    mine.run(MineConfig(source=str(task.english), target=str(task.other), output=str(output), sentence_filters=filters, **languages))


def select(task: Task, candidates: Path, names: tuple[str, ...]) -> MinedPairs:
    filters = PairFilters(**{**dict.fromkeys(PairFilters.model_fields), **dict.fromkeys(names, True)})
    with tempfile.TemporaryDirectory() as output:
        config = FromCandidatesConfig(candidates=str(candidates), output=output, threshold=MIN_MARGIN, pair_filters=filters)
        mine.run_from_candidates(config)
        table = pq.read_table(Path(output) / "bitext.parquet")
    lines = zip(table["source_line"].to_pylist(), table["target_line"].to_pylist(), strict=True)
    return MinedPairs(table["margin"].to_numpy(), np.array([pair in task.gold for pair in lines], dtype=bool), len(task.gold))


def measure(task: Task, folder: Path, threshold: float) -> dict[str, list[float]]:
    """Return for each setting precision, recall, F1, and precision at the recall without filters."""
    plain, filtered = folder / "plain", folder / "filtered"
    search(task, plain, sentence_filters=False)
    search(task, filtered, sentence_filters=True)
    mined = {name: select(task, plain, names) for name, names in SETTINGS.items()}
    mined |= {"sentence filters": select(task, filtered, ()), "sentence filters, all": select(task, filtered, SETTINGS["all"])}
    recall = mined["none"].at(threshold)[1]
    return {name: [*pairs.at(threshold), pairs.precision_at(recall)] for name, pairs in mined.items()}


def show(name: str, table: dict[str, list[float]]) -> None:
    print(f"\n{name}\n| filters | precision | recall | F1 | precision at equal recall |\n|---|---|---|---|---|")
    for setting, figures in table.items():
        print(f"| {setting} | " + " | ".join("–" if np.isnan(figure) else f"{100 * figure:.2f}" for figure in figures) + " |")


def mean(tables: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: np.mean([table[name] for table in tables], axis=0).tolist() for name in tables[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with train/ and eval/")
    parser.add_argument("--threshold", type=float, default=1.17, help="of the ratio margin")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sets = {"examples": list(demo())}
        if arguments.data is not None:
            sets["news with near misses"] = [hard(arguments.data, lang, Path(folder)) for lang in LANGUAGES]
        figures = {}
        for name, tasks in sets.items():
            tables = {task.name: measure(task, Path(folder) / task.name.replace(" ", "-"), arguments.threshold) for task in tasks}
            for task, table in tables.items():
                show(task, table)
            show(f"{name}, mean", mean(list(tables.values())))
            figures |= {**tables, name: mean(list(tables.values()))}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
