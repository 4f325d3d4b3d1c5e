"""Reports on training runs, evaluations and loops: what is read, what is drawn, and what is ignored."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import error_of, miner, output_of
from report_pages import HOSTILE_TEXTS, Page, classification_figures, loop_figures, suite_figures, write_figures, write_journal
from scipy import stats

from miner.evaluation.task_base import BarChart
from miner.io import records
from miner.report import scores, training
from miner.report.training import MAX_LINE_POINTS, thin


def report(folder: Path) -> Page:
    assert output_of("report", folder) == f"{folder}/report.html\n"
    return Page(folder / "report.html")


def test_training_run_shows_losses_scores_and_rates(tmp_path: Path) -> None:
    counts = {"examples/parallel": 3840, "epochs/parallel": 5.4857, "cut_texts": 7}  # they are no losses
    steps = [{"step": step, "loss": 2 / step, "info_nce": 2 / step, "lr": 1e-3, "examples": 8 * step, **counts} for step in range(1, 5)]
    write_journal(tmp_path, *steps, {"step": 2, "score": 0.5, "score/sts": 0.1}, {"step": 4, "score": 0.25, "score/sts": 0.3})
    lines = training.read(str(tmp_path))
    assert lines["score"].tolist() == [[2, 0.5], [4, 0.25]]
    assert lines["loss"].tolist() == [[1, 2], [2, 1], [3, 2 / 3], [4, 0.5]]
    page = report(tmp_path)
    assert page.texts["h2"] == ["Loss", "Score", "Learning rate"]
    assert "4 steps, 32 examples" in page.texts["p"]
    assert any("The best is 0.5000, after step 2" in text for text in page.texts["p"])
    assert any(text.endswith("At the end: loss 0.5000.") for text in page.texts["p"])
    assert any("score/sts" in text for texts in page.texts.values() for text in texts)


def test_thin_averages_neighbouring_points() -> None:
    line = np.stack([np.arange(1, 10 * MAX_LINE_POINTS + 1), np.ones(10 * MAX_LINE_POINTS)], axis=1)
    thinned = thin(line)
    assert thinned.shape == (MAX_LINE_POINTS, 2)
    assert thinned[0].tolist() == [5.5, 1]
    assert thin(thinned) is thinned


@pytest.mark.parametrize("line", ["[1, 2]", "{}", '{"step": "one"}', "nothing", '{"step": 1, "loss": []}'])
def test_malformed_journal_is_an_error(line: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2}\n' + line + "\n")
    assert "log.jsonl:2: not an entry of a training journal" in error_of("report", tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_bars_are_sorted_and_have_wilson_intervals(tmp_path: Path) -> None:
    write_figures(tmp_path / "topics.json", classification_figures())
    page = report(tmp_path)
    assert page.texts["h2"] == ["topics"]
    labels = [text for text in page.texts["text"] if text in ("eng", "deu")]
    assert labels == ["deu", "eng"]  # the best first
    chart = scores.find_chart("classification")
    assert isinstance(chart, BarChart)
    expected = stats.binomtest(40, 50).proportion_ci(method="wilson")
    assert scores.interval({"n": 50, "accuracy": 0.8}, chart) == pytest.approx((expected.low, expected.high))


def test_the_figures_of_a_task_may_have_further_keys(tmp_path: Path) -> None:
    write_figures(tmp_path / "topics.json", {"more": 1, **classification_figures()})
    assert list(scores.read(str(tmp_path))) == ["topics"]
    page = report(tmp_path)
    assert page.texts["h2"] == ["topics"]
    assert page.texts["p"].count("Accuracy. Lines are 95 % confidence intervals (Wilson).") == 1


def test_many_languages_are_split_into_charts_of_one_scale(tmp_path: Path) -> None:
    rows = {f"l{number:02d}": {"n": 100, "forward": 0.5, "backward": 0.5, "mean": 1 - number / 100} for number in range(85)}
    average = {"tatoeba14": None, "tatoeba36": None, "all": 0.5}
    write_figures(tmp_path / "tatoeba.json", {"task": "tatoeba", "languages": rows, "average": average})
    page = report(tmp_path)
    assert [text for text in page.texts["text"] if text.startswith("l")] == list(rows)
    assert page.texts["figcaption"] == [f"Sorted by value. {ends}." for ends in ("l00 to l28", "l29 to l57", "l58 to l84")]
    assert [text for text in page.texts["text"] if text[0] in "01"] == 3 * ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert any("Lines are 95 % confidence intervals" in text for text in page.texts["p"])
    assert {"l00", "100", "0.5000", "1.0000"} <= set(page.texts["td"])


def test_bucc_shows_its_curves_with_the_dev_threshold(tmp_path: Path) -> None:
    curve = [
        {"threshold": 1.5 - row / 10, "pairs": row + 1, "precision": 1 / (row + 1), "recall": 0.5, "f1": 0.5 - row / 10} for row in range(3)
    ]
    tuned = {"dev": {**curve[1], "threshold": 1.4567}, "test": curve[1], "oracle": curve[0], "gold": {"dev": 2, "test": 3}, "curve": curve}
    untuned = {"dev": None, "test": {**curve[1], "f1": 0.0}, "oracle": None, "gold": {"dev": 2, "test": 3}, "curve": []}
    write_figures(tmp_path / "bucc.json", {"task": "bucc", "pairs": {"de-en": tuned, "fr-en": untuned}, "mean": {"f1": 0.2}})
    page = report(tmp_path)
    assert page.texts["h2"] == ["bucc", "bucc: de-en", "bucc: fr-en"]
    shares = "precision 0.5000, recall 0.5000, F1 0.4000"
    assert f"On the test split, with 3 gold pairs: above the threshold of the dev split, {shares}." in page.texts["p"]
    assert any("an oracle: 0.5000" in text for text in page.texts["span"])
    assert any("no pair of the dev split is correct, so no pair is accepted" in text for text in page.texts["p"])


def test_alignment_is_a_table(tmp_path: Path) -> None:
    uniformity = {"source": -3.0, "target": -2.0, "mean": -2.5}
    write_figures(
        tmp_path / "flickr.json", {"task": "alignment", "n": 1000, "without_vector": 0, "alignment": 0.8125, "uniformity": uniformity}
    )
    page = report(tmp_path)
    assert page.texts["td"][:2] == ["alignment", "0.8125"]
    assert page.texts["td"][2:] == ["uniformity, source", "-3.0000", "uniformity, target", "-2.0000", "uniformity, mean", "-2.5000"]
    assert any("1,000 pairs" in text for text in page.texts["p"])


def test_figures_of_the_sample_protocol_are_numbers(tmp_path: Path) -> None:
    """The curve and the sizes of the splits are no figures of the table."""
    point = {"threshold": 1.25, "pairs": 3, "precision": 0.5, "recall": 0.5, "f1": 0.5}
    pair = {**point, "gold": {"sample": 3}, "curve": [point]}
    write_figures(tmp_path / "bucc.json", {"task": "bucc", "protocol": "sample", "pairs": {"de-en": pair}, "mean": {"f1": 0.5}})
    page = report(tmp_path)
    assert page.texts["td"][:6] == ["de-en", "0.5000", "3", "0.5000", "0.5000", "1.2500"]
    assert not any("{" in cell for cell in page.texts["td"])


def test_suite_shows_two_encoders_side_by_side(tmp_path: Path) -> None:
    write_figures(tmp_path / "suite.json", suite_figures())
    page = report(tmp_path)
    assert page.texts["h2"] == ["suite", "topics"]
    cells = page.texts["td"]
    first = cells.index("topics: accuracy")
    assert cells[first : first + 5] == ["topics: accuracy", "0.7000", "0.8000", "+0.1000 [+0.0400, +0.1600]", "0.010"]
    assert page.texts["span.key one"] == ["builtin"] * 2
    assert page.texts["span.key two"] == [HOSTILE_TEXTS[0]] * 2
    assert "alignment: uniformity" in cells
    assert any("except for alignment" in text and "confidence" in text for text in page.texts["p"])
    assert "alignment: uniformity" not in page.texts["text"]  # not a share: its bar would dwarf the others


def test_other_json_files_are_ignored_and_broken_figures_reported(tmp_path: Path) -> None:
    write_figures(tmp_path / "topics.json", classification_figures())
    for name, value in (
        ("list", [1]),
        ("other", {"languages": {}, "mean": 3}),
        ("package", {"name": "x", "scores": 3}),
        ("odd", {"pairs": 3}),
        ("foreign", {"task": "translation", "languages": {}}),
        ("unnamed", {"languages": {"eng": {"n": 50, "mean": 0.5}}, "average": {"all": 0.5}}),
    ):
        write_figures(tmp_path / f"{name}.json", value)
    (tmp_path / "broken.json").write_text("{")
    suite = suite_figures()
    suite["comparisons"]["topics: accuracy"] = {"first": None}
    write_figures(tmp_path / "suite.json", suite)
    write_figures(tmp_path / "sts.json", {"task": "sts", "tracks": {}})
    result = miner("report", tmp_path)
    assert result.exit_code == 0
    warnings = [f"miner: {name}.json is left out: not written by `miner eval`" for name in ("sts", "suite")]
    assert result.stderr.splitlines() == warnings
    assert Page(tmp_path / "report.html").texts["h2"] == ["topics"]


def test_eval_writes_a_report_beside_its_figures(toy_encoder: Path, tmp_path: Path) -> None:
    for name, words in (("en", "one two three four five"), ("fr", "un deux trois quatre cinq")):
        (tmp_path / name).write_text("\n".join(words.split()) + "\n")
    task = ("eval", "retrieval", tmp_path / "en", tmp_path / "fr", "--encoder", toy_encoder)
    json_option = ("--json", tmp_path / "out" / "f.json")
    for options, with_report in (((), True), (json_option, False), (json_option, True)):
        assert miner(*task, *options, report=with_report).exit_code == 0
        assert (tmp_path / "out" / "report.html").exists() == bool(options and with_report)
    assert json.loads((tmp_path / "out" / "f.json").read_text())["task"] == "retrieval"
    assert Page(tmp_path / "out" / "report.html").texts["h2"] == ["f"]


def test_loop_shows_its_rounds(tmp_path: Path) -> None:
    records.write(str(tmp_path / "loop.json"), loop_figures())
    page = report(tmp_path)
    assert page.texts["h2"] == ["Dev", "Test", "Pairs", "Change", "Examples"]
    assert "3 rounds, the best is round-00; the loop stopped: dev is no better" in page.texts["p"]
    cells = page.texts["td"]
    assert cells[:8] == ["deu", "0.4000", "0.5000", "0.6000", "rus", "0.4000", "0.4000", "0.4000"]
    assert cells[8:16] == ["eng-deu", "100 (90.0%)", "101 (90.0%)", "102 (90.0%)", "eng-rus", "50", "50", "50"]
    assert page.texts["bdi.text"] == [text for number in range(3) for text in (HOSTILE_TEXTS[number], "Satz", "lost one", "Satz")]


@pytest.mark.parametrize("figures", [{}, {"rounds": 3}, {"rounds": [], "start": {}, "best": "seed"}, {"rounds": [{}], "start": {}}])
def test_malformed_loop_figures_are_an_error(figures: dict[str, Any], tmp_path: Path) -> None:
    records.write(str(tmp_path / "loop.json"), figures)
    assert "loop.json: not the figures of a loop" in error_of("report", tmp_path)
