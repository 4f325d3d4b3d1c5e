"""The page in a browser: it requests nothing, shows hostile text as text, and saves marks that can be read back."""

import gzip
import json
import random
import shutil
from collections.abc import Iterator
from itertools import combinations_with_replacement
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

from miner.evaluation.marks import read_marks
from miner.io import records
from miner.report.maps import CELL_PIXELS
from miner.text.normalise import clean, sentence_ids

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")

ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
FRENCH = ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix"]
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
    records.write(str(tmp_path / "loop.json"), loop_figures())
    for name, figures in (("suite", suite_figures()), ("map", map_figures())):
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
    return {
        "task": "map",
        "languages": languages,
        "translations": cells.tolist(),
        "non_translations": cells.tolist(),
        "has_pairs": False,
        "map": projection,
    }


def write_forty(tmp_path: Path) -> Path:
    return write_mined(tmp_path, [(2 - row / 100, f"{row} {HOSTILE_TEXTS[row % 7]}"[:200].strip(), f"Satz {row}") for row in range(40)])


def download_marks(page: Any, path: Path) -> dict[tuple[int, int], str]:
    with page.expect_download() as download:
        page.locator("#download").click()
    assert download.value.suggested_filename == "marks.tsv"
    download.value.save_as(path)
    return dict(read_marks([str(path)]).files[0].marks)


def ids_of(page: Any, row: int) -> tuple[int, int]:
    source, target = sentence_ids(page.locator(".pair").nth(row).locator(".text").all_text_contents()).tolist()
    return source, target


def test_marks_are_stored_downloaded_and_read_back(chromium: Any, tmp_path: Path) -> None:
    folder = write_forty(tmp_path)
    tab = Tab(chromium, write_report(folder))
    page = tab.page
    assert page.locator("#download").is_disabled()
    pairs = page.locator(".pair")
    for row, mark in {0: "right", 3: "wrong", 39: "right", 5: "right"}.items():
        pairs.nth(row).get_by_label(mark).check()
    pairs.nth(5).get_by_label("unsure").check()
    marks = {0: "right", 3: "wrong", 39: "right", 5: "unsure"}
    assert page.locator("output").text_content() == "4 of 40 marked"
    page.reload()
    assert page.locator("output").text_content() == "4 of 40 marked"
    assert download_marks(page, tmp_path / "marks.tsv") == {ids_of(page, row): mark for row, mark in marks.items()}
    output_of("eval", "bitext", folder, "--gold", tmp_path / "marks.tsv")
    assert "Marks" in (folder / "report.html").read_text()
    page.locator("#clear").click()
    assert page.locator("output").text_content() == "0 of 40 marked"
    assert tab.errors == []


def test_keys_mark_pair_by_pair_and_margins_show_afterwards(chromium: Any, tmp_path: Path) -> None:
    tab = Tab(chromium, write_report(write_forty(tmp_path)))
    page = tab.page
    margins = page.locator(".pair legend")
    assert [margins.nth(row).is_visible() for row in range(40)] == [False] * 40
    shown = [float(text) for text in margins.all_text_contents()]
    assert sorted(shown) != shown != sorted(shown, reverse=True)  # in random order
    assert sorted(shown) == pytest.approx([2 - row / 100 for row in reversed(range(40))])
    page.keyboard.press("2")  # no pair has the focus: this only moves there
    assert page.locator("output").text_content() == "0 of 40 marked"
    for key in "1231":
        assert page.evaluate("document.activeElement.getBoundingClientRect().bottom <= innerHeight")
        page.keyboard.press(key)
    page.keyboard.press("Control+1")
    page.keyboard.press("x")
    assert page.locator("output").text_content() == "4 of 40 marked"
    assert [margins.nth(row).is_visible() for row in range(5)] == [True] * 4 + [False]
    page.locator(".pair").nth(9).locator(".text").first.click()
    page.keyboard.press("2")
    expected = {0: "right", 1: "wrong", 2: "unsure", 3: "right", 9: "wrong"}
    assert download_marks(page, tmp_path / "marks.tsv") == {ids_of(page, row): mark for row, mark in expected.items()}
    assert page.evaluate("[...document.querySelectorAll('.pair')].indexOf(document.activeElement)") != 9
    assert tab.errors == []


@pytest.fixture
def mined(toy_encoder: Path, tmp_path: Path) -> Path:
    """All pairs of two corpora in which 140 sentences have a translation, on the same line, and 40 on each side have none."""
    sentences = list(combinations_with_replacement(range(10), 4))
    random.Random(0).shuffle(sentences)
    for name, words, rows in (("en", ENGLISH, sentences[:180]), ("fr", FRENCH, [*sentences[:140], *sentences[180:220]])):
        (tmp_path / name).write_text("".join(" ".join(words[number] for number in row) + "\n" for row in rows))
    options = ("--encoder", toy_encoder, "--threshold", "-inf", "--output", tmp_path / "mined")
    output_of("mine", tmp_path / "en", tmp_path / "fr", "--source-lang", "en", "--target-lang", "fr", *options)
    return tmp_path / "mined"


def test_marks_of_a_page_choose_a_threshold_and_plan_the_next_page(chromium: Any, mined: Path, tmp_path: Path) -> None:
    """A reviewer who knows the translations marks 100 pairs by keys."""
    english, french = ((tmp_path / name).read_text().splitlines() for name in ("en", "fr"))
    right = set(zip(english[:140], french[:140], strict=True))
    output_of("report", mined)
    page = Tab(chromium, mined / "report.html").page
    sampled = texts_of(page)
    page.keyboard.press("1")
    for pair in sampled:
        page.keyboard.press("1" if pair in right else "2")
    assert page.locator("output").text_content() == "100 of 100 marked"
    marks = download_marks(page, tmp_path / "marks.tsv")
    assert list(marks.values()) == ["right" if pair in right else "wrong" for pair in sampled]
    options = ("--threshold", "auto", "--precision", "0.9", "--gold", tmp_path / "marks.tsv", "--json", tmp_path / "figures.json")
    output_of("mine", "--from-candidates", mined, *options, "--output", tmp_path / "chosen")
    precision = json.loads((tmp_path / "figures.json").read_text())["choice"]["precision"]
    with gzip.open(tmp_path / "chosen" / "bitext.tsv.gz", "rt") as file:
        is_right = [tuple(line.rstrip("\n").split("\t")[1:]) in right for line in file]
    assert precision["low"] <= np.mean(is_right) <= precision["high"]
    assert 130 < len(is_right) < 165
    output_of("report", mined, "--gold", tmp_path / "marks.tsv", "--sample", "20")
    following = texts_of(Tab(chromium, mined / "report.html").page)
    assert len(following) == 20
    assert not set(sampled) & set(following)


def texts_of(page: Any) -> list[tuple[str, str]]:
    sentences = page.locator(".pair .text").all_text_contents()
    return list(zip(sentences[::2], sentences[1::2], strict=True))
