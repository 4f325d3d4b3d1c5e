"""The page of a report: what it holds, that it holds nothing else, and what its pictures are made from."""

import base64
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import bitexts
import numpy as np
import pytest
from command import miner, refused, told

from miner import stages, storage
from miner.choices import MARGINS
from miner.evaluation.bitext_precision import GoldPairs
from miner.report import build
from miner.report.mined_pairs import STEP, Histogram, MinedBitext, sample
from miner.text.normalise import clean, sentence_ids

HOSTILE = [
    "<script>document.title = 'broken in'</script>",
    "</script><img src=x onerror=\"document.title='broken in'\">",
    "\"quotes\" & 'apostrophes' &amp; <!-- comment --> ]]> </style>",
    "שלום עולם, (abc) 123! ‏مرحبا بالعالم",
    "👩‍👩‍👧 🏳️‍🌈 emoji 😀 $\\frac{1}{2}$ `code` {{7*7}} %s",
    "ten thousand " + "x" * 10_000,
    "javascript:alert(1) https://example.com/track.png url(https://example.com)",
]


def mined(folder: Path, pairs: Sequence[bitexts.Pair]) -> Path:
    """A folder of pairs that were decided on."""
    return bitexts.write(folder, pairs, margin="ratio", threshold=1.0)


def report(folder: Path, known: GoldPairs | None = None) -> Path:
    uri = build.write(str(folder), known)
    assert uri == f"{folder}/report.html"
    return Path(uri)


def hostile(folder: Path) -> Path:
    texts = [clean(text) for text in HOSTILE]
    return mined(folder, [(2 - number / 10, text, f"{number} {text}") for number, text in enumerate(texts)])


class Page(HTMLParser):
    """Reads a page and fails where it is not well-formed; keeps attributes, and the text of each element by tag and class."""

    VOID = ("meta", "input")

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        kind = ".".join([tag, *[value or "" for name, value in attrs if name == "class"]])
        self.texts.setdefault(kind, []).append("")
        if tag not in self.VOID:
            self.open.append(kind)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().partition(".")[0] == tag

    def handle_data(self, data: str) -> None:
        for kind in self.open:
            self.texts[kind][-1] += data


def test_hostile_text_is_text(tmp_path: Path) -> None:
    folder = hostile(tmp_path)
    page = Page(report(folder))
    shown = page.texts["bdi.text"]
    for number, text in enumerate(map(clean, HOSTILE)):
        assert text in shown
        assert f"{number} {text}" in shown
    assert "img" not in page.texts
    assert len(page.texts["script"]) == 1
    policy = next(value for tag, name, value in page.attributes if (tag, name) == ("meta", "content"))
    assert f"'sha256-{base64.b64encode(hashlib.sha256(page.texts['script'][0].encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'; ")


def test_a_page_refers_to_nothing_outside_itself(tmp_path: Path) -> None:
    page = Page(report(hostile(tmp_path)))
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


def test_the_same_folder_gives_the_same_bytes_in_any_process(tmp_path: Path) -> None:
    folder = hostile(tmp_path)
    first = report(folder).read_bytes()
    code = f"from miner.report.build import write; write({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "7", "HOME": str(tmp_path / "home")}, check=True, timeout=120)
    assert (folder / "report.html").read_bytes() == first


def test_wrong_pairs_are_below_right_ones_in_the_picture_of_margins(tmp_path: Path) -> None:
    pairs = [(1.9, "a", "A"), (1.8, "b", "B"), (1.5, "c", "C"), (1.2, "d", "D")]
    gold = {tuple(sentence_ids([one, other]).tolist()) for _, one, other in (pairs[0], pairs[2])}
    folder = mined(tmp_path, pairs)
    known = GoldPairs(frozenset(gold), missing=2)
    assert MinedBitext(str(folder), stages.read_manifest(str(folder))).right(known).tolist() == [True, False, True, False]
    page = Page(report(folder, known))
    keys = [text for kind, texts in page.texts.items() if kind.startswith("span.key") for text in texts]
    assert {"right", "wrong", "precision", "recall", "F1"} <= set(keys)
    assert any("Against 4 gold pairs" in text for text in page.texts["p"])
    # F1: 2/5, 2/6, 4/7, 4/8: the best is that of three pairs, above a threshold midway between 1.5 and 1.2.
    assert any("The best F1 is 0.5714, above 1.3500" in text for text in page.texts["span"])


def test_histograms_count_every_margin_once() -> None:
    margins = np.random.default_rng(0).normal(1.2, 0.2, 5000)
    found = Histogram()
    for part in np.array_split(margins, 7):
        found.add(part)
    low, high = found.bounds()
    assert low <= margins.min() < low + STEP
    assert high - STEP <= margins.max() < high
    edges = low + 25 * STEP * np.arange(np.ceil((high - low) / (25 * STEP)) + 1)
    assert found.by(edges).counts.tolist() == np.histogram(margins, edges)[0].tolist()
    assert found.by(edges).counts.sum() == 5000


def test_a_sample_has_as_many_pairs_of_each_level() -> None:
    levels = sample(1003, seed=0)
    assert [len(level) for level in levels] == [10] * 10
    assert all(np.all(np.diff(level) > 0) for level in levels)
    starts = [0, 101, 202, 303, 403, 503, 603, 703, 803, 903, 1003]
    assert all(start <= level[0] and level[-1] < end for level, start, end in zip(levels, starts, starts[1:], strict=False))
    assert [level.tolist() for level in sample(3, seed=0)] == [[0], [1], [2]]
    assert sample(0, seed=0) == []


@pytest.fixture(scope="module")
def toy(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mined for real, with candidates."""
    folder = tmp_path_factory.mktemp("toy")
    rng = np.random.default_rng(1)
    words = [line.split() for line in ("one two three four five six seven eight", "un deux trois quatre cinq six sept huit")]
    for name, known in zip(("en", "fr"), words, strict=True):
        (folder / name).write_text("".join(" ".join(rng.choice(known, 3)) + "\n" for _ in range(60)))
    options = ("--source-lang", "en", "--target-lang", "fr", "--encoder", toy_encoder, "--output", folder / "out")
    result = miner("mine", folder / "en", folder / "fr", *options, report=True)
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(f", {folder / 'out' / 'report.html'}\n")
    return folder / "out"


def test_the_outline_has_the_best_candidate_of_every_source(toy: Path) -> None:
    table = storage.read_table(str(next((toy / "candidates").glob("*.parquet"))))
    best: dict[int, float] = {}
    for row in table.to_pylist():
        margin = MARGINS["ratio"].score(row["similarity"], (row["source_mean"] + row["target_mean"]) / 2)
        best[row["source_id"]] = max(margin, best.get(row["source_id"], -1))
    found = MinedBitext(str(toy), stages.read_manifest(str(toy))).nearest()
    assert found is not None
    expected: dict[int, int] = {}
    for margin in best.values():
        expected[int(np.floor(margin / STEP))] = expected.get(int(np.floor(margin / STEP)), 0) + 1
    assert found.bins == expected


def test_mine_leaves_a_report_unless_told_not_to(toy: Path, tmp_path: Path) -> None:
    again = ("mine", "--from-candidates", toy, "--output", tmp_path / "again")
    assert "report.html" not in told(*again)
    assert not (tmp_path / "again" / "report.html").exists()
    assert miner(*again, report=True).exit_code == 0
    titles = Page(tmp_path / "again" / "report.html").texts["h2"]
    assert titles == ["Margins", "Yield", "Lengths", "Right or wrong?"]
    assert "Hubs" in Page(toy / "report.html").texts["h2"]


def test_a_folder_without_pairs_has_a_report(tmp_path: Path) -> None:
    assert Page(report(mined(tmp_path, []))).texts["h2"] == ["Margins"]


def test_one_pair_has_every_picture(tmp_path: Path) -> None:
    known = GoldPairs(frozenset([tuple(sentence_ids(["a", "b"]).tolist())]))
    titles = Page(report(mined(tmp_path, [(1.25, "a", "b")]), known)).texts["h2"]
    assert titles == ["Margins", "Precision and recall", "Yield", "Lengths", "Right or wrong?"]


def test_what_was_decided_stands_at_the_top(tmp_path: Path) -> None:
    folder = mined(tmp_path, [(1.25, "a", "b")])
    manifest = json.loads((folder / "manifest.json").read_text())
    shares = {"precision": {"value": 0.95, "low": 0.93, "high": 0.965}, "recall": {"value": 0.8, "low": 0.75, "high": 0.84}}
    manifest["details"] |= {"choice": {"by": "planted", **shares}, "dropped": {"near_copy": 1200}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    facts = Page(report(folder)).texts["p"][:3]
    assert facts[0] == "margin ratio, threshold 1"
    assert "chosen by planted: expected precision 0.950 (0.930-0.965), recall 0.800 (0.750-0.840)" in facts[1]
    assert facts[2] == "dropped: 1,200 near copy"


@pytest.mark.parametrize("spoilt", ["languages", "pairs"])
def test_a_folder_that_was_spoilt_is_one_line(spoilt: str, tmp_path: Path) -> None:
    folder = mined(tmp_path, [(1.25, "a", "b")])
    manifest = json.loads((folder / "manifest.json").read_text())
    if spoilt == "pairs":
        (folder / "bitext.parquet").write_bytes((folder / "bitext.parquet").read_bytes()[:-20])
    manifest["details"].pop(spoilt, None), manifest["config"].pop(spoilt, None)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    before = sorted(tmp_path.iterdir())
    assert str(folder) in refused("report", folder)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("arguments", "message"), [(["nowhere"], "nothing to show"), (["."], "nothing to show")])
def test_what_has_no_report(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("report", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_run_leaves_a_report_of_every_pair(toy: Path, toy_encoder: Path, tmp_path: Path) -> None:
    corpora = {name: str(toy.parent / name) for name in ("en", "fr")}
    config = {"output": str(tmp_path / "out"), "corpora": corpora, "pairs": "all", "encoder": str(toy_encoder)}
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    result = miner("run", tmp_path / "run.yaml", report=True)
    assert result.exit_code == 0, result.output
    assert "Hubs" in Page(tmp_path / "out" / "pairs" / "en-fr" / "report.html").texts["h2"]
