"""The page in a browser: it asks for nothing, shows hostile text as text, and gives out marks that can be read back."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import told
from test_report import HOSTILE, hostile, mined, report
from test_report_figures import journal, loop, suite, write

from miner.evaluation.bitext_precision import read_marks
from miner.report.maps import CELL
from miner.text.normalise import clean, sentence_ids

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

WIDTHS = {"phone": 360, "desktop": 1280}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tab:
    """A page that remembers what it asked for and complained of."""

    def __init__(self, chromium: Any, path: Path, **settings: Any) -> None:
        self.asked: list[str] = []
        self.errors: list[str] = []
        self.page = chromium.new_context(**settings).new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.uri = path.as_uri()
        self.page.goto(self.uri)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_does_nothing_at_any_width(width: str, scheme: str, chromium: Any, tmp_path: Path) -> None:
    tab = Tab(chromium, report(hostile(tmp_path)), viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    assert tab.errors == []
    assert tab.asked == [tab.uri]
    assert tab.page.title() == "eng_Latn – deu_Latn: 7 pairs"
    shown = tab.page.locator(".pair .text").all_text_contents()
    assert sorted(shown) == sorted(text for number, line in enumerate(map(clean, HOSTILE)) for text in (line, f"{number} {line}"))
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").rstrip(")").split(","))) < 384) == (scheme == "dark")
    ink = tab.page.locator("figure svg text").first.evaluate("element => getComputedStyle(element).fill")
    assert (sum(map(int, ink.removeprefix("rgb(").rstrip(")").split(","))) > 384) == (scheme == "dark")


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_of_runs_and_evaluations_are_quiet_and_fit(width: str, chromium: Any, tmp_path: Path) -> None:
    steps = [{"step": step, "loss": 2 / step, "lr": 1e-3} for step in range(1, 5)]
    journal(tmp_path, *steps)
    for name, figures in (("loop", loop()), ("suite", suite()), ("map", plane())):
        write(tmp_path / f"{name}.json", figures)
    tab = Tab(chromium, report(tmp_path), viewport={"width": WIDTHS[width], "height": 800})
    assert (tab.errors, tab.asked) == ([], [tab.uri])
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    assert tab.page.locator(".wide > figure svg image").count() == 1  # the heat map, which the policy lets through
    wide = tab.page.locator(".wide > figure").evaluate("element => element.getBoundingClientRect().width")
    assert wide >= 45 * CELL  # it scrolls in its section, so that labels can be read
    assert "t-SNE" in tab.page.locator("h2").all_text_contents()


def plane() -> dict[str, Any]:
    """Of so many languages that their heat map is wider than a phone."""
    points = [[[row + 0.1 * lang, row * lang] for row in range(5)] for lang in range(2)]
    near = {name: {"n": 5, "cosine": 0.75} for name in (HOSTILE[0], "deu", *(f"lang{number}" for number in range(43)))}
    cells = np.full((len(near), len(near)), 0.5) + 0.5 * np.eye(len(near))
    drawn = {"languages": list(near)[:2], "pca": points, "tsne": points}
    return {"languages": near, "translations": cells.tolist(), "others": cells.tolist(), "map": drawn}


def test_marks_are_kept_downloaded_and_read_back(chromium: Any, tmp_path: Path) -> None:
    folder = mined(tmp_path, [(2 - row / 100, f"{row} {HOSTILE[row % 7]}"[:200].strip(), f"Satz {row}") for row in range(40)])
    tab = Tab(chromium, report(folder))
    page = tab.page
    assert page.locator("#download").is_disabled()
    pairs = page.locator(".pair")
    given = {0: "right", 3: "wrong", 39: "right"}
    for row, mark in given.items():
        pairs.nth(row).get_by_label(mark).check()
    pairs.nth(5).get_by_label("right").check()
    pairs.nth(5).get_by_label("unsure").check()
    assert page.locator("output").text_content() == "3 of 40 marked"
    page.reload()
    assert page.locator("output").text_content() == "3 of 40 marked"
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "marks.tsv"
    download.value.save_as(tmp_path / "marks.tsv")
    texts = [pairs.nth(row).locator(".text").all_text_contents() for row in given]
    expected = {tuple(sentence_ids(pair).tolist()): mark == "right" for pair, mark in zip(texts, given.values(), strict=True)}
    assert read_marks(str(tmp_path / "marks.tsv")).right == expected
    told("eval", "bitext", folder, "--gold", tmp_path / "marks.tsv")
    assert "Marks" in (folder / "report.html").read_text()
    page.locator("#forget").click()
    assert page.locator("output").text_content() == "0 of 40 marked"
    assert tab.errors == []
