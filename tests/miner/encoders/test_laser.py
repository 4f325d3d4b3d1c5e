"""LASER2 against the equations of an LSTM, LASER3 against the ports of fairseq's encoders in transformers, on tiny random checkpoints."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from transformers.models.bart.modeling_bart import BartEncoder
from transformers.models.m2m_100.modeling_m2m_100 import M2M100Encoder

import miner
from miner.config.commands import EncoderSettings
from miner.encoders import LASER, find_kind, identify, load_encoder
from miner.encoders.base import in_language
from miner.errors import ConfigError, MinerError, ModelError

TEXTS = ["The cat sees a “big” house.", "Ein Hund läuft über die Straße, und die Katze schläft…", "zebra ☃", "  ", "the dog " * 9]
WIDTH, PAD = 32, 1
CPU = {"device": "cpu"}

pytestmark = pytest.mark.usefixtures("one_thread")
sacremoses = pytest.importorskip("sacremoses")


def load(folder: Path, **settings: Any) -> Any:
    return load_encoder(str(folder), EncoderSettings(**CPU, **settings))


def train_pieces(path: Path, size: int) -> sentencepiece.SentencePieceProcessor:
    lines = [" ".join(TEXTS).lower(), "the house and the street", "hunde und katzen"]
    with path.open("wb") as file:
        options = {"vocab_size": size, "hard_vocab_limit": False, "minloglevel": 3, "normalization_rule_name": "nmt_nfkc"}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=file, **options)
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def write_vocabulary(path: Path, pieces: sentencepiece.SentencePieceProcessor) -> list[str]:
    """Write `piece count`, without the special pieces and the last one, which is therefore unknown; return all pieces in order."""
    names = [pieces.id_to_piece(number) for number in range(3, len(pieces))][:-1]
    path.write_bytes("".join(f"{name} {7}\n" for name in names).encode())
    return ["<s>", "<pad>", "</s>", "<unk>", *names]


def tokens_of(text: str, pieces: sentencepiece.SentencePieceProcessor, vocabulary: list[str]) -> list[int]:
    normalised = sacremoses.MosesPunctNormalizer("en").normalize(text).lower()
    return [vocabulary.index(piece) if piece in vocabulary else 3 for piece in pieces.encode(normalised, out_type=str)]


def unit(vectors: list[np.ndarray]) -> np.ndarray:
    return np.stack([vector / np.linalg.norm(vector) if vector.any() else vector for vector in vectors])


def lstm_states(state: Mapping[str, torch.Tensor], inputs: np.ndarray, layers: int) -> np.ndarray:
    """Inputs (t, width) -> (t, 2 x hidden) by the equations of an LSTM (Hochreiter & Schmidhuber 1997, with forget gates)."""
    for layer in range(layers):
        outputs = []
        for suffix, order in (("", slice(None)), ("_reverse", slice(None, None, -1))):
            w, u, b, c = (
                state[f"lstm.{kind}_l{layer}{suffix}"].double().numpy() for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            hidden = cell = np.zeros(u.shape[1])
            steps = []
            for x in inputs[order]:
                i, f, g, o = np.split(w @ x + b + u @ hidden + c, 4)
                i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
                cell = f * cell + i * np.tanh(g)
                hidden = o * np.tanh(cell)
                steps.append(hidden)
            outputs.append(np.stack(steps)[order])
        inputs = np.concatenate(outputs, axis=1)
    return inputs


@pytest.fixture(scope="module")
def laser2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Return the files of LASER2, and the vectors of TEXTS."""
    folder = tmp_path_factory.mktemp("laser2")
    pieces = train_pieces(folder / "laser2.spm", 60)
    vocabulary = write_vocabulary(folder / "laser2.cvocab", pieces)
    params = {"num_embeddings": len(vocabulary), "padding_idx": PAD, "embed_dim": 12, "hidden_size": WIDTH // 2, "num_layers": 2}
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(12, WIDTH // 2, 2, bidirectional=True)
    state = {"embed_tokens.weight": torch.randn(len(vocabulary), 12), **lstm.state_dict(prefix="lstm.")}
    dictionary = {piece: number for number, piece in enumerate(vocabulary)}
    checkpoint = {
        "params": {**params, "bidirectional": True, "left_pad": False, "padding_value": 0.0},
        "model": state,
        "dictionary": dictionary,
    }
    torch.save(checkpoint, folder / "laser2.pt")
    vectors = []
    for text in TEXTS:
        ids = [*tokens_of(text, pieces, vocabulary), 2]
        states = lstm_states(state, state["embed_tokens.weight"].double().numpy()[ids], 2)
        vectors.append(states.max(axis=0) if text.strip() else np.zeros(WIDTH))
    return folder, unit(vectors)


def test_laser2(laser2: tuple[Path, np.ndarray]) -> None:
    folder, expected = laser2
    encoder = load(folder)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(load(folder, batch_tokens=16).encode(TEXTS), expected, atol=1e-5)
    assert encoder.dim == WIDTH
    assert find_kind(str(folder)) == LASER
    assert identify(EncoderSettings(encoder=str(folder), **CPU)).fingerprint == encoder.fingerprint
    assert np.abs(expected @ expected.T)[0, 1:].max() < 0.999


OPTIONS = {"encoder_attention_heads": 4, "max_source_positions": 40, "left_pad_source": True}
SIZES = {"d_model": WIDTH, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "max_position_embeddings": 60}


def pre_norm(size: int) -> tuple[Any, dict[str, Any]]:
    """Return an encoder with sinusoidal positions and normalization before its parts, and the options of fairseq for it."""
    config = transformers.M2M100Config(vocab_size=size, init_std=0.5, scale_embedding=True, **SIZES)
    return M2M100Encoder(config), {"encoder_normalize_before": True, "sentemb_criterion": "maxpool", "prepend_bos": False}


def post_norm(size: int) -> tuple[Any, dict[str, Any]]:
    """Return an encoder with learnt positions and normalization after its parts, and the options of fairseq for it."""
    config = transformers.BartConfig(vocab_size=size, init_std=0.5, activation_function="gelu", scale_embedding=False, **SIZES)
    options = {"encoder_normalize_before": False, "activation_fn": "gelu", "no_scale_embedding": True}
    return BartEncoder(config), {**options, "sentemb_criterion": "cls", "prepend_bos": True}


def add_laser3(folder: Path, build: Callable[[int], tuple[Any, dict[str, Any]]], name: str, has_decoder: bool) -> np.ndarray:
    """Write a checkpoint of LASER3, with pieces of its own if it has a decoder; return the vectors of TEXTS."""
    stem = name if has_decoder else "laser2"
    if has_decoder:
        pieces = train_pieces(folder / f"{stem}.spm", 50)
        vocabulary = write_vocabulary(folder / f"{stem}.cvocab", pieces)
    else:
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "laser2.spm"))
        vocabulary = write_vocabulary(folder / "laser2.cvocab", pieces)
    is_pre_norm = build is pre_norm
    torch.manual_seed(1)
    model, options = build(len(vocabulary) + is_pre_norm)  # <mask> is the last piece
    model.eval()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    if is_pre_norm:
        state |= {"version": torch.tensor([3.0]), "embed_positions._float_tensor": torch.zeros(1)}
    if has_decoder:
        state = {f"encoder.{key}": value for key, value in state.items()} | {"decoder.version": torch.zeros(1)}
    torch.save({"cfg": {"model": argparse.Namespace(**OPTIONS, **options)}, "model": state}, folder / f"{name}.pt")
    vectors = []
    for text in TEXTS:
        first = [0] if options["prepend_bos"] else []
        ids = [*first, *tokens_of(text, pieces, vocabulary), 2][:40]
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0].double().numpy()
        vectors.append((states[0] if first else states.max(axis=0)) if text.strip() else np.zeros(WIDTH))
    return unit(vectors)


def test_laser3_for_languages_of_its_own_and_laser2_for_the_others(laser2: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, expected = tmp_path / "laser", laser2[1]
    folder.mkdir()
    for path in laser2[0].iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    by_language = {
        "taq": add_laser3(folder, pre_norm, "laser3-taq_Latn.v1", has_decoder=False),
        "bod": add_laser3(folder, post_norm, "laser3-bod_Tibt.v1", has_decoder=True),
        "de": expected,
        "und": expected,
    }
    encoder = load(folder)
    for lang, vectors in by_language.items():
        own = in_language(encoder, lang)
        np.testing.assert_allclose(own.encode(TEXTS), vectors, atol=1e-5, err_msg=lang)
        assert own.fingerprint == encoder.fingerprint != load(laser2[0]).fingerprint
        np.testing.assert_allclose(miner.embed([*TEXTS[:3]], encoder=str(folder), lang=lang).vectors, vectors[:3], atol=2e-3)
    assert np.abs((by_language["taq"] * by_language["bod"]).sum(axis=1)).max() < 0.99
    (folder / "laser2.pt").unlink()
    np.testing.assert_allclose(in_language(load(folder), "taq").encode(TEXTS), by_language["taq"], atol=1e-5)
    with pytest.raises(ConfigError, match=r"no laser2.pt, and no encoder of de \(bod_Tibt, taq_Latn\); download one of them"):
        in_language(load(folder), "de")
    with pytest.raises(ConfigError, match="needs the language of texts"):
        load(folder).encode(TEXTS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("laser2.pt", b"not a checkpoint", "laser2.pt: not a checkpoint of LASER, or damaged"),
        ("laser2.spm", None, "laser2.spm: missing; LASER needs it beside its checkpoints"),
        ("laser2.spm", b"\x00\x01", "not a checkpoint of LASER, or damaged"),
    ],
)
def test_damaged_files(name: str, content: bytes | None, message: str, laser2: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    for path in laser2[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=message):
        load(tmp_path).encode(TEXTS)


@pytest.mark.parametrize("settings", [{"pooling": "mean"}, {"prompt": "query: "}, {"dtype": "int8"}, {"max_tokens": 9}], ids=str)
def test_options_that_do_not_fit(settings: dict[str, Any], laser2: tuple[Path, np.ndarray]) -> None:
    with pytest.raises(ConfigError, match=r"is an encoder of LASER, which .*; remove the option"):
        load(laser2[0], **settings)


def test_a_pickle_cannot_run_code(laser2: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return exec, ("raise SystemExit('executed')",)

    (tmp_path / "laser2.spm").write_bytes((laser2[0] / "laser2.spm").read_bytes())
    torch.save({"params": Evil()}, tmp_path / "laser2.pt")
    with pytest.raises(MinerError, match="not a checkpoint of LASER"):
        load(tmp_path).encode(TEXTS)
