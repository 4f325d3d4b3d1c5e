"""Two encoders of different models, one for each language: trained together, saved as one folder, used by every command."""

import json
import shutil
from pathlib import Path
from typing import Any

import dense
import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny
import torch
import transformers
from command import error_of, miner, output_of
from safetensors.torch import load_file, save_file
from tiny import NUMBERS, SPECIAL

from miner.encoders import load_encoder
from miner.encoders.pair import PairEncoder
from miner.errors import ConfigError, MinerError, ModelError
from miner.io.corpus import open_corpus
from miner.training import run
from miner.training.config import TrainConfig
from miner.training.steps.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models are faster in one thread

ENGLISH, GERMAN = ([*SPECIAL, *NUMBERS[lang]] for lang in ("eng_Latn", "deu_Latn"))
DIGITS = tiny.numbers(60, seed=9)


def write_inputs(folder: Path) -> dict[str, Any]:
    """Save an English model and a German one, which differ in layers and vocabulary; return a config that trains both."""
    tiny.save_transformer(folder / "english", words=ENGLISH)
    tiny.save_transformer(folder / "german", words=GERMAN, layers=2, seed=1)
    tiny.write_pairs(folder / "pairs.tsv", rows=600)
    values = tiny.config(folder, steps=150, batch_size=64, lr=5e-3)
    values["encoder"] |= {"model": str(folder / "english"), "positive_model": str(folder / "german")}
    values["encoder"] |= {"languages": ["en"], "positive_languages": ["de"]}
    return values


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an encoder with two sides, with held-out sentences beside it: en.txt, and de.txt in another order."""
    folder = tmp_path_factory.mktemp("two-encoders")
    run.train(TrainConfig(**write_inputs(folder)), str(folder / "run"))
    for lang in ("eng_Latn", "deu_Latn"):
        (folder / f"{lang[:2]}.txt").write_text("".join(tiny.sentence(lang, digits) + "\n" for digits in DIGITS))
    return folder / "run" / "encoder"


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may edit: without the checksums."""
    return Path(shutil.copytree(trained, tmp_path / "encoder", ignore=shutil.ignore_patterns("checksums.json")))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.slow
def test_one_folder_holds_both_sides_with_their_tokenizers(trained: Path) -> None:
    assert sorted(path.name for path in trained.iterdir()) == ["checksums.json", "miner.json", "source", "target"]
    assert not (trained.parent / "encoder-positive").exists()
    sides = {"source": {"folder": "source", "languages": ["eng_Latn"]}, "target": {"folder": "target", "languages": ["deu_Latn"]}}
    assert json.loads((trained / "miner.json").read_text()) == {"kind": "pair", "format": 1, "dim": tiny.WIDTH, "sides": sides}
    for side, words, layers in (("source", ENGLISH, 3), ("target", GERMAN, 2)):
        tokenizer = transformers.AutoTokenizer.from_pretrained(trained / side)
        assert sorted(tokenizer.get_vocab()) == sorted(words)
        assert transformers.AutoConfig.from_pretrained(trained / side).num_hidden_layers == layers


def test_a_side_encodes_as_its_folder_does(trained: Path) -> None:
    pair = load_encoder(str(trained))
    assert isinstance(pair, PairEncoder)
    texts = ["one two", "eins zwei drei"]
    for side in ("source", "target"):
        np.testing.assert_array_equal(pair.side(side).encode(texts), load_encoder(str(trained / side)).encode(texts))
    assert pair.side("source").fingerprint == pair.side("target").fingerprint == pair.fingerprint
    with pytest.raises(ConfigError, match="two sides; choose the one that encodes the texts with --side"):
        pair.encode(texts)


@pytest.mark.parametrize("side", ["source", "target"])
def test_fingerprint_changes_with_the_weights_of_either_side(copy: Path, side: str) -> None:
    before = load_encoder(str(copy)).fingerprint
    edit(copy / "miner.json", sides={"source": {"folder": "source"}, "target": {"folder": "target"}})
    assert load_encoder(str(copy)).fingerprint == before  # languages do not change vectors
    weights = load_file(copy / side / "model.safetensors")
    name = next(name for name in weights if name.endswith("word_embeddings.weight"))
    save_file({**weights, name: weights[name] + 0.01}, copy / side / "model.safetensors", metadata={"format": "pt"})
    assert load_encoder(str(copy)).fingerprint != before


@pytest.mark.parametrize(("sources", "targets"), [("en", "de"), ("de", "en")])
def test_embedded_sides_are_mined(trained: Path, tmp_path: Path, sources: str, targets: str) -> None:
    """The languages select the sides, so the order of the corpora does not matter."""
    texts = trained.parents[1]
    for lang in (sources, targets):
        output_of("embed", texts / f"{lang}.txt", "--lang", lang, "--output", tmp_path / lang, "--encoder", trained)
    assert [open_corpus(str(tmp_path / lang)).side for lang in ("en", "de")] == ["source", "target"]
    output_of("mine", tmp_path / sources, tmp_path / targets, "--output", tmp_path / "mined", "--threshold", "1.0")
    pairs = [line.split("\t")[1:] for line in gunzip(tmp_path / "mined" / "bitext.tsv.gz")]
    expected = {(tiny.sentence("eng_Latn", digits), tiny.sentence("deu_Latn", digits)) for digits in DIGITS}
    mined = {tuple(pair if sources == "en" else pair[::-1]) for pair in pairs}
    assert len(mined & expected) >= 0.8 * len(expected)


def gunzip(path: Path) -> list[str]:
    import gzip

    return gzip.decompress(path.read_bytes()).decode().splitlines()


@pytest.mark.slow
def test_texts_are_mined_and_scored_by_the_side_of_their_role(copy: Path, trained: Path, tmp_path: Path) -> None:
    """Without recorded languages, SOURCE is encoded by the source side and TARGET by the target side."""
    edit(copy / "miner.json", sides={"source": {"folder": "source"}, "target": {"folder": "target"}})
    texts = trained.parents[1]
    output_of("mine", texts / "en.txt", texts / "de.txt", "--output", tmp_path / "mined", "--encoder", copy, "--threshold", "1.0")
    assert [open_corpus(str(tmp_path / "mined" / side)).side for side in ("source", "target")] == ["source", "target"]
    output_of("score", texts / "en.txt", texts / "de.txt", "--output", tmp_path / "scored.tsv", "--encoder", copy)
    margins = [float(line.split("\t")[0]) for line in (tmp_path / "scored.tsv").read_text().splitlines()]
    assert np.mean(np.array(margins) > 1) > 0.9
    result = miner("embed", texts / "de.txt", "--lang", "de", "--output", tmp_path / "de", "--encoder", copy)
    assert result.exit_code == 1
    assert "no side for deu_Latn (source: no languages; target: no languages); choose one with --side" in result.output


def test_an_output_of_the_other_side_is_an_error(copy: Path, trained: Path, tmp_path: Path) -> None:
    arguments = ["embed", trained.parents[1] / "de.txt", "--output", tmp_path / "de", "--encoder", copy]
    output_of(*arguments, "--side", "target")
    result = miner(*arguments, "--side", "source")
    assert result.exit_code == 1
    assert "side" in result.output


def test_side_of_an_encoder_without_sides_is_an_error(trained: Path, tmp_path: Path) -> None:
    result = miner("embed", trained.parents[1] / "de.txt", "--output", tmp_path / "de", "--side", "source")
    assert result.exit_code == 1
    assert "--side source: builtin is one encoder for all texts; remove the option" in result.output


def accuracy(trained: Path, sources: str, targets: str) -> float:
    """Compute retrieval by cosine from the folders of the sides, both ways."""
    sides = {"en": "source", "de": "target"}
    lines = {lang: (trained.parents[1] / f"{lang}.txt").read_text().splitlines() for lang in sides}
    first, second = (load_encoder(str(trained / sides[lang])).encode(lines[lang]) for lang in (sources, targets))
    similarity = first.astype(np.float16).astype(np.float64) @ second.astype(np.float16).astype(np.float64).T
    hits = [similarity.argmax(axis=axis) == np.arange(len(similarity)) for axis in (1, 0)]
    return float(np.mean(hits))


def test_evaluations_of_two_languages_use_both_sides(trained: Path, tmp_path: Path) -> None:
    texts = trained.parents[1]
    expected = accuracy(trained, "en", "de")
    assert expected > 0.8
    output_of("eval", "retrieval", texts / "en.txt", texts / "de.txt", "--encoder", trained, "--json", tmp_path / "r.json", "--no-report")
    assert json.loads((tmp_path / "r.json").read_text())["accuracy"]["cosine"]["mean"] == pytest.approx(expected)
    pairs = zip((texts / "de.txt").read_text().splitlines(), (texts / "en.txt").read_text().splitlines(), strict=True)
    (tmp_path / "tatoeba").mkdir()
    (tmp_path / "tatoeba" / "tatoeba.deu-eng.tsv").write_text("".join(f"{german}\t{english}\n" for german, english in pairs))
    arguments = ["--data", tmp_path / "tatoeba", "--encoder", trained, "--json", tmp_path / "t.json", "--no-report"]
    output_of("eval", "tatoeba", *arguments)
    assert json.loads((tmp_path / "t.json").read_text())["average"]["all"] == pytest.approx(expected)
    output_of("eval", "alignment", texts / "en.txt", texts / "de.txt", "--encoder", trained, "--json", tmp_path / "a.json", "--no-report")
    english, german = (load_encoder(str(trained / side)).encode((texts / f"{lang}.txt").read_text().splitlines()) for side, lang in
                       (("source", "en"), ("target", "de")))  # fmt: skip
    distance = float(np.square(english.astype(np.float64) - german).sum(axis=1).mean())
    assert json.loads((tmp_path / "a.json").read_text())["alignment"] == pytest.approx(distance, rel=1e-6)


def write_bucc(folder: Path) -> tuple[list[str], list[str]]:
    """Write a sample split of German and English: German in the order of DIGITS, English backwards, five of each side alone."""
    german = [tiny.sentence("deu_Latn", digits) for digits in DIGITS[:-5]]
    english = [tiny.sentence("eng_Latn", digits) for digits in DIGITS[5:]][::-1]
    folder.mkdir()
    for lang, texts in (("de", german), ("en", english)):
        lines = [f"{lang}-{number:09}\t{text}\n" for number, text in enumerate(texts, 1)]
        (folder / f"de-en.sample.{lang}").write_text("".join(lines))
    gold = [f"de-{row + 1:09}\ten-{len(DIGITS) - row:09}\n" for row in range(5, len(DIGITS) - 5)]
    (folder / "de-en.sample.gold").write_text("".join(gold))
    return german, english


def test_bucc_is_mined_by_the_side_of_each_language(copy: Path, trained: Path, tmp_path: Path) -> None:
    """German, the source of BUCC, is the language of the side `target`."""
    german, english = write_bucc(tmp_path / "bucc")
    x, y = (load_encoder(str(trained / side)).encode(texts).astype(np.float16) for side, texts in (("target", german), ("source", english)))
    mined = dense.mine(x, y, np.arange(len(x)), np.arange(len(y)), 3, "distance")
    is_gold = [source + target == len(DIGITS) - 1 and source >= 5 for _, source, target in mined]
    num_gold = len(DIGITS) - 10
    best = max(2 * sum(is_gold[:count]) / (count + num_gold) for count in range(1, len(mined) + 1))
    options = ["--data", tmp_path / "bucc", "--protocol", "sample", "--margin", "distance", "--k", "3", "--json", tmp_path / "f.json"]
    output_of("eval", "bucc", *options, "--encoder", trained)
    assert json.loads((tmp_path / "f.json").read_text())["mean"]["f1"] == pytest.approx(best)
    assert best > 0.8
    edit(copy / "miner.json", sides={"source": {"folder": "source"}, "target": {"folder": "target"}})
    assert "no side for de (source: no languages; target: no languages)" in error_of("eval", "bucc", *options, "--encoder", copy)


@pytest.mark.slow
def test_a_run_embeds_each_corpus_with_the_side_of_its_language(trained: Path, tmp_path: Path) -> None:
    texts = trained.parents[1]
    corpora = {lang: str(texts / f"{lang}.txt") for lang in ("de", "en")}
    values = {"output": str(tmp_path / "out"), "corpora": corpora, "encoder": str(trained), "threshold": 1.0}
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps(values))  # JSON is YAML
    output_of("run", config)
    assert [open_corpus(str(tmp_path / "out" / "corpora" / lang)).side for lang in ("de", "en")] == ["target", "source"]
    arguments = ["--source-lang", "de", "--target-lang", "en", "--encoder", trained, "--threshold", "1.0"]
    output_of("mine", texts / "de.txt", texts / "en.txt", "--output", tmp_path / "mined", *arguments)
    by_run = pq.read_table(tmp_path / "out" / "pairs" / "de-en" / "bitext.parquet")
    by_mine = pq.read_table(tmp_path / "mined" / "bitext.parquet")
    columns = ["margin", "source_text", "target_text"]
    assert by_run.select(columns) == by_mine.select(columns)
    assert by_run.num_rows >= 0.8 * len(DIGITS)


def test_a_run_refuses_a_corpus_that_no_side_was_trained_for(trained: Path, tmp_path: Path) -> None:
    corpora = {lang: str(trained.parents[1] / "de.txt") for lang in ("de", "ru")}
    config = tmp_path / "run.yaml"
    config.write_text(json.dumps({"output": str(tmp_path / "out"), "corpora": corpora, "encoder": str(trained), "threshold": 1.0}))
    assert "no side for rus_Cyrl (source: eng_Latn; target: deu_Latn)" in error_of("run", config)
    assert not (tmp_path / "out").exists()


def test_evaluations_of_one_language_need_a_side(trained: Path, tmp_path: Path) -> None:
    rows = [["one two", "one two", 5], ["one two", "nine eight", 1], ["three", "three four", 3]]
    path = tiny.write_tsv(tmp_path / "sts.tsv", ["sentence1", "sentence2", "score"], rows)
    result = miner("eval", "sts", "--data", path, "--encoder", trained)
    assert result.exit_code == 1
    assert "an encoder with two sides; choose the one that encodes the texts with --side" in result.output
    output_of("eval", "sts", "--data", path, "--encoder", trained, "--side", "source", "--json", tmp_path / "sts.json", "--no-report")
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"data: {tmp_path}\ntasks:\n  - {{ task: sts, data: sts.tsv, side: source }}\n")
    output_of("eval", "suite", "--config", suite, "--encoder", trained, "--json", tmp_path / "suite.json", "--no-report")
    alone = json.loads((tmp_path / "sts.json").read_text())
    within = json.loads((tmp_path / "suite.json").read_text())["encoders"][str(trained)]["sts"]
    assert within["mean"] == alone["mean"]


class StoppedError(Exception):
    """Stands for a killed process."""


def test_resumed_run_of_two_models_equals_an_uninterrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = write_inputs(tmp_path)
    values["training"] |= {"steps": 8, "checkpoint_every": 3, "batch_size": 16}
    values["objective"] = [{"loss": "momentum", "queue": 40}]
    run.train(TrainConfig(**values), str(tmp_path / "whole"))
    take_step = Trainer.take_step

    def stop_at_step(self: Trainer, *arguments: Any) -> None:
        if self.progress.step == 5:
            raise StoppedError
        take_step(self, *arguments)

    monkeypatch.setattr(Trainer, "take_step", stop_at_step)
    with pytest.raises(StoppedError):
        run.train(TrainConfig(**values), str(tmp_path / "resumed"))
    monkeypatch.undo()
    run.train(TrainConfig(**values), str(tmp_path / "resumed"), resume=True)
    fingerprints = [load_encoder(str(tmp_path / name / "encoder")).fingerprint for name in ("whole", "resumed")]
    assert fingerprints[0] == fingerprints[1]


def test_training_continues_from_both_sides(copy: Path, trained: Path, tmp_path: Path) -> None:
    values = write_inputs(tmp_path)
    values["encoder"] = {"kind": "transformer", "model": str(copy), "pooling": "mean", "towers": "pair"}
    trainer = run.prepare(TrainConfig(**values), tmp_path / "second")[0]
    for tower, side in zip(trainer.towers, ("source", "target"), strict=True):
        weights = load_file(trained / side / "model.safetensors")
        torch.testing.assert_close(tower.model.embeddings.word_embeddings.weight.detach(), weights["embeddings.word_embeddings.weight"])


def test_models_of_different_widths_are_refused(tmp_path: Path) -> None:
    values = write_inputs(tmp_path)
    tiny.save_transformer(tmp_path / "german", words=GERMAN, width=16)
    with pytest.raises(ConfigError, match=r"english has 32 dimensions and .*german has 16; choose two models"):
        run.train(TrainConfig(**values), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"towers": "shared"}, "need two encoders; set towers to pair"),
        ({"languages": ["en", "de"]}, "de is in languages and positive_languages"),
        ({"languages": ["english please"]}, "unknown language code"),
        ({"positive_model": "./nowhere"}, "nowhere"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    values = write_inputs(tmp_path)
    values["encoder"] |= changes
    with pytest.raises((MinerError, ValueError), match=message):
        run.train(TrainConfig(**values), str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"format": 2}, "format 2, expected 1"),
        ({"sides": {"source": {"folder": "source"}}}, "no folder of both sides"),
        ({"sides": {"source": {"folder": "source"}, "target": {"folder": "../elsewhere"}}}, "is not a folder in"),
        ({"dim": 7}, "32 dimensions, but miner.json has 7"),
        ({"sidez": {}}, "unknown key 'sidez'; correct it"),
    ],
)
def test_damaged_folders_are_refused(copy: Path, content: dict[str, Any], message: str) -> None:
    edit(copy / "miner.json", **content)
    with pytest.raises(ModelError, match=message):
        load_encoder(str(copy)).side("source")  # type: ignore[attr-defined]
