"""Languages by a fastText model, which the tests train on words of invented languages."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command import error_of, miner, output_of

import miner as package
from miner.filters.language import language_likelihood, load_identifier

fasttext = pytest.importorskip("fasttext", reason="pip install 'bitext-miner[fasttext]'")

WORDS = {
    "__label__eng_Latn": "one two three four five six seven eight nine ten",
    "__label__quc_Latn": "jun keb oxib kajib job waqib wuqub wajxaqib belejeb lajuj",  # K'iche', which py3langid does not know
    "__label__zho_Hani": "一二三 四五六 七八九 十百千 万亿兆",
    "__label__noise": "<br> &amp; </td> <p> href=",
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fasttext")
    random = np.random.default_rng(0)
    lines = [f"{label} {' '.join(random.choice(words.split(), 5))}" for label, words in WORDS.items() for _ in range(100)]
    (folder / "train.txt").write_text("\n".join(lines), encoding="utf-8")
    classifier = fasttext.train_supervised(
        str(folder / "train.txt"), epoch=20, lr=0.5, dim=8, minn=2, maxn=3, bucket=500, thread=1, verbose=0, seed=1
    )
    classifier.save_model(str(folder / "lid.bin"))
    return folder / "lid.bin"


def test_likelihood_is_that_of_the_model(model: Path) -> None:
    texts = ["one two three", "jun keb oxib"]
    names, probabilities = fasttext.load_model(str(model)).predict("one two three", k=-1)
    assert names[0] == "__label__eng_Latn"
    expected = dict(zip(names, probabilities, strict=True))["__label__quc_Latn"] / probabilities[0]
    np.testing.assert_allclose(language_likelihood(texts, "quc_Latn", str(model)), [expected, 1], atol=1e-6)
    assert language_likelihood(["一二三 四五六"], "zho_Hans", str(model)) == [1]  # the model has one label for both scripts
    assert np.isnan(language_likelihood(texts, "deu_Latn", str(model))).all()
    assert np.isnan(language_likelihood(texts, "und", str(model))).all()
    assert not load_identifier().find_labels("quc_Latn")


def test_embed_keeps_sentences_in_the_language(model: Path, toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "quc.txt").write_text("jun keb oxib\none two three\nkajib job\nfour five\n")
    options = ("--lang", "quc", "--encoder", toy_encoder, "--filter", "language=0.5", "--lang-id-model", model)
    assert "cannot rate" not in miner("embed", tmp_path / "quc.txt", "--output", tmp_path / "out", *options).stderr
    shards = (tmp_path / "out" / "sentences").glob("part-*.parquet")
    assert {text for shard in shards for text in pq.read_table(shard)["text"].to_pylist()} == {"jun keb oxib", "kajib job"}
    without = error_of("embed", tmp_path / "quc.txt", "--output", tmp_path / "out", *options[:-2])
    assert "lang_id_model" in without  # other settings than those of the folder


def test_mine_drops_pairs_in_other_languages(model: Path, toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "en.txt").write_text("one two three\nfour five six\n")
    (tmp_path / "quc.txt").write_text("un deux trois\nfour five six\n")
    options = ("--encoder", toy_encoder, "--threshold", "0", "--source-lang", "en", "--target-lang", "quc")
    filters = ("--filter", "languages=0.5", "--lang-id-model", model, "--json", tmp_path / "figures.json")
    output_of("mine", tmp_path / "en.txt", tmp_path / "quc.txt", "--output", tmp_path / "out", *options, *filters)
    dropped = json.loads((tmp_path / "figures.json").read_text())["dropped"]["other_language"]
    assert dropped >= 1
    sides = ["one two three", "four five six"], ["un deux trois", "four five six"]
    bitext = package.mine(
        *sides,
        str(toy_encoder),
        threshold=0,
        source_lang="en",
        target_lang="quc",
        filters=["languages=0.5"],
        lang_id_model=str(model),
    )
    assert bitext.dropped["other_language"] == dropped


@pytest.mark.slow
def test_score_keeps_pairs_in_both_languages(model: Path, tmp_path: Path) -> None:
    english, others = ["one two three", "four five six", "seven eight"], ["jun keb oxib", "four five six", "wuqub wajxaqib"]
    for name, lines in (("en", english), ("quc", others)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    options = ("--source-lang", "en", "--target-lang", "quc", "--lang-id-model", model, "--margin", "distance")
    for name in ("language", "languages"):
        output = tmp_path / f"{name}.tsv"
        output_of("score", tmp_path / "en.txt", tmp_path / "quc.txt", "--output", output, *options, "--filter", f"{name}=0.5")
        assert [line.split("\t")[1] for line in output.read_text().splitlines()] == [english[0], english[2]]
        settings = {
            "source_lang": "en",
            "target_lang": "quc",
            "filters": [f"{name}=0.5"],
            "lang_id_model": str(model),
            "margin": "distance",
        }
        assert package.score(english, others, **settings).rows.tolist() == [0, 2]


def test_files_that_are_no_language_identifier_are_errors(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("jun keb oxib\n")
    options = ("embed", tmp_path / "text.txt", "--output", tmp_path / "out", "--lang", "quc", "--filter", "language", "--lang-id-model")
    assert "no such file" in error_of(*options, tmp_path / "missing.bin")
    assert "not a fastText model" in error_of(*options, tmp_path / "text.txt")
    (tmp_path / "train.txt").write_text("__label__positive fine\n__label__negative poor\n" * 20)
    other = fasttext.train_supervised(str(tmp_path / "train.txt"), epoch=1, dim=2, thread=1, verbose=0)
    other.save_model(str(tmp_path / "sentiment.bin"))
    assert "none of its labels is a language" in error_of(*options, tmp_path / "sentiment.bin")
