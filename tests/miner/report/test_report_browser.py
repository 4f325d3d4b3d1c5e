"""The page in a browser: it requests nothing, shows hostile text as text, and saves marks that can be read back."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import output_of
from report_pages import (
    HOSTILE_TEXTS,
    loop_figures,
    suite_figures,
    write_figures,
    write_hostile_mined,
    write_journal,
    write_mined,
    write_report,
)

from miner.evaluation.bitext_precision import read_marks
from miner.report.maps import CELL_PIXELS
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
    """A page with its requests and its console messages."""

    def __init__(self, chromium: Any, path: Path, **settings: Any) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.page = chromium.new_context(**settings).new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.uri = path.as_uri()
        self.page.goto(self.uri)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_is_harmless_at_any_width(width: str, scheme: str, chromium: Any, tmp_path: Path) -> None:
    tab = Tab(chromium, write_report(write_hostile_mined(tmp_path)), viewport={"width": WIDTHS[width], "height": 800}, color_scheme=scheme)
    assert tab.errors == []
    assert tab.requests == [tab.uri]
    assert tab.page.title() == "eng_Latn – deu_Latn: 7 pairs"
    sentences = tab.page.locator(".pair .text").all_text_contents()
    assert sorted(sentences) == sorted(text for number, line in enumerate(map(clean, HOSTILE_TEXTS)) for text in (line, f"{number} {line}"))
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    paper = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, paper.removeprefix("rgb(").rstrip(")").split(","))) < 384) == (scheme == "dark")
    ink = tab.page.locator("figure svg text").first.evaluate("element => getComputedStyle(element).fill")
    assert (sum(map(int, ink.removeprefix("rgb(").rstrip(")").split(","))) > 384) == (scheme == "dark")


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_of_runs_and_evaluations_request_nothing_and_fit(width: str, chromium: Any, tmp_path: Path) -> None:
    steps = [{"step": step, "loss": 2 / step, "lr": 1e-3} for step in range(1, 5)]
    write_journal(tmp_path, *steps)
    for name, figures in (("loop", loop_figures()), ("suite", suite_figures()), ("map", map_figures())):
        write_figures(tmp_path / f"{name}.json", figures)
    tab = Tab(chromium, write_report(tmp_path), viewport={"width": WIDTHS[width], "height": 800})
    assert (tab.errors, tab.requests) == ([], [tab.uri])
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[width]
    assert tab.page.locator(".wide > figure svg image").count() == 1  # the heat map, which the policy allows
    heat_map_width = tab.page.locator(".wide > figure").evaluate("element => element.getBoundingClientRect().width")
    assert heat_map_width >= 45 * CELL_PIXELS  # it scrolls within its section, so its labels are readable
    assert "t-SNE" in tab.page.locator("h2").all_text_contents()


def map_figures() -> dict[str, Any]:
    """Return figures of so many languages that their heat map is wider than a phone."""
    points = [[[row + 0.1 * lang, row * lang] for row in range(5)] for lang in range(2)]
    languages = {name: {"n": 5, "cosine": 0.75} for name in (HOSTILE_TEXTS[0], "deu", *(f"lang{number}" for number in range(43)))}
    cells = np.full((len(languages), len(languages)), 0.5) + 0.5 * np.eye(len(languages))
    projection = {"languages": list(languages)[:2], "pca": points, "tsne": points}
    return {"languages": languages, "translations": cells.tolist(), "others": cells.tolist(), "map": projection}


def test_marks_are_stored_downloaded_and_read_back(chromium: Any, tmp_path: Path) -> None:
    folder = write_mined(tmp_path, [(2 - row / 100, f"{row} {HOSTILE_TEXTS[row % 7]}"[:200].strip(), f"Satz {row}") for row in range(40)])
    tab = Tab(chromium, write_report(folder))
    page = tab.page
    assert page.locator("#download").is_disabled()
    pairs = page.locator(".pair")
    marks = {0: "right", 3: "wrong", 39: "right"}
    for row, mark in marks.items():
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
    texts = [pairs.nth(row).locator(".text").all_text_contents() for row in marks]
    expected = {tuple(sentence_ids(pair).tolist()): mark == "right" for pair, mark in zip(texts, marks.values(), strict=True)}
    assert read_marks(str(tmp_path / "marks.tsv")).right == expected
    output_of("eval", "bitext", folder, "--gold", tmp_path / "marks.tsv")
    assert "Marks" in (folder / "report.html").read_text()
    page.locator("#clear").click()
    assert page.locator("output").text_content() == "0 of 40 marked"
    assert tab.errors == []
