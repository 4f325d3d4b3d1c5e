"""Reports on mined pairs: the page is safe and self-contained, and its charts show the right numbers."""

import base64
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from command import error_of, miner, output_of
from report_pages import HOSTILE_TEXTS, Page, write_figures, write_hostile_mined, write_mined, write_report

from miner.config.choices import MARGINS
from miner.config.probability import PROBABILITY
from miner.evaluation.marks import read_marks
from miner.io import records, stages, table_files
from miner.mining.gold import GoldPairs
from miner.mining.histogram import BIN_WIDTH, Histogram
from miner.mining.review import count_levels, find_marked
from miner.mining.writers import PARQUET
from miner.report.marking import draw_sample
from miner.report.mined_pairs import MinedBitext
from miner.text.normalise import clean, sentence_ids


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    folder = write_hostile_mined(tmp_path)
    page = Page(write_report(folder))
    sentences = page.texts["bdi.text"]
    for number, text in enumerate(map(clean, HOSTILE_TEXTS)):
        assert text in sentences
        assert f"{number} {text}" in sentences
    assert "img" not in page.texts
    assert len(page.texts["script"]) == 1
    policy = next(value for tag, name, value in page.attributes if (tag, name) == ("meta", "content"))
    assert f"'sha256-{base64.b64encode(hashlib.sha256(page.texts['script'][0].encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; ")


def test_page_refers_only_to_itself(tmp_path: Path) -> None:
    page = Page(write_report(write_hostile_mined(tmp_path)))
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("href", "src", "action", "srcset", "data", "poster"):
            assert tag in ("a", "use"), (tag, name, value)
            assert value[0] == "#"
            assert value[1:] in ids
        if "url(" in value and tag != "meta":
            assert value.split("url(")[1].rstrip(")")[1:] in ids
    assert "url(" not in page.texts["style"][0]
    assert "@import" not in page.texts["style"][0]


@pytest.mark.slow
def test_report_is_reproducible_across_processes(tmp_path: Path) -> None:
    folder = write_hostile_mined(tmp_path)
    rows = {f"l{number:02d}": {"n": 100, "mean": number / 100} for number in range(20)}  # bars with intervals
    write_figures(folder / "tatoeba.json", {"task": "tatoeba", "languages": rows, "average": {}})
    first = write_report(folder).read_bytes()
    code = f"from miner.report.build import write; write({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "7", "HOME": str(tmp_path / "home")}, check=True, timeout=120)
    assert (folder / "report.html").read_bytes() == first


def test_gold_separates_right_and_wrong_pairs(tmp_path: Path) -> None:
    pairs = [(1.9, "a", "A"), (1.8, "b", "B"), (1.5, "c", "C"), (1.2, "d", "D")]
    gold_ids = {tuple(sentence_ids([source, target]).tolist()) for _, source, target in (pairs[0], pairs[2])}
    folder = write_mined(tmp_path, pairs)
    gold = GoldPairs(frozenset(gold_ids), num_missing=2)
    mined = MinedBitext(str(folder), stages.read_manifest(str(folder)))
    assert gold.is_gold(*mined.ids()).tolist() == [True, False, True, False]
    page = Page(write_report(folder, gold))
    legend = [text for element, texts in page.texts.items() if element.startswith("span.key") for text in texts]
    assert {"right", "wrong", "precision", "recall", "F1"} <= set(legend)
    assert any("Against 4 gold pairs" in text for text in page.texts["p"])
    # F1 of the best 1 to 4 pairs: 2/5, 2/6, 4/7, 4/8. The best is that of three pairs, above a threshold midway between 1.5 and 1.2.
    assert any("The best F1 is 0.5714, above 1.3500" in text for text in page.texts["span"])


def test_gold_and_probabilities_give_a_reliability_diagram(tmp_path: Path) -> None:
    pairs = [(1.9, "a", "A"), (1.8, "b", "B"), (1.5, "c", "C"), (1.2, "d", "D")]
    gold_ids = {tuple(sentence_ids([source, target]).tolist()) for _, source, target in pairs[:2]}
    folder = write_mined(tmp_path, pairs)
    table = table_files.read_table(str(folder / PARQUET))
    probabilities = pa.array([0.98, 0.92, 0.7, 0.3])
    table_files.write_table(str(folder / PARQUET), table.append_column(PROBABILITY, probabilities))
    page = Page(write_report(folder, GoldPairs(frozenset(gold_ids))))
    # |0.95 - 1| of two pairs, |0.7 - 0| and |0.3 - 0| of one each.
    assert any("The expected calibration error is 0.275" in text for text in page.texts["span"])
    assert [cell for texts in page.texts.values() for cell in texts if cell in ("0.95", "0.70", "0.30")] == ["0.30", "0.70", "0.95"]


def test_histogram_counts_every_margin_once() -> None:
    margins = np.random.default_rng(0).normal(1.2, 0.2, 5000)
    histogram = Histogram()
    for batch in np.array_split(margins, 7):
        histogram.add(batch)
    low, high = histogram.bounds()
    assert low <= margins.min() < low + BIN_WIDTH
    assert high - BIN_WIDTH <= margins.max() < high
    edges = low + 25 * BIN_WIDTH * np.arange(np.ceil((high - low) / (25 * BIN_WIDTH)) + 1)
    assert histogram.rebin(edges).counts.tolist() == np.histogram(margins, edges)[0].tolist()
    assert histogram.rebin(edges).counts.sum() == 5000


def draw(num_pairs: int, size: int, reviewed: Sequence[int] = (), right: Sequence[int] = ()) -> list[int]:
    """Draw a sample where all reviewed rows are marked; those in `right` are right."""
    marked = find_marked({(row, row): float(row in right) for row in reviewed}, ((row, row) for row in range(num_pairs)))
    is_reviewed = np.isin(np.arange(num_pairs), reviewed)
    return draw_sample(count_levels(marked, np.array([num_pairs])), is_reviewed, size, seed=0).tolist()


def test_first_sample_has_equally_many_pairs_of_each_level_in_random_order() -> None:
    rows = draw(1003, 100)
    starts = [0, 100, 200, 300, 401, 501, 601, 702, 802, 902, 1003]
    assert np.histogram(rows, starts)[0].tolist() == [10] * 10
    assert len(set(rows)) == 100
    assert abs(np.corrcoef(np.arange(100), rows)[0, 1]) < 0.3
    assert set(rows) < set(draw(1003, 200))
    assert sorted(draw(3, 100)) == [0, 1, 2]


def test_next_sample_is_drawn_where_marks_disagree_and_repeats_no_pair() -> None:
    first = draw(1000, 100)
    second = draw(1000, 100, reviewed=first, right=[row for row in first if row < 800 or row % 2])
    assert not set(first) & set(second)
    by_level = np.histogram(second, np.arange(0, 1001, 100))[0]
    assert by_level[8:].min() > 3 * by_level[:8].max()
    assert draw(50, 100, reviewed=range(50)) == []


def test_form_has_as_many_pairs_as_asked_and_none_that_is_marked(tmp_path: Path) -> None:
    folder = write_mined(tmp_path / "mined", [(2 - row / 100, f"source {row}", f"target {row}") for row in range(50)])
    (tmp_path / "marks.tsv").write_text(
        "mark\tsource\ttarget\n" + "".join(f"right\tsource {row}\ttarget {row}\n" for row in range(0, 50, 2))
    )
    marks = read_marks([str(tmp_path / "marks.tsv")])
    texts = Page(write_report(folder, marks, sample_pairs=20)).texts["bdi.text"]
    numbers = [int(text.split()[1]) for text in texts[-40::2]]
    assert len(set(numbers)) == 20
    assert all(number % 2 for number in numbers)
    assert [text.replace("source", "target") for text in texts[-40::2]] == texts[-39::2]
    output_of("report", folder, "--gold", tmp_path / "marks.tsv", "--sample", "3")
    assert len(Page(folder / "report.html").texts["div.pair"]) == 3


@pytest.fixture(scope="module")
def toy_mined(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of `miner mine`, with candidates."""
    folder = tmp_path_factory.mktemp("toy")
    rng = np.random.default_rng(1)
    words = [line.split() for line in ("one two three four five six seven eight", "un deux trois quatre cinq six sept huit")]
    for name, vocabulary in zip(("en", "fr"), words, strict=True):
        (folder / name).write_text("".join(" ".join(rng.choice(vocabulary, 3)) + "\n" for _ in range(60)))
    options = ("--source-lang", "en", "--target-lang", "fr", "--encoder", toy_encoder, "--output", folder / "out")
    result = miner("mine", folder / "en", folder / "fr", *options, report=True)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f", {folder / 'out' / 'report.html'}\n")
    return folder / "out"


def test_best_margins_are_those_of_every_source(toy_mined: Path) -> None:
    table = table_files.read_table(str(next((toy_mined / "candidates").glob("*.parquet"))))
    best_margins: dict[int, float] = {}
    for row in table.to_pylist():
        ratio = MARGINS["ratio"].score(row["similarity"], (row["source_mean"] + row["target_mean"]) / 2)
        late = MARGINS["ratio"].score(row["late_similarity"], (row["source_late_mean"] + row["target_late_mean"]) / 2)
        margin = (ratio + 3 * late) / 4
        best_margins[row["source_id"]] = max(margin, best_margins.get(row["source_id"], -1))
    histogram = MinedBitext(str(toy_mined), stages.read_manifest(str(toy_mined))).best_margins()
    assert histogram is not None
    assert histogram.bins == Counter(int(np.floor(margin / BIN_WIDTH)) for margin in best_margins.values())


def test_mine_writes_a_report_unless_disabled(toy_mined: Path, tmp_path: Path) -> None:
    command = ("mine", "--from-candidates", toy_mined, "--output", tmp_path / "again")
    assert "report.html" not in output_of(*command)
    assert not (tmp_path / "again" / "report.html").exists()
    assert miner(*command, report=True).exit_code == 0
    titles = Page(tmp_path / "again" / "report.html").texts["h2"]
    assert titles == ["Margins", "Yield", "Lengths", "Right or wrong?"]
    assert "Hubs" in Page(toy_mined / "report.html").texts["h2"]


def test_bitext_without_pairs_has_a_report(tmp_path: Path) -> None:
    assert Page(write_report(write_mined(tmp_path, []))).texts["h2"] == ["Margins"]


def test_bitext_of_one_pair_has_every_section(tmp_path: Path) -> None:
    gold = GoldPairs(frozenset([tuple(sentence_ids(["a", "b"]).tolist())]))
    titles = Page(write_report(write_mined(tmp_path, [(1.25, "a", "b")]), gold)).texts["h2"]
    assert titles == ["Margins", "Precision and recall", "Yield", "Lengths", "Right or wrong?"]


def test_header_states_how_pairs_were_mined(tmp_path: Path) -> None:
    folder = write_mined(tmp_path, [(1.25, "a", "b")])
    manifest = records.read(str(folder / "manifest.json"), dict)
    shares = {"precision": {"value": 0.95, "low": 0.93, "high": 0.965}, "recall": {"value": 0.8, "low": 0.75, "high": 0.84}}
    manifest["details"] |= {"choice": {"by": "planted", "threshold": 1.2, "num_evidence": 400, **shares}, "dropped": {"near_copy": 1200}}
    records.write(str(folder / "manifest.json"), manifest)
    facts = Page(write_report(folder)).texts["p"][:3]
    assert facts[0] == "margin ratio, threshold 1"
    shares = "expected precision 0.9500 (0.9300-0.9650), recall 0.8000 (0.7500-0.8400), with 95 % confidence"
    assert facts[1] == f"threshold chosen by 400 planted sentences without a translation: {shares}"
    assert facts[2] == "dropped: 1,200 near copy"


@pytest.mark.parametrize("broken", ["languages", "pairs"])
def test_broken_directory_is_an_error_in_one_line(broken: str, tmp_path: Path) -> None:
    folder = write_mined(tmp_path, [(1.25, "a", "b")])
    manifest = records.read(str(folder / "manifest.json"), dict)
    if broken == "pairs":
        (folder / "bitext.parquet").write_bytes((folder / "bitext.parquet").read_bytes()[:-20])
    manifest["details"].pop(broken, None), manifest["config"].pop(broken, None)
    records.write(str(folder / "manifest.json"), manifest)
    before = sorted(tmp_path.iterdir())
    assert str(folder) in error_of("report", folder)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_directory_without_results_is_an_error(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "nothing to show" in error_of("report", folder)
    assert list(tmp_path.iterdir()) == []


def test_run_writes_a_report_for_every_pair(toy_mined: Path, toy_encoder: Path, tmp_path: Path) -> None:
    corpora = {name: str(toy_mined.parent / name) for name in ("en", "fr")}
    config = {"output": str(tmp_path / "out"), "corpora": corpora, "pairs": "all", "encoder": str(toy_encoder)}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    result = miner("run", tmp_path / "run.yaml", report=True)
    assert result.exit_code == 0, result.output
    assert "Hubs" in Page(tmp_path / "out" / "pairs" / "en-fr" / "report.html").texts["h2"]
    overview = Page(tmp_path / "out" / "report.html")
    assert overview.texts["h2"] == ["Pairs", "Corpora"]
    assert ("a", "href", "pairs/en-fr/report.html") in overview.attributes
    assert {"en-fr", "en", "fr"} <= set(overview.texts["td"])
    before = (tmp_path / "out" / "report.html").read_bytes()
    output_of("report", tmp_path / "out")
    assert (tmp_path / "out" / "report.html").read_bytes() == before
