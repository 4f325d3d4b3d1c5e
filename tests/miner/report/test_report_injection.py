"""No text of a file that a report reads becomes markup: every string and every free key is replaced by markup in turn."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from command import miner
from report_pages import Page, loop_figures, suite_figures, write_figures, write_journal

from miner.io import records, storage

ATTACKS = ("<script>alert(1)</script>", "\"'><img src=x onerror=alert(1)><!--", "</style></svg><a href='javascript:alert(1)'>x</a>")
RUN = {
    "pairs": {"en-fr": {"pairs": 3, "threshold": 1.0, "unique": {"source": 3, "target": 3}, "seconds": {"search": 1.0}}},
    "corpora": {"en": {"lang": "eng", "unique": 3}},
    "skipped": {"file": "reason"},
    "seconds": 1.0,
}
POINT = {"threshold": 1.0, "precision": 0.5, "recall": 0.5, "f1": 0.5}
BUCC = {
    "task": "bucc",
    "pairs": {"fr-en": {"gold": {"test": 5}, "f1": 0.5, "dev": POINT, "test": POINT, "oracle": POINT, "curve": [POINT, POINT]}},
    "mean": {"f1": 0.5},
}
MAP = {
    "task": "map",
    "languages": {"eng": {"n": 2, "cosine": 0.5}, "deu": {"n": 2, "cosine": 0.6}},
    "translations": [[1.0, 0.5], [0.5, 1.0]],
    "non_translations": [[1.0, 0.5], [0.5, 1.0]],
    "has_pairs": False,
    "map": {"languages": ["eng", "deu"], "pca": [[[0, 0], [1, 1]]] * 2, "tsne": [[[0, 0], [1, 1]]] * 2},
}
STS = {"task": "sts", "tracks": {"one": {"spearman": 0.5}, "two": {"spearman": 0.7}}, "mean": 0.6, "all": 0.6}
FIGURES = {
    "run.json": RUN,
    "loop.json": loop_figures(),
    "suite.json": suite_figures(),
    "bucc.json": BUCC,
    "map.json": MAP,
    "sts.json": STS,
}


def attacks_on(value: Any, attack: str) -> Iterator[Any]:
    """Yield copies of a JSON value in each of which one string or one key is the attack."""
    if isinstance(value, str):
        yield attack
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in attacks_on(part, attack))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield {(attack if name == key else name): deepcopy(other) for name, other in value.items()}
            yield from ({**value, key: changed} for changed in attacks_on(part, attack))


def check_page(path: Path) -> None:
    page = Page(path)
    allowed = {name for name, _, _ in page.attributes} | {element.partition(".")[0] for element in page.texts}
    assert not allowed & {"img", "iframe", "object", "base", "link", "form"}
    assert len(page.texts["script"]) == 1, "its own script"
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    links = [value for _, name, value in page.attributes if name in ("href", "src", "xlink:href")]
    assert not [link for link in links if not link.startswith(("#", "data:", "pairs/"))]


@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "suite.json",
        "sts.json",
        pytest.param("loop.json", marks=pytest.mark.slow),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("bucc.json", "map.json")),
    ],
)
def test_no_field_becomes_markup(name: str, tmp_path: Path) -> None:
    """Many of the changed files are refused; each that is shown is shown as text."""
    num_pages = 0
    for number, figures in enumerate(attacks_on(FIGURES[name], ATTACKS[0])):
        folder = tmp_path / str(number)
        folder.mkdir()
        write = records.write if name in ("run.json", "loop.json") else storage.write_json
        write(str(folder / name), figures)
        result = miner("report", folder)
        assert result.exit_code in (0, 1), result.output
        if result.exit_code == 0 and (folder / "report.html").exists():
            check_page(folder / "report.html")
            num_pages += 1
    assert num_pages > 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_names_become_no_markup(attack: str, tmp_path: Path) -> None:
    folder = tmp_path / attack.replace("/", "|")
    folder.mkdir()
    write_journal(folder, {"step": 1, "loss": 1.0, attack: 0.5}, {"step": 2, "loss": 0.5, attack: 0.25})
    write_figures(
        folder / f"{attack.replace('/', '|')}.json", {**STS, "tracks": {attack: {"spearman": 0.5}, f"{attack} 2": {"spearman": 0.7}}}
    )
    assert miner("report", folder).exit_code == 0
    check_page(folder / "report.html")
    assert "alert(1)" in (folder / "report.html").read_text()
