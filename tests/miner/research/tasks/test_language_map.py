"""`miner eval map`: figures equal their definition, and the report draws them."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from command import miner
from report_pages import Page

from miner.encoders import load_encoder
from miner.research.tasks.language_map import similarities

ROWS = [
    ("1", "eng", "one two"),
    ("2", "eng", "three"),
    ("3", "eng", "four five"),
    ("4", "eng", "seven"),
    ("5", "eng", "in one language only"),
    ("1", "fra", "un deux"),
    ("2", "fra", "quatre"),  # not a translation to the encoder
    ("3", "fra", "quatre cinq"),
    ("4", "fra", "sept"),
    ("1", "mix", "one deux"),
    ("2", "mix", "three trois"),
    ("3", "mix", "unknown"),  # without a vector
    ("6", "deu", "auch allein"),
]


def run(folder: Path, rows: list[tuple[str, str, str]], encoder: Path, *options: str) -> Result:
    (folder / "table.tsv").write_text("".join("\t".join(row) + "\n" for row in [("id", "lang", "text"), *rows]))
    return miner("eval", "map", "--data", folder / "table.tsv", "--encoder", encoder, *options, report=True)


def test_figures_equal_their_definition(toy_encoder: Path, tmp_path: Path) -> None:
    untranslated = [("7", "sat", "three"), ("7", "deu", "unbekannt")]  # no translation has a vector
    result = run(tmp_path, [*ROWS[::-1], *untranslated], toy_encoder, "--json", str(tmp_path / "out" / "map.json"))
    assert (result.exit_code, result.stderr) == (0, "")
    figures = json.loads((tmp_path / "out" / "map.json").read_text())
    encoder = load_encoder(str(toy_encoder))
    vectors = {(lang, name): encoder.encode([text])[0] for name, lang, text in ROWS if text != "unknown"}
    languages = ["eng", "fra", "mix"]
    assert list(figures["languages"]) == languages
    assert [figures["languages"][lang]["n"] for lang in languages] == [4, 4, 2]
    for (row, first), (column, second) in product(enumerate(languages), repeat=2):
        pairs = [(a, b) for a, b in product("1234", repeat=2) if {(first, a), (second, b)} <= set(vectors)]
        cosines = {same: [vectors[first, a] @ vectors[second, b] for a, b in pairs if (a == b) == same] for same in (True, False)}
        assert figures["translations"][row][column] == pytest.approx(np.mean(cosines[True]), abs=1e-6)
        assert figures["non_translations"][row][column] == pytest.approx(np.mean(cosines[False]), abs=1e-6)
    assert figures["translations"][0][1] == pytest.approx((3 + vectors["eng", "2"] @ vectors["fra", "2"]) / 4, abs=1e-6)
    page = Page(tmp_path / "out" / "report.html")
    assert page.texts["h2"] == ["Similarity of languages", "Principal components", "t-SNE", "map"]
    images = [value for tag, name, value in page.attributes if (tag, name) == ("image", "href")]
    assert len(images) == 1
    assert images[0].startswith("data:image/png;base64,")


def test_map_has_the_languages_with_most_sentences_in_common(toy_encoder: Path, tmp_path: Path) -> None:
    run(tmp_path, ROWS, toy_encoder, "--json", str(tmp_path / "map.json"))
    projection = json.loads((tmp_path / "map.json").read_text())["map"]
    assert projection["languages"] == ["eng", "fra"]  # the third has only two sentences with a vector
    pca = np.array(projection["pca"])
    assert pca.shape == np.array(projection["tsne"]).shape == (2, 4, 2)
    assert pca[0, 0] == pytest.approx(pca[1, 0], abs=1e-3)  # "one two" and "un deux" have one vector
    assert np.linalg.norm(pca[0, 1] - pca[1, 1]) > 0.1
    first = (tmp_path / "map.json").read_bytes(), (tmp_path / "report.html").read_bytes()
    run(tmp_path, ROWS, toy_encoder, "--json", str(tmp_path / "map.json"))
    assert ((tmp_path / "map.json").read_bytes(), (tmp_path / "report.html").read_bytes()) == first


def test_languages_without_a_common_sentence_have_no_similarity() -> None:
    vectors = np.zeros((3, 2, 4), dtype=np.float32)
    vectors[0, 0] = vectors[1, 1] = vectors[2, 0] = [1, 0, 0, 0]
    translations, others = similarities(vectors, vectors.any(axis=2))
    assert np.isnan(translations[0, 1])
    assert np.isnan(others[0, 2])
    assert (translations[0, 2], others[0, 1]) == (1, 1)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("1", "eng", "one"), ("1", "eng", "two")], "two rows have the id '1' in 'eng'"),
        ([("1", "eng", "one"), ("2", "fra", "deux")], "no id is in two languages"),
        ([("1", "eng", ""), ("1", "fra", "deux")], "has nothing in column 'text'"),
        ([("1", "eng", "unknown"), ("1", "fra", "deux")], "no text with a translation has a vector"),
    ],
    ids=["doubled", "none shared", "empty", "unknown"],
)
def test_malformed_tables_are_errors(rows: list[tuple[str, str, str]], message: str, toy_encoder: Path, tmp_path: Path) -> None:
    result = run(tmp_path, rows, toy_encoder, "--json", str(tmp_path / "f.json"))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert message in result.stderr
    assert not (tmp_path / "f.json").exists()
    assert not (tmp_path / "report.html").exists()


def test_few_sentences_have_no_map(toy_encoder: Path, tmp_path: Path) -> None:
    rows = [("1", "eng", "one"), ("2", "eng", "two"), ("1", "fra", "un"), ("2", "fra", "deux")]
    assert run(tmp_path, rows, toy_encoder, "--json", str(tmp_path / "map.json")).exit_code == 0
    assert json.loads((tmp_path / "map.json").read_text())["map"] is None
    assert Page(tmp_path / "report.html").texts["h2"] == ["Similarity of languages", "map"]


def test_pairs_of_one_language_are_on_the_map(toy_encoder: Path, tmp_path: Path) -> None:
    rows = [("sentence1", "sentence2"), ("one two", "two"), ("three", "three four"), ("one", "seven"), ("one two", "nine")]
    (tmp_path / "sts.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    options = ("--data", tmp_path / "sts.tsv", "--text-column", "sentence1", "--pair-column", "sentence2", "--encoder", toy_encoder)
    result = miner("eval", "map", *options, "--json", tmp_path / "map.json", report=True)
    assert (result.exit_code, result.stderr) == (0, "")
    figures = json.loads((tmp_path / "map.json").read_text())
    encoder = load_encoder(str(toy_encoder))
    cosines = [float(encoder.encode([first])[0] @ encoder.encode([second])[0]) for first, second in rows[1:]]
    assert figures["languages"]["sentence1"] == {"n": 4, "cosine": pytest.approx(np.mean(cosines), abs=1e-6)}
    tsne = np.array(figures["map"]["tsne"])
    assert (figures["map"]["languages"], tsne.shape) == (["sentence1", "sentence2"], (2, 4, 2))
    pca = np.array(figures["map"]["pca"])
    assert pca[0, 0] == pytest.approx(pca[0, 3], abs=1e-3)  # both are "one two"
    assert Page(tmp_path / "report.html").texts["h2"] == ["Principal components", "t-SNE", "map"]


def test_a_column_is_no_pair_with_itself(toy_encoder: Path, tmp_path: Path) -> None:
    result = run(tmp_path, ROWS, toy_encoder, "--pair-column", "text")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "the same as --text-column" in result.stderr
