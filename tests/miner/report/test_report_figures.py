"""Reports on training runs, evaluations and loops: what is read, what is drawn, and what is passed over."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import miner, refused, told
from scipy import stats
from test_report import HOSTILE, Page

from miner import storage
from miner.report import scores, training
from miner.report.training import POINTS, thin


def report(folder: Path) -> Page:
    assert told("report", folder) == f"{folder}/report.html\n"
    return Page(folder / "report.html")


def journal(folder: Path, *entries: Mapping[str, float]) -> None:
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))


def write(path: Path, figures: Any) -> None:
    storage.write_json(str(path), figures)  # which sorts names


def test_a_training_run(tmp_path: Path) -> None:
    steps = [{"step": step, "loss": 2 / step, "info_nce": 2 / step, "lr": 1e-3, "examples": 8 * step} for step in range(1, 5)]
    journal(tmp_path, *steps, {"step": 2, "score": 0.5}, {"step": 4, "score": 0.25})
    lines = training.read(str(tmp_path))
    assert lines["score"].tolist() == [[2, 0.5], [4, 0.25]]
    assert lines["loss"].tolist() == [[1, 2], [2, 1], [3, 2 / 3], [4, 0.5]]
    page = report(tmp_path)
    assert page.texts["h2"] == ["Loss", "Score", "Learning rate"]
    assert "4 steps, 32 examples" in page.texts["p"]
    assert any("The best is 0.5000, after step 2" in text for text in page.texts["p"])


def test_long_lines_are_thinned_to_means() -> None:
    line = np.stack([np.arange(1, 10 * POINTS + 1), np.ones(10 * POINTS)], axis=1)
    found = thin(line)
    assert found.shape == (POINTS, 2)
    assert found[0].tolist() == [5.5, 1]
    assert thin(found) is found


@pytest.mark.parametrize("line", ["[1, 2]", "{}", '{"step": "one"}', "nothing", '{"step": 1, "loss": []}'])
def test_a_journal_that_is_none(line: str, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2}\n' + line + "\n")
    assert "log.jsonl:2: no entry" in refused("report", tmp_path)
    assert not (tmp_path / "report.html").exists()


def languages(shift: float = 0.0) -> dict[str, Any]:
    rows = {code: {"n": 50, "accuracy": share + shift, "macro_f1": share, "majority": 0.2} for code, share in (("eng", 0.6), ("deu", 0.8))}
    return {"trained_on": 9, "classes": 2, "languages": rows, "mean": {"accuracy": 0.7 + shift, "macro_f1": 0.7}}


def test_groups_stand_by_their_measure_with_intervals(tmp_path: Path) -> None:
    write(tmp_path / "topics.json", languages())
    page = report(tmp_path)
    assert page.texts["h2"] == ["topics"]
    labels = [text for text in page.texts["text"] if text in ("eng", "deu")]
    assert labels == ["deu", "eng"]  # the best first
    kind, _ = scores.groups(languages())
    assert kind is not None
    found = scores._interval({"n": 50, "accuracy": 0.8}, kind)
    known = stats.binomtest(40, 50).proportion_ci(method="wilson")
    assert found == pytest.approx((known.low, known.high))


def test_many_languages_stand_side_by_side_on_one_scale(tmp_path: Path) -> None:
    """As those of Tatoeba, whose lines in both directions give an interval."""
    rows = {f"l{number:02d}": {"n": 100, "forward": 0.5, "backward": 0.5, "mean": 1 - number / 100} for number in range(85)}
    write(tmp_path / "tatoeba.json", {"languages": rows, "average": {"tatoeba14": None, "tatoeba36": None, "all": 0.5}})
    page = report(tmp_path)
    assert [text for text in page.texts["text"] if text.startswith("l")] == list(rows)
    assert page.texts["figcaption"] == [f"The largest first. {ends}." for ends in ("l00 to l28", "l29 to l57", "l58 to l84")]
    assert [text for text in page.texts["text"] if text[0] in "01"] == 3 * ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert any("Lines are 95 % intervals" in text for text in page.texts["p"])
    assert {"l00", "100", "0.5000", "1.0000"} <= set(page.texts["td"])


def test_bucc_has_its_curve_with_the_threshold_of_dev(tmp_path: Path) -> None:
    points = [
        {"threshold": 1.5 - row / 10, "pairs": row + 1, "precision": 1 / (row + 1), "recall": 0.5, "f1": 0.5 - row / 10} for row in range(3)
    ]
    known = {"dev": {**points[1], "threshold": 1.4567}, "test": points[1], "oracle": points[0], "gold": {"dev": 2, "test": 3}}
    none = {"dev": None, "test": {**points[1], "f1": 0.0}, "oracle": None, "gold": {"dev": 2, "test": 3}, "curve": []}
    write(tmp_path / "bucc.json", {"pairs": {"de-en": {**known, "curve": points}, "fr-en": none}, "mean": {"f1": 0.2}})
    page = report(tmp_path)
    assert page.texts["h2"] == ["bucc", "bucc: de-en", "bucc: fr-en"]
    assert (
        "On the test split, of 3 gold pairs: above the threshold of the dev split precision 0.5000, recall 0.5000, F1 0.4000."
        in page.texts["p"]
    )
    assert any("would give F1 0.5000" in text for text in page.texts["span"])
    assert any("no pair of the dev split is right, so none is taken" in text for text in page.texts["p"])


def test_alignment_has_no_groups_and_is_told_all_the_same(tmp_path: Path) -> None:
    spread = {"source": -3.0, "target": -2.0, "mean": -2.5}
    write(tmp_path / "flickr.json", {"n": 1000, "left_out": 0, "alignment": 0.8125, "uniformity": spread})
    page = report(tmp_path)
    assert page.texts["td"][:2] == ["alignment", "0.8125"]
    assert page.texts["td"][2:] == ["uniformity, source", "-3.0000", "uniformity, target", "-2.0000", "uniformity, mean", "-2.5000"]


def suite() -> dict[str, Any]:
    shown = {"one": 0.7, "other": 0.8}
    compared = {side: {"value": value, "low": value - 0.05, "high": value + 0.05} for side, value in shown.items()}
    compared["difference"] = {"value": 0.1, "low": 0.04, "high": 0.16}
    title = "topics: accuracy"
    return {
        "names": ["builtin", HOSTILE[0]],
        "encoders": {"builtin": {"topics": {"seconds": 1.5, **languages()}}, HOSTILE[0]: {"topics": {"seconds": 2, **languages(0.1)}}},
        "scores": {"builtin": {title: 0.7, "alignment: uniformity": -3.0}, HOSTILE[0]: {title: 0.8, "alignment: uniformity": -3.5}},
        "compared": {title: {**compared, "p": 0.01}, "alignment: uniformity": {**compared, "p": 0.5}},
    }


def test_two_encoders_stand_side_by_side(tmp_path: Path) -> None:
    write(tmp_path / "suite.json", suite())
    page = report(tmp_path)
    assert page.texts["h2"] == ["suite", "topics"]
    cells = page.texts["td"]
    first = cells.index("topics: accuracy")
    assert cells[first : first + 5] == ["topics: accuracy", "0.7000", "0.8000", "+0.1000 [+0.0400, +0.1600]", "0.010"]
    assert page.texts["span.key one"] == ["builtin"] * 2
    assert page.texts["span.key two"] == [HOSTILE[0]] * 2
    assert "alignment: uniformity" in cells
    assert "alignment: uniformity" not in page.texts["text"]  # a share it is not, and would dwarf the others


def test_what_is_no_evaluation_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "topics.json", languages())
    for name, value in (
        ("list", [1]),
        ("other", {"languages": {}, "mean": 3}),
        ("package", {"name": "x", "scores": 3}),
        ("odd", {"pairs": 3}),
    ):
        write(tmp_path / f"{name}.json", value)
    (tmp_path / "broken.json").write_text("{")
    broken = suite()
    broken["compared"]["topics: accuracy"] = {"one": None}
    write(tmp_path / "suite.json", broken)
    result = miner("report", tmp_path)
    assert result.exit_code == 0
    assert result.stderr == "miner: suite.json is left out: not what `miner eval` writes\n"
    assert Page(tmp_path / "report.html").texts["h2"] == ["topics"]


def test_an_evaluation_leaves_a_report_beside_its_figures(toy_encoder: Path, tmp_path: Path) -> None:
    for name, words in (("en", "one two three four five"), ("fr", "un deux trois quatre cinq")):
        (tmp_path / name).write_text("\n".join(words.split()) + "\n")
    task = ("eval", "retrieval", tmp_path / "en", tmp_path / "fr", "--encoder", toy_encoder)
    figures = ("--json", tmp_path / "out" / "f.json")
    for options, asked in (((), True), (figures, False), (figures, True)):
        assert miner(*task, *options, report=asked).exit_code == 0
        assert (tmp_path / "out" / "report.html").exists() == bool(options and asked)
    assert Page(tmp_path / "out" / "report.html").texts["h2"] == ["f"]


def loop() -> dict[str, Any]:
    def pair(source: str) -> dict[str, Any]:
        return {"languages": "eng-deu", "margin": 1.25, "source_text": source, "target_text": "Satz"}

    def told(number: int) -> dict[str, Any]:
        pairs = {"eng-deu": {"selected": 100 + number, "precision": 0.9}, "eng-rus": {"selected": 50}}
        gained = {"pairs": 12 + number, "examples": [pair(HOSTILE[number])]}
        changes = {"jaccard": None if not number else 0.5, "gained": gained, "lost": {"pairs": 3, "examples": [pair("lost one")]}}
        dev = {"deu": 0.5 + number / 10, "rus": 0.4}
        return {
            "selection": {"learnt": 150 + number, "pairs": pairs},
            "changes": changes,
            "dev": dev,
            "test": dev,
            "drift": 0.1,
            "kept": number != 1,
        }

    last = told(2)
    del last["dev"], last["test"], last["drift"]  # of too few pairs to train on
    start = {"dev": {"deu": 0.4, "rus": 0.4}, "tatoeba": 0.3}
    return {"start": start, "rounds": [told(0), told(1), last], "best": "round-00", "latest": "round-00", "stopped": "dev is no better"}


def test_a_loop(tmp_path: Path) -> None:
    write(tmp_path / "loop.json", loop())
    page = report(tmp_path)
    assert page.texts["h2"] == ["Dev", "Test", "Pairs", "Change", "Examples"]
    assert "3 rounds, the best is round-00; the loop ended: dev is no better" in page.texts["p"]
    cells = page.texts["td"]
    assert cells[:8] == ["deu", "0.4000", "0.5000", "0.6000", "rus", "0.4000", "0.4000", "0.4000"]
    assert cells[8:16] == ["eng-deu", "100 (90.0%)", "101 (90.0%)", "102 (90.0%)", "eng-rus", "50", "50", "50"]
    assert page.texts["bdi.text"] == [text for number in range(3) for text in (HOSTILE[number], "Satz", "lost one", "Satz")]


@pytest.mark.parametrize("figures", [[], {}, {"rounds": 3}, {"rounds": [], "start": {}, "best": "seed"}, {"rounds": [{}], "start": {}}])
def test_a_loop_that_is_none(figures: Any, tmp_path: Path) -> None:
    write(tmp_path / "loop.json", figures)
    assert "loop.json: no figures of a loop" in refused("report", tmp_path)
