"""Transformers with int8 weights: the rounding against exact integers, and vectors against those in float32."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
import torch
import transformers

from miner.config.commands import EncoderSettings
from miner.encoders import BUILTIN, identify, int8_linear, load_encoder, pair
from miner.encoders.int8_linear import Int8Linear, quantise_rows
from miner.encoders.pair import PairEncoder
from miner.encoders.transformer import TransformerEncoder
from miner.encoders.transformer_parts import choose_precision
from miner.errors import ConfigError

TEXTS = ["one two three", "seven", "four five six seven eight nine", "", "two one " * 6]
needs_int8 = pytest.mark.skipif(not int8_linear.is_exact(), reason="needs exact int8 products")


@pytest.fixture(scope="module", params=["bert", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("int8") / request.param
    tiny.save_transformer(folder)
    if request.param == "t5":
        shape = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        torch.manual_seed(0)
        vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
        transformers.T5EncoderModel(transformers.T5Config(vocab_size=vocabulary, **shape)).save_pretrained(folder)
    return folder


def load(folder: Path, **settings: Any) -> TransformerEncoder:
    encoder = load_encoder(str(folder), EncoderSettings(**{"pooling": "mean", "device": "cpu", **settings}))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def test_rows_are_rounded_to_the_nearest_integer_of_their_scale() -> None:
    rows = torch.tensor([[0.1, -1.8, 1.0], [0.0, 0.0, 0.0], [1000.0, -3.0, 4.0]])
    integers, scales = quantise_rows(rows)
    assert integers.dtype == torch.int8
    assert integers.tolist() == [[5, -90, 50], [0, 0, 0], [90, 0, 0]]
    assert bool(((integers * scales - rows).abs() <= scales / 2 * 1.0001).all())


@needs_int8
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (2, 3)], ids=str)
def test_layer_multiplies_the_rounded_values_exactly(shape: tuple[int, ...], has_bias: bool) -> None:
    torch.manual_seed(0)
    layer, inputs = torch.nn.Linear(100, 30, bias=has_bias), torch.randn(*shape, 100) * 50
    weights, weight_scales = quantise_rows(layer.weight.detach())
    integers, scales = quantise_rows(inputs.reshape(-1, 100))
    exact = (integers.double() @ weights.double().T) * scales.double() * weight_scales.double().T
    exact += layer.bias.detach().double() if has_bias else 0
    with torch.inference_mode():
        outputs = Int8Linear(layer)(inputs)
    torch.testing.assert_close(outputs, exact.float().view(*shape, 30), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(outputs, layer(inputs), rtol=0, atol=0.02 * float(outputs.abs().max()))


@needs_int8
def test_outlier_in_a_token_coarsens_no_other() -> None:
    torch.manual_seed(0)
    layer, inputs = Int8Linear(torch.nn.Linear(64, 16)), torch.randn(4, 64)
    expected = layer(inputs)[1:]
    inputs[0, 3] = 1e6
    assert torch.equal(layer(inputs)[1:], expected)


@needs_int8
def test_vectors_are_close_to_float32(folder: Path) -> None:
    encoder = load(folder, dtype="int8")
    rows, exact = encoder.encode(TEXTS), load(folder, dtype="float32").encode(TEXTS)
    assert any(isinstance(module, Int8Linear) for module in encoder._model.modules())
    assert not any(type(module) is torch.nn.Linear for module in encoder._model.modules())
    assert rows.dtype == np.float32
    assert not rows[TEXTS.index("")].any()
    assert ((rows * exact).sum(axis=1)[[bool(text) for text in TEXTS]] > 0.999).all()
    assert np.abs(rows - exact).max() > 1e-6  # something was rounded
    np.testing.assert_array_equal(load(folder, dtype="int8").encode(TEXTS), rows)


@needs_int8
def test_vectors_hardly_depend_on_the_batch(folder: Path) -> None:
    encoder = load(folder, dtype="int8")
    single = np.concatenate([encoder.encode([text]) for text in TEXTS])
    for budget in (16, 4096):
        encoder.batch_tokens = budget
        np.testing.assert_allclose(encoder.encode(TEXTS), single, atol=5e-3)


@needs_int8
def test_operations_and_hidden_states_are_those_of_the_model(folder: Path) -> None:
    rounded, exact = load(folder, dtype="int8"), load(folder, dtype="float32")
    assert rounded.operations(9) == exact.operations(9) > 0
    [(states, counts)], [(exact_states, exact_counts)] = (list(encoder.hidden_states(TEXTS, 2)) for encoder in (rounded, exact))
    np.testing.assert_array_equal(counts, exact_counts)
    np.testing.assert_allclose(states, exact_states, atol=0.05 * np.abs(exact_states).max())


@needs_int8
def test_fingerprint_differs_from_float32_and_is_known_without_loading(folder: Path) -> None:
    fingerprints = {dtype: load(folder, dtype=dtype).fingerprint for dtype in ("float32", "bfloat16", "int8")}
    assert len(set(fingerprints.values())) == 3
    for dtype, fingerprint in fingerprints.items():
        settings = EncoderSettings(encoder=str(folder), pooling="mean", dtype=dtype)
        assert identify(settings).fingerprint == fingerprint


def test_settings_that_do_not_fit_are_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--dtype int8 is for CPUs, but the device is cuda:0; give --device cpu"):
        choose_precision("int8", torch.device("cuda:0"))
    for find in (lambda settings: load_encoder(BUILTIN, settings), identify):
        with pytest.raises(ConfigError, match=r"^--dtype int8: .* is a static encoder, which has no layers to round; remove the option$"):
            find(EncoderSettings(dtype="int8"))
    tiny.save_transformer(tmp_path / "model")
    monkeypatch.setattr(int8_linear, "is_exact", lambda: False)
    with pytest.raises(ConfigError, match=r"^--dtype int8: this torch has no exact int8 products on this processor"):
        load(tmp_path / "model", dtype="int8")


def test_products_that_saturate_are_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    def saturate(*_: Any) -> torch.Tensor:
        return torch.full(int8_linear.PROBE_SHAPE, 256.0)

    def raise_error(*_: Any) -> None:
        raise AttributeError("no such operator")

    for replacement in (saturate, raise_error):
        monkeypatch.setattr(Int8Linear, "forward", replacement)
        assert not int8_linear.is_exact.__wrapped__()


@needs_int8
def test_both_sides_of_a_pair_are_rounded(tmp_path: Path) -> None:
    for seed, side in enumerate(pair.SIDES):
        tiny.save_transformer(tmp_path / side, seed=seed)
    pair.write(tmp_path, tiny.WIDTH, dict.fromkeys(pair.SIDES, ()))
    settings = EncoderSettings(pooling="mean", device="cpu", dtype="int8")
    rounded, exact = (load_encoder(str(tmp_path), settings.model_copy(update={"dtype": dtype})) for dtype in ("int8", "float32"))
    assert isinstance(rounded, PairEncoder)
    assert rounded.fingerprint == rounded.side("target").fingerprint != exact.fingerprint
    assert any(isinstance(module, Int8Linear) for module in rounded.side("target")._model.modules())
