"""What the filters do to precision and recall, on the demo corpora and on a harder set.

python benchmarks/mining.py                  examples/
python benchmarks/mining.py --data DATA      and real news in the company of near misses

DATA is a folder of collected corpora with `train/` and `eval/`, gzip TSV. The harder set is made from it, the same every time: WMT news
of which three in five sentences have their translation on the other side, and among them near misses: the
translation with other numbers or another name, the line left in English, half of the translation, the translation in a third
language, and lists of words on both sides. Nothing of it is a pair.

For each setting of the filters: precision, recall and F1 at the usual threshold, and the precision where the threshold is moved to
where recall is that of no filters at the usual threshold.
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
THIRD = {"de": "es", "fr": "es", "ru": "es"}  # a language of the same news, for lines that are in the wrong one
NAMES = {  # in the text, and instead of it
    "de": ("Tom", "Peter"),
    "fr": ("Tom", "Pierre"),
    "ru": ("Том", "Борис"),
    "fi": ("Tom", "Pekka"),
    "hi": ("टॉम", "पीटर"),
    "zh": ("汤姆", "彼得"),
}
PAIRS, NAMED = 2000, 300  # of news, and of sentences with a name, at most
LOWEST = 1.0  # margin from which thresholds are looked at

Pair = tuple[str, str]  # English, other
Sides = tuple[dict[str, None], dict[str, None]]  # the lines of both, each once
SETTINGS: dict[str, tuple[str, ...]] = {
    "none": (),
    **{name: (name,) for name in PairFilters.USUAL},
    "recommended": PairFilters.RECOMMENDED,
    "all": tuple(PairFilters.USUAL),
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
        gold = frozenset((int(one), int(other)) for one, other in (line.split("\t") for line in lines))
        yield Task(f"examples en-{lang}", lang, EXAMPLES / "en.txt", EXAMPLES / f"{lang}.txt", gold)


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def news(data: Path, lang: str) -> list[tuple[str, str, str | None]]:
    """(English, other, the third language if there is one)"""
    multi = data / "train/newstest_multi"
    if (multi / f"{lang}.tsv.gz").exists():
        english, other = dict(rows(multi / "en.tsv.gz")), dict(rows(multi / f"{lang}.tsv.gz"))
        third = dict(rows(multi / f"{THIRD[lang]}.tsv.gz"))
        return [(english[key], other[key], third[key]) for key in sorted(english.keys() & other.keys() & third.keys())]
    pairs = data / "train/newstest_pairs.tsv.gz"
    return [(row[3], row[4], None) for row in rows(pairs) if row[:2] == ["en", lang]]


def named(data: Path, lang: str) -> list[Pair]:
    """Short sentences about Tom."""
    found = [(row[1], row[2]) for row in rows(data / "train/tatoeba.en-xx.tsv.gz") if row[0] == lang]
    return [pair for pair in found if "Tom" in pair[0] and NAMES[lang][0] in pair[1]]


def other_numbers(text: str, chance: random.Random) -> str:
    """Every number another one of as many digits."""

    def another(found: re.Match[str]) -> str:
        digits = len(found[0])
        return str((int(found[0]) + chance.randrange(1, 9 * 10 ** (digits - 1))) % (9 * 10 ** (digits - 1)) + 10 ** (digits - 1))

    return re.sub(r"\d{1,12}", another, text)


def half(text: str) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2]) if len(words) > 3 else text[: len(text) // 2]


def tags(text: str) -> str:
    """A list of words, as pages have them below an article."""
    words = text.split() if text.count(" ") > 3 else re.findall("..", text)
    return ", ".join(word.strip(".,;:!?") for word in words[:8])


def near_misses(english: str, other: str, third: str | None, lang: str, chance: random.Random) -> list[str]:
    """Lines of the other side that are no translation of `english`, though close: each kind for a tenth of the sentences, other numbers
    and names for half of those that have any."""
    kinds: list[tuple[float, Callable[[], str | None]]] = [
        (0.5, lambda: other_numbers(other, chance) if re.search(r"\d", english) and re.search(r"\d", other) else None),
        (0.1, lambda: english.removesuffix(".") + "!"),
        (0.1, lambda: half(other)),
        (0.1, lambda: third),
        (0.5, lambda: other.replace(*NAMES[lang]) if "Tom" in english and NAMES[lang][0] in other else None),
    ]
    made = [make() for share, make in kinds if chance.random() < share]
    return [line for line in made if line is not None and line != other]


def hard(data: Path, lang: str, folder: Path) -> Task:
    """The harder set of one language, written under `folder`."""
    chance = random.Random(lang)
    found: list[tuple[str, str, str | None]] = news(data, lang)
    found = chance.sample(found, min(PAIRS, len(found)))
    about_tom = named(data, lang)
    found += [(one, other, None) for one, other in chance.sample(about_tom, min(NAMED, len(about_tom)))]
    sides: Sides = ({}, {})
    true: list[Pair] = []
    for number, triple in enumerate(found):
        english, other = clean_all(triple[:2])
        if english in sides[0] or other in sides[1]:
            continue
        kind = number % 5  # three in five whole, one of each side alone
        lines = ([english] if kind != 3 else [], [other] if kind != 4 else [])
        lines[1].extend(near_misses(english, other, triple[2], lang, chance) if kind != 3 else [])
        if number % 20 == 0:
            for side, line in zip(lines, (english, other), strict=True):
                side.append(tags(line))
        for side, new in zip(sides, lines, strict=True):
            for line in clean_all(new):
                side.setdefault(line)
        if kind < 3:
            true.append((english, other))
    return _written(lang, folder, sides, true, chance)


def _written(lang: str, folder: Path, sides: Sides, true: list[Pair], chance: random.Random) -> Task:
    places, numbers = [], []
    for side, code in zip(sides, ("en", lang), strict=True):
        lines = list(side)
        chance.shuffle(lines)
        numbers.append({line: number for number, line in enumerate(lines, start=1)})
        places.append(folder / f"{lang}.{code}.txt")
        places[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Task(f"news en-{lang}", lang, places[0], places[1], frozenset((numbers[0][one], numbers[1][other]) for one, other in true))


@dataclass(frozen=True)
class Found:
    """Pairs best first: their margins (n,), and whether they are true (n,); and how many true ones there are."""

    margins: np.ndarray
    right: np.ndarray
    true: int

    def at(self, threshold: float) -> tuple[float, float, float]:
        """Precision, recall and F1 of the pairs above it."""
        above = self.margins > threshold
        right = float(self.right[above].sum())
        return right / max(1, above.sum()), right / self.true, 2 * right / (above.sum() + self.true)

    def precision_at(self, recall: float) -> float:
        """Of the fewest best pairs that have this recall; NaN where it is out of reach."""
        right = np.cumsum(self.right)
        enough = np.flatnonzero(right >= recall * self.true - 1e-9)
        return float(right[enough[0]] / (enough[0] + 1)) if len(enough) else np.nan


def search(task: Task, output: Path, sentence_filters: bool) -> None:
    """Everything up to the candidates."""
    filters = SentenceFilters(**dict.fromkeys(SentenceFilters.USUAL, True)) if sentence_filters else SentenceFilters()
    languages = {"source_lang": "en", "target_lang": task.lang}
    mine.run(MineConfig(source=str(task.english), target=str(task.other), output=str(output), sentence_filters=filters, **languages))


def decide(task: Task, candidates: Path, names: tuple[str, ...]) -> Found:
    filters = PairFilters(**dict.fromkeys(names, True))
    with tempfile.TemporaryDirectory() as output:
        config = FromCandidatesConfig(candidates=str(candidates), output=output, threshold=LOWEST, pair_filters=filters)
        mine.run_from_candidates(config)
        table = pq.read_table(Path(output) / "bitext.parquet")
    lines = zip(table["source_line"].to_pylist(), table["target_line"].to_pylist(), strict=True)
    return Found(table["margin"].to_numpy(), np.array([pair in task.gold for pair in lines], dtype=bool), len(task.gold))


def measure(task: Task, folder: Path, threshold: float) -> dict[str, list[float]]:
    """Setting -> precision, recall, F1, and precision at the recall of no filters."""
    plain, sifted = folder / "plain", folder / "sifted"
    search(task, plain, sentence_filters=False)
    search(task, sifted, sentence_filters=True)
    found = {name: decide(task, plain, names) for name, names in SETTINGS.items()}
    found |= {"sentence filters": decide(task, sifted, ()), "sentence filters, all": decide(task, sifted, SETTINGS["all"])}
    recall = found["none"].at(threshold)[1]
    return {name: [*pairs.at(threshold), pairs.precision_at(recall)] for name, pairs in found.items()}


def show(name: str, table: dict[str, list[float]]) -> None:
    print(f"\n{name}\n| filters | precision | recall | F1 | precision at equal recall |\n|---|---|---|---|---|")
    for setting, figures in table.items():
        print(f"| {setting} | " + " | ".join("–" if np.isnan(figure) else f"{100 * figure:.2f}" for figure in figures) + " |")


def mean(tables: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    return {name: np.mean([table[name] for table in tables], axis=0).tolist() for name in tables[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with train/ and eval/")
    parser.add_argument("--threshold", type=float, default=1.2, help="the usual one of the ratio margin")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sets = {"examples": list(demo())}
        if given.data is not None:
            sets["news with near misses"] = [hard(given.data, lang, Path(folder)) for lang in LANGUAGES]
        figures = {}
        for name, tasks in sets.items():
            tables = {task.name: measure(task, Path(folder) / task.name.replace(" ", "-"), given.threshold) for task in tasks}
            for task, table in tables.items():
                show(task, table)
            show(f"{name}, mean", mean(list(tables.values())))
            figures |= {**tables, name: mean(list(tables.values()))}
    if given.json is not None:
        given.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
