"""The static encoder against a reference of one text at a time, in any batch, and its errors."""

import io
import random
import shutil
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load, save

from miner.config.commands import EncoderSettings
from miner.encoders import Encoder, load_encoder, static, vector_sums
from miner.encoders.publish import copy_encoder
from miner.errors import ConfigError, MinerError, ModelError

EXAMPLES = Path(__file__).parents[3] / "examples"


def reference(folder: Path, text: str) -> np.ndarray:
    """Return the normalized mean of the piece vectors of one text."""
    from safetensors.numpy import load_file

    tensors = load_file(folder / "vectors.safetensors")
    vectors = tensors["vectors"].astype(np.float64) * tensors["scales"].astype(np.float64)[:, None]
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    ids = pieces.encode(text)
    mean = vectors[ids].mean(axis=0) if ids else np.zeros(vectors.shape[1])
    return mean / (np.linalg.norm(mean) or 1.0)


def test_vectors_equal_the_reference(toy_encoder: Path) -> None:
    texts = ["one two", "", "deux", "unknownword", "three three one", "trois trois un", "   "]
    vectors = load_encoder(str(toy_encoder)).encode(texts)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, [reference(toy_encoder, text) for text in texts], atol=1e-6)
    np.testing.assert_array_equal(vectors[[1, 3, 6]], 0)  # without a known piece
    np.testing.assert_allclose(vectors[4], vectors[5], atol=1e-6)


def test_vectors_do_not_depend_on_the_batch(toy_encoder: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    texts = [f"one {'two ' * (n % 7)} dix" for n in range(2 * vector_sums.MAX_SLICE_TEXTS + 3)]
    alone = np.concatenate([encoder.encode([text]) for text in texts[:7]])
    np.testing.assert_array_equal(encoder.encode(texts), np.tile(alone, (len(texts) // 7 + 1, 1))[: len(texts)])


def test_preloading_changes_no_vector_and_leaves_errors_to_the_use(toy_encoder: Path, tmp_path: Path) -> None:
    encoder = static.StaticEncoder(toy_encoder)
    encoder.preload(1 << 30)
    np.testing.assert_array_equal(encoder.encode(["one two", "un"]), load_encoder(str(toy_encoder)).encode(["one two", "un"]))
    folder = shutil.copytree(toy_encoder, tmp_path / "damaged")
    (folder / "checksums.json").unlink(missing_ok=True)
    (folder / "sentencepiece.model").write_bytes(b"no model")
    damaged = static.StaticEncoder(folder)
    damaged.preload(1 << 30)
    with pytest.raises(ModelError, match="not a SentencePiece model"):
        damaged.encode(["one"])


def test_splitting_by_word_equals_splitting_by_sentence() -> None:
    """On real sentences in three scripts, on marks that combine with a space or a word, and on all kinds of spaces."""
    encoder = load_encoder("builtin")
    texts = [line for path in sorted(EXAMPLES.glob("*.txt")) for line in path.read_text(encoding="utf-8").splitlines()[:500]]
    texts += [
        f"{mark}a {mark} b{mark} \u0301 {mark}\u0300\u0301c" for mark in "\u0308\u3099\u3000\u00a8\u200d\u00a0\u2581\ufb01\U0001f469 "
    ]
    texts += ["  a   b ", " ", "", "\u2581", "日本語のテキスト、空白なし。", "ｆｕｌｌ　ｗｉｄｔｈ"]
    texts += ["ก ข  ค", " น้ำ ดี a ก b", "\u1025\u102e \u1025\u102e", "ក\u200bខ ក\u00a0ខ\u3000ក", "๑ ๒ ກ"]  # joined by the normalisation
    assert encoder.splits_by_word
    pieces = encoder.split_texts(texts)
    assert len(pieces.ids) > static.MAX_PART_CHARACTERS  # too many for a part of the model
    assert [pieces.ids[start:end].tolist() for start, end in pairwise(pieces.bounds)] == encoder.pieces.encode(texts)


def test_word_cache_is_bounded_and_does_not_change_vectors(toy_encoder: Path) -> None:
    encoder = static.StaticEncoder(toy_encoder, max_cached_words=6)
    for words in (["one", "two", "deux"], ["two", "new", "trois"], ["dix", "one", "deux", "five"], ["one"]):
        vectors = encoder.encode([f"{word} three {word}" for word in words])
        np.testing.assert_allclose(vectors, [reference(toy_encoder, f"{word} three {word}") for word in words], atol=1e-6)
        assert len(encoder.words.table.words) <= 6


def test_pieces_that_cross_spaces(tmp_path: Path) -> None:
    train = sentencepiece.SentencePieceTrainer.train
    model = io.BytesIO()
    lines = [f"good morning {name} how are {others}" for name in ("sir", "madam", "friend") for others in ("you", "they")] * 20
    train(sentence_iterator=iter(lines), model_writer=model, vocab_size=40, model_type="bpe", split_by_whitespace=False, minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    static.save(tmp_path, np.random.default_rng(0).normal(size=(40, 8)), model.getvalue())
    encoder = load_encoder(str(tmp_path))
    assert not encoder.splits_by_word
    assert any("\u2581" in piece[1:] for piece in pieces.encode(lines[0], out_type=str))
    np.testing.assert_allclose(encoder.encode(lines[:3]), [reference(tmp_path, line) for line in lines[:3]], atol=1e-6)


def test_few_texts_are_split_by_a_part_of_the_model() -> None:
    encoder = static.StaticEncoder(load_encoder("builtin").folder)  # type: ignore[attr-defined]
    texts = [line for path in sorted(EXAMPLES.glob("*.txt")) for line in path.read_text(encoding="utf-8").splitlines()[600:660:4]]
    texts += ["", " ", "\u2581", "<unk> <s>", "\x00 \U0001f600\U0001f600 zzzz", "x" * 300, "日本語のテキスト" * 9, "ｆｕｌｌ　\ufb01"]
    pieces = [encoder.split_texts([text]) for text in texts] + [encoder.split_texts(texts)]
    assert "_pieces" not in encoder.__dict__
    whole = encoder.pieces.encode(texts)
    assert [part.ids.tolist() for part in pieces] == [*whole, list(chain.from_iterable(whole))]


@pytest.mark.parametrize("options", [{"model_type": "unigram", "byte_fallback": True}, {"model_type": "bpe"}])
def test_parts_of_models_with_other_types_of_pieces(options: dict[str, object], tmp_path: Path) -> None:
    lines = (EXAMPLES / "de.txt").read_text(encoding="utf-8").splitlines()[:400]
    for symbols in (["<user>"], ["Tom hat"], ["u" * 130]):  # the second crosses a space, the third is in another layout
        model = io.BytesIO()
        train = sentencepiece.SentencePieceTrainer.train
        train(sentence_iterator=iter(lines), model_writer=model, vocab_size=600, user_defined_symbols=symbols, minloglevel=2, **options)
        static.save(tmp_path, np.ones((600, 8)), model.getvalue())
        texts = [*lines[:20], "Tom hat <user> Tom", "日本 ß", "u" * 200]
        pieces = static.StaticEncoder(tmp_path).split_texts(texts)
        whole = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode(texts)
        assert [pieces.ids[start:end].tolist() for start, end in pairwise(pieces.bounds)] == whole
        (tmp_path / "checksums.json").unlink()


def test_vectors_are_rounded_to_8_bits_of_their_largest_component(toy_encoder: Path, tmp_path: Path) -> None:
    num_pieces = load_encoder(str(toy_encoder)).pieces.get_piece_size()
    vectors = (
        np.random.default_rng(0).normal(size=(num_pieces, 32)).astype(np.float32)
        * 10.0 ** np.arange(-num_pieces // 2, num_pieces // 2)[:, None]
    )
    vectors[3] = 0
    pieces = (toy_encoder / "sentencepiece.model").read_bytes()
    static.save(tmp_path, vectors, pieces)
    encoder = load_encoder(str(tmp_path))
    largest = np.abs(vectors).max(axis=1, keepdims=True).astype(np.float64)
    assert (np.abs(encoder.vectors - vectors.astype(np.float64)) <= largest / 127 / 2 * (1 + 2**-14)).all()
    np.testing.assert_array_equal(np.abs(encoder.stored["vectors"]).max(axis=1), np.where(largest[:, 0] > 0, 127, 0))
    before = (tmp_path / "vectors.safetensors").read_bytes()
    static.save(tmp_path, encoder.vectors, pieces)  # rounded before: nothing changes
    assert (tmp_path / "vectors.safetensors").read_bytes() == before


def test_dimensions_of_4_bits(toy_encoder: Path, tmp_path: Path) -> None:
    num_pieces = load_encoder(str(toy_encoder)).pieces.get_piece_size()
    vectors = np.random.default_rng(0).normal(size=(num_pieces, 32)).astype(np.float32) * 3
    vectors[3] = 0
    pieces = (toy_encoder / "sentencepiece.model").read_bytes()
    static.save(tmp_path, vectors, pieces, eight_bit_dims=12)
    encoder = load_encoder(str(tmp_path))
    np.testing.assert_allclose(encoder.vectors[:, :12], vectors[:, :12], atol=np.abs(vectors).max() / 127)
    errors = ((encoder.vectors - vectors)[:, 12:] ** 2).sum(axis=1) / np.maximum(1e-9, (vectors[:, 12:] ** 2).sum(axis=1))
    assert errors.max() < 0.02
    assert not encoder.vectors[3].any()
    np.testing.assert_array_equal(encoder.rows(np.array([5, 2], np.int32)), encoder.vectors[[5, 2]])
    before = (tmp_path / "vectors.safetensors").read_bytes()
    static.save(tmp_path, encoder.vectors, pieces, eight_bit_dims=12)  # rounded before: nothing changes
    assert (tmp_path / "vectors.safetensors").read_bytes() == before
    (tmp_path / "checksums.json").unlink(missing_ok=True)
    (tmp_path / "miner.json").write_text('{"kind": "static", "format": 2, "dim": 32, "eight_bit_dims": 14}')
    with pytest.raises(ModelError, match=r"vectors .* of int8"):
        _ = load_encoder(str(tmp_path)).vectors


def test_static_encoder_is_an_encoder_and_accepts_no_texts(toy_encoder: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    assert isinstance(encoder, Encoder)
    assert encoder.encode([]).shape == (0, encoder.dim)


def test_fingerprint_depends_on_content_only(toy_encoder: Path, tmp_path: Path) -> None:
    original = load_encoder(str(toy_encoder))
    copy = shutil.copytree(toy_encoder, tmp_path / "copy")
    assert load_encoder(str(copy)).fingerprint == original.fingerprint
    changed = original.vectors.copy()
    changed[3, 0] += 0.5
    static.save(copy, changed, (toy_encoder / "sentencepiece.model").read_bytes())
    assert load_encoder(str(copy)).fingerprint != original.fingerprint


def test_tokens_have_the_first_dimensions_and_the_weights_of_all(toy_encoder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(toy_encoder, tmp_path / "copy")
    whole = load_encoder(str(toy_encoder))
    static.save(folder, whole.vectors, (toy_encoder / "sentencepiece.model").read_bytes(), token_dim=8)
    encoder = load_encoder(str(folder))
    texts = ["one two three", "deux", "", "unknownword ten"]
    tokens, all_tokens = encoder.token_vectors(texts), whole.token_vectors(texts)
    np.testing.assert_array_equal(tokens.weights, all_tokens.weights)
    np.testing.assert_array_equal(tokens.rows, all_tokens.rows)
    vectors = encoder.vectors[np.unique(encoder.split_texts(texts).ids), :8].astype(np.float64)
    vectors = vectors[tokens.rows]
    expected = vectors / np.linalg.norm(vectors, axis=1, keepdims=True) * 127
    np.testing.assert_allclose(tokens.table[tokens.rows], expected, atol=0.5 + 1e-9)
    np.testing.assert_array_equal(encoder.encode(texts), whole.encode(texts))
    assert encoder.fingerprint != whole.fingerprint  # late interaction differs


def write_vectors(folder: Path, dtype: type[np.floating]) -> None:
    """Replace the rounded rows by rows of another type."""
    tensors = load((folder / "vectors.safetensors").read_bytes())
    (folder / "vectors.safetensors").write_bytes(save({**tensors, "vectors": tensors["vectors"].astype(dtype)}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "vectors.safetensors").unlink(), "incomplete"),
        (lambda folder: (folder / "vectors.safetensors").write_bytes(b"\x08\x00\x00"), "not the vectors"),
        (lambda folder: write_vectors(folder, np.float32), r"of float32, but miner.json and sentencepiece.model imply .* of int8"),
        (lambda folder: write_vectors(folder, np.float16), "not the vectors"),
        (lambda folder: (folder / "sentencepiece.model").write_bytes(b"no model"), "not a SentencePiece model"),
        (lambda folder: (folder / "miner.json").write_text('{"kind": "static", "format": 2, "dim": 7}'), "imply"),
        (
            lambda folder: (folder / "miner.json").write_text('{"kind": "static", "format": 1, "dim": 32}'),
            "not a static encoder of format 2; update",
        ),
        (lambda folder: (folder / "miner.json").write_text('{"kind": "static", "format": 2}'), "no valid dimension `dim`"),
        (lambda folder: (folder / "miner.json").write_text('{"kind": "static", "format": 2, "dim": 32, "token_dim": 33}'), "`token_dim`"),
        (
            lambda folder: (folder / "miner.json").write_text('{"kind": "static", "format": 2, "dim": 32, "eight_bht_dims": 16}'),
            r"miner\.json: unknown key 'eight_bht_dims'; update",
        ),
        (lambda folder: (folder / "miner.json").write_text('{"kind": "magic"}'), "one of static, transformer"),
        (lambda folder: (folder / "miner.json").write_text("[1]"), "one of static, transformer"),
        (lambda folder: static.save(folder, np.full((20, 32), np.nan), (folder / "sentencepiece.model").read_bytes()), "NaN"),
    ],
)
def test_damaged_folder_is_an_error(toy_encoder: Path, tmp_path: Path, damage, message: str) -> None:
    folder = shutil.copytree(toy_encoder, tmp_path / "damaged")
    (folder / "checksums.json").unlink()  # which would find the damage first
    damage(folder)
    with pytest.raises(ModelError, match=message):
        load_encoder(str(folder)).encode(["one"])


def test_missing_encoder_is_an_error() -> None:
    with pytest.raises(ModelError, match="no such encoder folder"):
        load_encoder("./nowhere")


def test_other_poolings_are_errors(toy_encoder: Path) -> None:
    with pytest.raises(ConfigError, match="always mean"):
        load_encoder(str(toy_encoder), EncoderSettings(pooling="cls"))


def test_a_flipped_bit_of_the_settings_of_a_copied_encoder_is_an_error(toy_encoder: Path, tmp_path: Path) -> None:
    copy_encoder(str(toy_encoder), str(tmp_path / "copy"))
    path, chance = tmp_path / "copy/miner.json", random.Random(5)
    intact = path.read_bytes()
    for _ in range(30):
        data = bytearray(intact)
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        with pytest.raises(MinerError, match=r"miner\.json: "):
            load_encoder(str(tmp_path / "copy"))
