"""Pages of `miner report` for the tests: how to write one, how to read it, and figures to show."""

import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import bitexts

from miner.evaluation.bitext_precision import KnownPairs
from miner.io import storage
from miner.report import build
from miner.text.normalise import clean

HOSTILE_TEXTS = [
    "<script>document.title = 'broken in'</script>",
    "</script><img src=x onerror=\"document.title='broken in'\">",
    "\"quotes\" & 'apostrophes' &amp; <!-- comment --> ]]> </style>",
    "שלום עולם, (abc) 123! ‏مرحبا بالعالم",
    "👩‍👩‍👧 🏳️‍🌈 emoji 😀 $\\frac{1}{2}$ `code` {{7*7}} %s",
    "ten thousand " + "x" * 10_000,
    "javascript:alert(1) https://example.com/track.png url(https://example.com)",
]


class Page(HTMLParser):
    """A parsed page: attributes, and the text of each element by tag and class. Fails if the page is not well-formed."""

    VOID_TAGS = ("meta", "input")

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.open_elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []  # (tag, name, value)
        self.texts: dict[str, list[str]] = {}
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open_elements == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        element = ".".join([tag, *[value or "" for name, value in attrs if name == "class"]])
        self.texts.setdefault(element, []).append("")
        if tag not in self.VOID_TAGS:
            self.open_elements.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_elements.pop().partition(".")[0] == tag

    def handle_data(self, data: str) -> None:
        for element in self.open_elements:
            self.texts[element][-1] += data


def write_report(folder: Path, known_pairs: KnownPairs | None = None, **options: int) -> Path:
    uri = build.write(str(folder), known_pairs, **options)
    assert uri == f"{folder}/report.html"
    return Path(uri)


def write_mined(folder: Path, pairs: Sequence[bitexts.Pair]) -> Path:
    """Write a directory of `miner mine` with these pairs."""
    return bitexts.write(folder, pairs, margin="ratio", threshold=1.0)


def write_hostile_mined(folder: Path) -> Path:
    """Write mined pairs of HOSTILE_TEXTS, each with its number and itself."""
    texts = [clean(text) for text in HOSTILE_TEXTS]
    return write_mined(folder, [(2 - number / 10, text, f"{number} {text}") for number, text in enumerate(texts)])


def write_journal(folder: Path, *entries: Mapping[str, float]) -> None:
    """Write the journal of a training run."""
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def write_figures(path: Path, figures: Any) -> None:
    """Write JSON as the commands do, with sorted keys."""
    storage.write_json(str(path), figures)


def classification_figures(accuracy_gain: float = 0.0) -> dict[str, Any]:
    """Return the figures of `miner eval classification`."""
    accuracies = {"eng": 0.6, "deu": 0.8}
    rows = {lang: {"n": 50, "accuracy": share + accuracy_gain, "macro_f1": share, "majority": 0.2} for lang, share in accuracies.items()}
    return {
        "task": "classification",
        "trained_on": 9,
        "classes": 2,
        "languages": rows,
        "mean": {"accuracy": 0.7 + accuracy_gain, "macro_f1": 0.7},
    }


def suite_figures() -> dict[str, Any]:
    """Return the figures of two encoders, the second with a hostile name."""
    values = {"first": 0.7, "second": 0.8}
    comparison = {side: {"value": value, "low": value - 0.05, "high": value + 0.05} for side, value in values.items()}
    comparison["difference"] = {"value": 0.1, "low": 0.04, "high": 0.16}
    score = "topics: accuracy"
    first, second = "builtin", HOSTILE_TEXTS[0]
    return {
        "task": "suite",
        "order": [first, second],
        "encoders": {
            first: {"topics": {"seconds": 1.5, **classification_figures()}},
            second: {"topics": {"seconds": 2, **classification_figures(0.1)}},
        },
        "scores": {first: {score: 0.7, "alignment: uniformity": -3.0}, second: {score: 0.8, "alignment: uniformity": -3.5}},
        "comparisons": {score: {**comparison, "p": 0.01}, "alignment: uniformity": {**comparison, "p": 0.5}},
    }


def loop_figures() -> dict[str, Any]:
    """Return the figures of a loop of three rounds; the last one had too few pairs to train on."""

    def example(source: str) -> dict[str, Any]:
        return {"languages": "eng-deu", "margin": 1.25, "source_text": source, "target_text": "Satz"}

    def round_figures(number: int) -> dict[str, Any]:
        pairs = {"eng-deu": {"training": 100 + number, "precision": 0.9}, "eng-rus": {"training": 50}}
        gained = {"pairs": 12 + number, "examples": [example(HOSTILE_TEXTS[number])]}
        lost = {"pairs": 3, "examples": [example("lost one")]}
        dev = {"deu": 0.5 + number / 10, "rus": 0.4}
        return {
            "selection": {"training": 150 + number, "pairs": pairs},
            "changes": {"jaccard": None if not number else 0.5, "gained": gained, "lost": lost},
            "dev": dev,
            "test": dev,
            "drift": 0.1,
            "kept": number != 1,
        }

    rounds = [round_figures(number) for number in range(3)]
    for name in ("dev", "test", "drift"):
        del rounds[-1][name]
    start = {"dev": {"deu": 0.4, "rus": 0.4}, "tatoeba": 0.3}
    return {"start": start, "rounds": rounds, "best": "round-00", "latest": "round-00", "stop_reason": "dev is no better"}
