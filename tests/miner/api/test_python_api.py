"""The Python interface runs the pipelines of the commands on what is in memory, and imports nothing until it is used."""

import inspect
import json
import pydoc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny
from command import miner as command
from command import output_of

import miner
from miner.config.choices import FALLBACK_RATIO
from miner.config.commands import MineConfig, ScoreConfig
from miner.errors import ConfigError, DataError
from miner.io.corpus import open_corpus
from miner.io.outputs import mark_figures

ROOT = Path(__file__).parents[3]
EN = (ROOT / "examples/en.txt").read_text(encoding="utf-8").splitlines()[:600]
DE = (ROOT / "examples/de.txt").read_text(encoding="utf-8").splitlines()[:500]
COLUMNS = ["source_id", "target_id", "margin", "similarity", "source_text", "target_text"]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def mined_by_command(folder: Path, source: list[str], target: list[str], *options: object) -> Any:
    folder.mkdir(exist_ok=True)
    sides = [write(folder / f"{name}.txt", lines) for name, lines in (("source", source), ("target", target))]
    output_of("mine", *sides, "--output", folder / "out", *options)
    return pq.read_table(folder / "out" / "bitext.parquet")


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys, time; start = time.perf_counter(); import miner; seconds = time.perf_counter() - start\n"
    code += "assert not {'numpy', 'torch', 'pyarrow', 'apache_beam', 'pydantic'} & set(sys.modules)\n"
    code += "assert 'mine' in dir(miner)\nprint(seconds)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.1


@pytest.mark.slow
def test_a_small_run_imports_no_large_package() -> None:
    code = "import sys, miner; miner.mine(['Hello.'], ['Hallo.']); miner.score(['a', 'b'], ['c', 'd']); miner.embed(['a'])\n"
    code += "assert not {'apache_beam', 'torch', 'pandas', 'scipy', 'faiss', 'matplotlib'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_warnings_are_printed_where_logging_is_not_configured() -> None:
    code = "import miner; miner.score(['Hello.', 'What?'], ['Hallo.', 'Was?'], source_lang='en', target_lang='de')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["source", "target"]
    assert done.stderr.count("the neighbours among only 2 sentences; give more text of that side as background_") == 2


def test_signatures_state_the_options_of_the_commands() -> None:
    parameters = inspect.signature(miner.mine).parameters
    assert set(MineConfig.model_fields) - set(parameters) == {"sentence_filters", "pair_filters"}
    assert (parameters["k"].default, parameters["margin"].default, parameters["filters"].default) == (4, "ratio", ())
    assert set(ScoreConfig.model_fields) - set(inspect.signature(miner.score).parameters) == {"sentence_filters", "pair_filters", "output"}


@pytest.mark.parametrize(
    "options",
    [
        {"filters": ["recommended", "min_words=4", "script=0.9"], "k": 6, "margin": "distance"},
        {"filters": ["copies=0.2", "hubs=2"], "retrieval": "forward", "threshold": 0.9, "max_chars": 60, "shards": 3},
        {"threshold": "auto", "precision": 0.5, "engine": "exact", "gold": str(ROOT / "examples/gold.en-de.tsv"), "gold_sample": True},
    ],
)
def test_mining_equals_the_command(tmp_path: Path, options: dict[str, Any]) -> None:
    source, target = [*EN, "", EN[3], "  " + EN[5] + " "], [*DE, DE[0], *EN[:20]]
    words: list[object] = ["--source-lang", "en", "--target-lang", "de"]
    if "gold" in options:
        pairs = [line for line in Path(options["gold"]).read_text().splitlines() if max(map(int, line.split("\t"))) <= 500]
        options = {**options, "gold": str(write(tmp_path / "gold.tsv", pairs))}
    for name, value in options.items():
        for item in value if isinstance(value, list) else [value]:
            words += [f"--{name.removesuffix('s') if name == 'filters' else name.replace('_', '-')}", *([] if item is True else [item])]
    expected = mined_by_command(tmp_path, source, target, *words, "--keep-dropped")
    mined = miner.mine(source, target, source_lang="en", target_lang="de", keep_dropped=True, **options)
    assert len(mined) > 20
    assert mined.to_arrow().select(COLUMNS).to_pydict() == expected.select(COLUMNS).to_pydict()
    lines = [(expected[f"{side}_line"].to_numpy() - 1).tolist() for side in ("source", "target")]
    assert [mined.table[f"{side}_row"].to_pylist() for side in ("source", "target")] == lines
    dropped = pq.read_table(tmp_path / "out" / "dropped.parquet").select(mined.dropped_pairs.column_names[:4])
    assert mined.dropped_pairs.select(dropped.column_names).to_pydict() == dropped.to_pydict()


def test_help_of_the_functions_fits_a_screen_and_groups_their_options() -> None:
    for function in (miner.mine, miner.score, miner.embed, miner.load_encoder):
        lines = pydoc.plain(pydoc.render_doc(function)).splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= 150
        for name in inspect.signature(function).parameters:
            assert any(name in line for line in lines), name
    text = pydoc.plain(pydoc.render_doc(miner.mine))
    assert "mine(source=None, target=None, encoder='builtin', *, output=None, from_candidates=None, **options)" in text
    assert "The encoder, and how it runs: pooling, prompt, device='auto'" in text


def test_known_pairs_are_lists(tmp_path: Path) -> None:
    gold = [tuple(map(int, line.split("\t"))) for line in (ROOT / "examples/gold.en-de.tsv").read_text().splitlines()]
    gold = [(source, target) for source, target in gold if source <= len(EN) and target <= len(DE)]
    paths = write(tmp_path / "en.txt", EN), write(tmp_path / "de.txt", DE)
    expected = miner.mine(*paths, gold=write(tmp_path / "gold.tsv", [f"{source}\t{target}" for source, target in gold])).figures
    rows = [(source - 1, target - 1) for source, target in gold]
    repeated = miner.embed([*DE, *DE], lang="und")  # the pairs of a repeated text are those of its first row
    for mined in (
        miner.mine(EN, (text for text in DE), gold=iter(rows)),
        miner.mine(*paths, gold=np.array(gold)),
        miner.mine(miner.embed(EN), repeated, gold=[(source, target + len(DE)) for source, target in rows]),
    ):
        assert {name: mined.figures[name] for name in ("precision", "recall")} == {name: expected[name] for name in ("precision", "recall")}
    assert expected["recall"] > 0.5
    for gold, message in (([("a", "b")], r"\('a', 'b'\) is not a pair of rows"), ([(0, 600)], "gold: there is no line 601 in target")):
        with pytest.raises((ConfigError, DataError), match=message):
            miner.mine(EN, DE, gold=gold)
    planted = [(f"The cat number {number} sleeps.", f"Die Katze Nummer {number}\nschläft.") for number in range(60)]
    assert miner.mine(EN, DE, planted=planted, threshold="auto", precision=0.9).choice.num_evidence == 40


def test_texts_without_letters_are_dropped_and_counted() -> None:
    embeddings = miner.embed(["one two", "12.5", "three", "-- * --"])
    assert embeddings.dropped == {"few_letters": 2}
    assert [bool(vector.any()) for vector in embeddings.vectors] == [True, False, True, False]
    scores = miner.score([*EN[:60], "2024"], [*DE[:60], "2024"])
    assert (len(scores), np.isnan(scores.margins).tolist()) == (61, [False] * 60 + [True])
    assert not np.isnan(miner.score([*EN[:60], "2024"], [*DE[:60], "2024"], filters="none").margins).any()


def test_sides_have_many_forms(tmp_path: Path) -> None:
    parts = [write(tmp_path / "a.txt", DE[:200]), write(tmp_path / "b.txt", DE[200:400])]
    output_of("embed", *parts, "--lang", "de", "--output", tmp_path / "embedded")
    expected = miner.mine(EN, DE[:400], target_lang="de").to_arrow().select(COLUMNS).to_pydict()
    for target in (str(tmp_path / "[ab].txt"), parts, tmp_path / "embedded", miner.embed(DE[:400], lang="de"), (text for text in DE[:400])):
        mined = miner.mine(EN, target, target_lang="de")
        assert mined.to_arrow().select(COLUMNS).to_pydict() == expected
    assert mined.table["target_row"].to_pylist() == [DE.index(text) for text in expected["target_text"]]
    mined = miner.mine(EN, tmp_path / "[ab].txt", threshold=1.3)
    assert [Path(pair["target_file"]).read_text().splitlines()[pair["target_line"] - 1] for pair in mined] == [
        pair["target_text"] for pair in mined
    ]


def test_an_output_is_kept_and_selected_from_again(tmp_path: Path) -> None:
    expected = mined_by_command(tmp_path / "command", EN, DE, "--margin", "distance")
    first = miner.mine(EN, DE, output=tmp_path / "kept")
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("kept/*/embeddings/*.parquet")}
    again = miner.mine(EN, DE, output=tmp_path / "kept", margin="distance")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("kept/*/embeddings/*.parquet")} == times != {}
    assert again.to_arrow().select(COLUMNS).to_pydict() == expected.select(COLUMNS).to_pydict()
    by_candidates = miner.mine(from_candidates=tmp_path / "kept")
    assert by_candidates.to_arrow().select(COLUMNS).to_pydict() == first.to_arrow().select(COLUMNS).to_pydict()


def test_a_bitext_is_shown_and_saved(tmp_path: Path) -> None:
    mined_by_command(tmp_path, EN, DE, "--threshold", 1.2, "--keep-dropped", "--filter", "recommended")
    mined = miner.mine(tmp_path / "source.txt", tmp_path / "target.txt", threshold=1.2, keep_dropped=True, filters=["recommended"])
    mined.save(tmp_path / "saved")
    for name in ("bitext.parquet", "bitext.tsv.gz", "dropped.parquet", "manifest.json", "README.md"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    head, dropped, first, *_, last = repr(mined).splitlines()
    assert head == f"Bitext: {len(mined)} pairs (margin > 1.2)"
    assert dropped.startswith("dropped: ")
    pairs = list(mined)
    assert [first.split()[0], last.split()[0]] == [f"{pairs[row]['margin']:.4f}" for row in (0, -1)]
    assert len(repr(mined).splitlines()) == 6


@pytest.mark.slow
def test_a_transformer_gives_the_vectors_and_pairs_of_the_command(folder: Path) -> None:
    sides = [[tiny.sentence(lang, row) for row in tiny.numbers(300, seed)] for lang, seed in (("eng_Latn", 3), ("deu_Latn", 4))]
    model = str(folder / "model")
    encoder = miner.load_encoder(model, batch_tokens=64, pooling="mean")
    options = ["--encoder", model, "--batch-tokens", 64, "--pooling", "mean", "--threshold", 1.0, "--filter", "none", "--rescore", "none"]
    expected = mined_by_command(folder, *sides, *options)
    unscored = {"threshold": 1.0, "filters": "none", "rescore": "none"}  # embeddings of `miner.embed` have no tokens to rescore by
    mined = miner.mine(*sides, encoder, **unscored)
    assert mined.to_arrow().select(COLUMNS).to_pydict() == expected.select(COLUMNS).to_pydict()
    assert miner.mine(*sides, model, **unscored, batch_tokens=64, pooling="mean").table.equals(mined.table)
    corpus = open_corpus(str(folder / "out" / "source"))
    ids, vectors = corpus.read_vectors(corpus.shards[0].name)
    embeddings = miner.embed([*sides[0], "", sides[0][1]], encoder, lang="en")
    assert (
        dict(zip(embeddings.ids.tolist(), embeddings.vectors.tolist(), strict=True)).items()
        >= dict(zip(ids.tolist(), vectors.tolist(), strict=True)).items()
    )
    assert (embeddings.texts[-2], embeddings.vectors[-2].any(), embeddings.ids[-1]) == ("", False, embeddings.ids[1])
    again = [miner.embed(side, encoder) for side in sides]
    assert miner.mine(*again, **unscored).table.equals(mined.table)
    by_vectors = miner.mine(*[(side.ids, side.vectors) for side in again], threshold=1.0).table
    assert by_vectors.to_pylist() == mined.table.select(by_vectors.column_names).to_pylist()


@pytest.mark.parametrize("backgrounds", [(), ("source", "target")])
def test_scoring_equals_the_command(tmp_path: Path, backgrounds: tuple[str, ...]) -> None:
    source, target = [*EN[:200], "", EN[0]], [*DE[:200], DE[0], DE[1]]
    files = [write(tmp_path / name, lines) for name, lines in (("s", source), ("t", target))]
    texts = {"source": EN[100:500], "target": DE[100:600]}
    words = [word for side in backgrounds for word in (f"--background-{side}", write(tmp_path / f"b-{side}", texts[side]))]
    output_of("score", *files, "--output", tmp_path / "out.tsv", "--source-lang", "en", "--target-lang", "de", *words)
    expected = [line.split("\t")[0] for line in (tmp_path / "out.tsv").read_text().splitlines()]
    options = {f"background_{side}": texts[side] for side in backgrounds}
    scores = miner.score(source, target, source_lang="en", target_lang="de", **options)
    assert [f"{margin:.8f}" for margin in scores.margins] == expected
    assert np.isnan(scores.margins[200])
    assert scores.to_arrow()["target_text"].to_pylist() == target
    embedded = miner.score(miner.embed(source, lang="en"), miner.embed(target, lang="de"), **options)
    assert embedded.to_pandas().equals(scores.to_pandas())


@pytest.mark.slow
def test_filtering_a_bitext_equals_the_command(tmp_path: Path) -> None:
    source, target = [*EN[:200], "", "No.", EN[0]], [*DE[:198], EN[198], "In 1873.", DE[0], "Nein.", DE[1]]
    files = [write(tmp_path / name, lines) for name, lines in (("s", source), ("t", target))]
    words = ["--threshold", "1.01", "--filter", "recommended", "--filter", "min_chars=6", "--top", "150"]
    langs = ["--source-lang", "en", "--target-lang", "de"]
    output_of("score", *files, "--output", tmp_path / "out.tsv", *langs, *words, "--json", tmp_path / "out.json")
    expected = [line.split("\t")[:3] for line in (tmp_path / "out.tsv").read_text().splitlines()]
    options = {"threshold": 1.01, "filters": ["recommended", "min_chars=6"], "top": 150}
    scores = miner.score(source, target, source_lang="en", target_lang="de", **options)
    table = scores.to_arrow()
    assert [[f"{row['margin']:.8f}", row["source_text"], row["target_text"]] for row in table.to_pylist()] == expected
    assert [source[row] for row in scores.rows] == table["source_text"].to_pylist()
    assert scores.dropped == json.loads((tmp_path / "out.json").read_text())["dropped"]
    assert {"no_sentence", "too_short", "near_copy"} <= set(scores.dropped)
    assert len(scores) + sum(scores.dropped.values()) == len(source)


@pytest.mark.slow
def test_results_convert_to_pandas_and_datasets() -> None:
    mined = miner.mine(EN[:300], DE[:300], threshold=1.1)
    frame, dataset = mined.to_pandas(), mined.to_dataset()
    assert frame["source_text"].tolist() == dataset["source_text"][:] == mined.to_arrow()["source_text"].to_pylist()
    assert [EN[row] for row in frame["source_row"]] == frame["source_text"].tolist()
    embeddings = miner.embed(EN[:3])
    np.testing.assert_array_equal(np.array(embeddings.to_dataset()["embedding"][:], dtype=np.float16), embeddings.vectors)


def test_training_and_evaluation_equal_the_commands(folder: Path) -> None:
    config = tiny.config(folder)
    trained = miner.train(config, folder / "out")
    log = trained.to_arrow().to_pylist()
    assert (trained.result.steps, log[-1]["step"]) == (12, 12)
    sides = [write(folder / lang, [tiny.sentence(lang, row) for row in tiny.numbers(60, 9)]) for lang in ("eng_Latn", "deu_Latn")]
    output_of("eval", "retrieval", *sides, "--encoder", trained.folder, "--json", folder / "figures.json")
    evaluated = miner.evaluate("retrieval", trained.load(), source=str(sides[0]), target=str(sides[1]), k=4)
    assert json.loads(json.dumps(mark_figures(evaluated.figures))) == json.loads((folder / "figures.json").read_text())
    values = {row["score"]: row["value"] for row in evaluated.to_arrow().to_pylist()}
    assert values == pytest.approx(evaluated.scores)  # each has one group
    assert miner.evaluate("retrieval", trained.folder, source=str(sides[0]), target=str(sides[1])).scores == evaluated.scores


def test_unusual_input_is_a_clear_error(toy_encoder: Path) -> None:
    unit = np.eye(3, dtype=np.float32)
    for call, message in (
        (lambda: miner.load_encoder().encode("Hello"), r"one text instead of a list of texts; give \['Hello'\]"),
        (lambda: miner.embed("Hello"), "one text instead of a list"),
        (lambda: miner.mine("Hello", ["Hallo"]), "Hello: no such file"),
        (lambda: miner.mine(["Hello"]), "give a source and a target, or from_candidates"),
        (lambda: miner.mine((range(3), unit), ["a"]), "target: vectors on the other side only"),
        (lambda: miner.embed(["a", None]), "text 1 is NoneType, not a string"),
        (lambda: miner.embed(["a", "b\ud800"]), "text 1 has an unpaired surrogate"),
        (lambda: miner.mine(["a"], ["b\udc80"]), "text 0 has an unpaired surrogate"),
        (lambda: miner.embed({"a"}), "set instead of texts; give a list of strings"),
        (lambda: miner.embed(None), "NoneType instead of texts"),
        (lambda: miner.mine({"a": 1}, ["a"]), "dict instead of texts"),
        (lambda: miner.embed(["a"], 42), "encoder: expected a name, or an encoder of miner.load_encoder, not int"),
        (lambda: miner.mine(["a"], ["a"], None), "encoder: expected a name, or an encoder of miner.load_encoder, not NoneType"),
        (lambda: miner.load_encoder(None), "encoder=: expected text, not None"),
        (lambda: miner.embed(["a"], lang=None), "lang=: expected text, not None"),
        (lambda: miner.train(None, "out"), "config: expected a path, the name of a recipe or a mapping of settings, not NoneType"),
        (lambda: miner.train("mpl.yaml", "out"), "mpl.yaml: no such file or recipe; "),
        (lambda: miner.mine(["a"], ["b"], filters=None), "filters: expected a list such as"),
        (
            lambda: miner.mine((np.array([0, 2**63, 3], np.uint64), unit), (range(3), unit)),
            "id 9223372036854775808 needs more than 63 bits",
        ),
        (lambda: miner.evaluate(None), "unknown task None"),
        (lambda: miner.mine([], ["a"]), "source: no sentence"),
        (lambda: miner.mine(["a"], ["b"], k=0), "k=: expected at least 1"),
        (lambda: miner.mine(["a"], ["b"], filters=["nmbers"]), "filters= nmbers: unknown"),
        (lambda: miner.mine(["a"], ["b"], engin="faiss"), "unknown option 'engin'; did you mean 'engine'"),
        (lambda: miner.score(["a"], ["b"], pair_filters={}), "unknown option 'pair_filters'; did you mean 'filters'"),
        (
            lambda: miner.evaluate("sts", zzz=1),
            "unknown option 'zzz'; one of name, side, task, data, track_columns, pooling, prompt, ",
        ),
        (lambda: miner.mine((range(3), 2 * unit), (range(3), unit)), "a vector has length 2, not 1"),
        (lambda: miner.mine(([1, 1, 2], unit), (range(3), unit)), "id 1 occurs twice"),
        (lambda: miner.mine(([1, 2], unit), (range(3), unit)), r"ids of shape \(2,\) and vectors of shape \(3, 3\)"),
        (lambda: miner.mine((range(3), unit), (range(3), unit), filters=["numbers"]), "filters, probabilities and rescoring read texts"),
        (lambda: miner.mine(miner.embed(["one"], str(toy_encoder)), ["two"]), ".* was embedded by .*; give the encoder= that embedded it"),
        (lambda: miner.score(["a"], ["b", "c"]), "ends after 1 lines, and .* continues"),
        (lambda: miner.score(["a"], ["b"], top=0), "top=: expected at least 1"),
        (lambda: miner.score(["a"], ["b"], filters=["hubs"]), "filters= hubs: unknown"),
        (lambda: miner.score((range(3), unit), (range(3), unit), filters=["numbers"]), "filters, probabilities and rescoring read texts"),
        (lambda: miner.evaluate("retreival"), "unknown task 'retreival'; one of "),
        (lambda: miner.mine(["a"], ["b"], source_lang="xx-yy-zz"), "xx-yy-zz"),
    ):
        with pytest.raises((ConfigError, DataError), match=message):
            call()
    with pytest.raises(AttributeError, match="no attribute 'mining_'"):
        miner.mining_  # noqa: B018


def test_texts_may_be_any_iterable_with_an_order(toy_encoder: Path) -> None:
    texts = ["one two", "three four", "one two"]
    expected = miner.embed(texts, str(toy_encoder))
    for other in ((text for text in texts), tuple(texts), np.array(texts), pa.array(texts), pa.chunked_array([texts[:1], texts[1:]])):
        embeddings = miner.embed(other, toy_encoder)
        assert list(embeddings.texts) == texts
        np.testing.assert_array_equal(embeddings.vectors, expected.vectors)


def test_the_default_threshold_of_another_encoder_warns(toy_encoder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert miner.mine(["one two"], ["un deux"], str(toy_encoder)).threshold == FALLBACK_RATIO
    assert f"the default threshold {FALLBACK_RATIO} is a fallback, the ratio of CRISS" in caplog.text
    assert command("--help").exit_code == 0


@pytest.mark.parametrize(("margin", "warns"), [("absolute", True), ("ratio", False)])
def test_probabilities_by_a_margin_that_is_not_relative_warn(margin: str, warns: bool, caplog: pytest.LogCaptureFixture) -> None:
    miner.mine(EN[:20], DE[:20], margin=margin, min_probability=0.5)
    assert ("probabilities are not fitted to the corpora" in caplog.text) == warns


class OwnEncoder:
    """An encoder that no folder holds."""

    dim, fingerprint = 8, "own-1"

    def encode(self, texts: list[str]) -> np.ndarray:
        rows = np.array([np.random.default_rng(len(text)).normal(size=self.dim) for text in texts], dtype=np.float32).reshape(-1, self.dim)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_an_encoder_of_the_callers_own(tmp_path: Path) -> None:
    sides = ["a" * length for length in range(1, 20)], ["b" * length for length in range(10, 30)]
    pairs = [
        (pair["source_text"], pair["target_text"])
        for pair in miner.mine(*sides, OwnEncoder(), output=tmp_path / "out", margin="absolute", threshold=0.99, filters="none")
    ]
    assert sorted(pairs) == [("a" * length, "b" * length) for length in range(10, 20)]
    assert open_corpus(str(tmp_path / "out" / "source")).encoder == "OwnEncoder"
    embedded = [miner.embed(side, OwnEncoder()) for side in sides]
    again = miner.mine(*embedded, OwnEncoder(), margin="absolute", threshold=0.99, filters="none")
    assert [(pair["source_text"], pair["target_text"]) for pair in again] == pairs
    assert len(miner.score(*(side[:19] for side in sides), OwnEncoder())) == 19


def test_a_table_is_not_a_list_of_texts() -> None:
    table = pa.table({"text": DE[:3]})
    for frame in (table, table.to_pandas()):
        for call in (lambda side: miner.mine(side, DE), lambda side: miner.score(side, DE), miner.embed):
            with pytest.raises(ConfigError, match=f"{type(frame).__name__} instead of texts; give one of its columns, such as frame"):
                call(frame)
    assert len(miner.embed(table.to_pandas()["text"])) == len(miner.embed(table["text"])) == 3


@pytest.mark.parametrize("option", ["max_tokens", "batch_tokens"])
def test_options_of_transformers_are_errors_with_the_built_in_encoder(option: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{option}=: .* is a static encoder"):
        miner.mine(EN[:9], DE[:9], **{option: 16})
    sides = [write(tmp_path / name, lines) for name, lines in (("a", EN[:9]), ("b", DE[:9]))]
    result = command("mine", *sides, "--output", tmp_path / "out", f"--{option.replace('_', '-')}", 16)
    assert (result.exit_code, f"--{option.replace('_', '-')}: " in result.stderr) == (1, True)
    assert not (tmp_path / "out").exists()


def test_a_precision_that_chooses_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    miner.mine(EN[:50], DE[:50], precision=0.999)
    assert "the precision 0.999 has no effect on this threshold" in caplog.text


class _Model:
    """An encoder of another library, as far as it has what it needs."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)

    def encode(self, texts: list[str]) -> object:
        return [[1.0] for _ in texts]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "encoder: _Model has no dim and no fingerprint; an encoder has dim, fingerprint and encode"),
        ({"dim": 1}, "encoder: _Model has no fingerprint; an encoder has"),
        ({"save_pretrained": print}, "encoder: _Model has no dim and no fingerprint; save the model, and give its folder"),
        ({"dim": 1, "fingerprint": "f"}, "_Model-.* returned list instead of an array of vectors"),
    ],
)
def test_encoders_of_other_libraries_are_refused_in_a_sentence(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(miner.errors.MinerError, match=message) as caught:
        miner.mine(["one"], ["un"], encoder=_Model(**attributes))
    assert "\n" not in str(caught.value)


def test_evaluate_takes_lists_and_iterables(toy_encoder: Path) -> None:
    english, french = ["one two", "three\n", "four five"], ("un deux", "trois", "quatre cinq")
    for source in (english, iter(english)):
        scores = miner.evaluate("retrieval", toy_encoder, source=source, target=french).scores
        assert scores["accuracy, cosine"] == 1
    with pytest.raises(ConfigError, match="text 0 is int, not a string"):
        miner.evaluate("retrieval", toy_encoder, source=[1], target=french)


def test_help_names_types_as_they_are_written() -> None:
    assert str(inspect.signature(miner.mine).parameters["source"].annotation) == "Side | None"
    assert len(pydoc.render_doc(miner.mine).splitlines()) < 40


@pytest.mark.parametrize("texts", [[], [""], [" ", "\t"]])
def test_empty_input_is_the_same_error_everywhere(texts: list[str]) -> None:
    sides = {"source": texts, "target": texts}
    calls = (
        lambda: miner.mine(**sides),
        lambda: miner.score(**sides),
        lambda: miner.evaluate("retrieval", **sides),
        lambda: miner.embed(texts),
    )
    for function in calls:
        with pytest.raises(miner.errors.DataError, match=r"^(source|texts): no sentence; give texts that are not empty$"):
            function()


def test_lists_without_letters_are_named_by_their_argument() -> None:
    with pytest.raises(miner.errors.DataError, match=r"^target: the filters drop every sentence"):
        miner.mine(["one"], ["1", "2"])


def test_embed_counts_the_texts_that_it_drops() -> None:
    embeddings = miner.embed(["one two", "x" * 20, "", "three"], max_chars=10)
    assert embeddings.dropped == {"empty": 1, "too_long": 1}
    assert "dropped: 1 empty, 1 too long" in repr(embeddings)


@pytest.mark.slow
def test_training_prints_no_warnings_of_torch(folder: Path) -> None:
    config = {**tiny.config(folder, steps=1), "encoder": {"kind": "static", "model": "builtin"}}
    script = f"import miner; miner.train({config!r}, {str(folder / 'out')!r})"  # in a new process, since torch warns once
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Warning" not in done.stderr
