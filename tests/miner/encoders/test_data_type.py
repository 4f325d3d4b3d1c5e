"""The data type of transformers: `auto`, fingerprints, and the products of oneDNN."""

import shutil
from pathlib import Path

import command
import numpy as np
import pytest
import tiny
import torch
from safetensors.torch import load_file, save_file

from miner.config.commands import EncoderSettings
from miner.encoders import identify, load_encoder, model_folder, pair, with_recorded_dtype
from miner.encoders.cpu_linear import OneDnnLinear, is_faster
from miner.io import stages


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_transformer(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def outlier_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model whose attention prefers one of two tokens by differences that bfloat16 rounds away."""
    folder = tiny.save_transformer(tmp_path_factory.mktemp("outlier"))
    path = str(folder / "model.safetensors")
    tensors = load_file(path)
    for name in tensors:
        if ".query.weight" in name or ".key.weight" in name:
            tensors[name] *= 30
    save_file(tensors, path, metadata={"format": "pt"})
    return folder


def settings(folder: Path, dtype: str = "auto") -> EncoderSettings:
    return EncoderSettings(encoder=str(folder), pooling="mean", device="cpu", dtype=dtype)


def set_bfloat16(monkeypatch: pytest.MonkeyPatch, is_supported: bool) -> None:
    """Set whether the processor computes in bfloat16."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: is_supported)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


@pytest.mark.parametrize("is_supported", [True, False])
def test_auto_is_bfloat16_where_the_processor_computes_in_it(is_supported: bool, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bfloat16(monkeypatch, is_supported)
    monkeypatch.setattr("miner.encoders.transformer_parts.MIN_COSINE", 0.99)  # of a model with random weights
    encoder, exact = load_encoder(str(model), settings(model)), load_encoder(str(model), settings(model, "float32"))
    expected = "bfloat16" if is_supported else "float32"
    assert (encoder.precision, encoder.tally.tokens) == (expected, 0)
    assert encoder.fingerprint == exact.fingerprint + ("-bfloat16" if is_supported else "")
    assert identify(settings(model)).fingerprint == encoder.fingerprint
    texts = ["one two three", "nine"]
    np.testing.assert_allclose(encoder.encode(texts), exact.encode(texts), atol=0.02 if is_supported else 0)


def test_auto_is_float32_where_bfloat16_gives_other_vectors(outlier_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bfloat16(monkeypatch, True)
    encoder, exact, rounded = (
        load_encoder(str(outlier_model), settings(outlier_model, dtype)) for dtype in ("auto", "float32", "bfloat16")
    )
    texts = ["one two three", "nine"]
    assert (exact.encode(texts) * rounded.encode(texts)).sum(axis=1).min() < 0.9999
    assert encoder.precision == "float32"
    np.testing.assert_array_equal(encoder.encode(texts), exact.encode(texts))


def test_both_sides_of_a_pair_have_one_type(model: Path, outlier_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_bfloat16(monkeypatch, True)
    for side, folder in (("source", model), ("target", outlier_model)):
        shutil.copytree(folder, tmp_path / side)
    pair.write(tmp_path, tiny.WIDTH, dict.fromkeys(pair.SIDES, ()))
    encoder = load_encoder(str(tmp_path), settings(tmp_path))
    assert {encoder.side(side).precision for side in pair.SIDES} == {"float32"}
    assert load_encoder(str(tmp_path), settings(tmp_path, "bfloat16")).fingerprint == f"{encoder.fingerprint}-bfloat16"


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        (["static-0123"], "auto"),
        ([None, "transformer-0123-bfloat16", "transformer-0123"], "bfloat16"),
        (["transformer-0123"], "float32"),
        (["pair-0123-float16"], "float16"),
    ],
)
def test_auto_is_the_type_of_recorded_vectors(recorded: list[str | None], expected: str) -> None:
    assert with_recorded_dtype(EncoderSettings(), recorded).dtype == expected
    assert with_recorded_dtype(EncoderSettings(dtype="int8"), recorded).dtype == "int8"
    assert model_folder.split_dtype("transformer-0123-bfloat16") == ("transformer-0123", "bfloat16")


@pytest.mark.parametrize("first", [True, False])
def test_a_run_on_another_processor_keeps_the_type(first: bool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("miner.encoders.transformer_parts.MIN_COSINE", 0.99)
    encoder = ("--encoder", str(model), "--pooling", "mean", "--device", "cpu")
    texts = {lang: tmp_path / f"{lang}.txt" for lang in ("eng_Latn", "deu_Latn")}
    for lang, path in texts.items():
        path.write_text("".join(f"{tiny.sentence(lang, digits)}\n" for digits in tiny.numbers(20, 1)))
    set_bfloat16(monkeypatch, first)
    command.output_of("mine", *texts.values(), *encoder, "--output", tmp_path / "out")
    shutil.rmtree(tmp_path / "out/target")
    set_bfloat16(monkeypatch, not first)
    command.output_of("mine", *texts.values(), *encoder, "--output", tmp_path / "out")
    command.output_of("mine", tmp_path / "out/source", texts["deu_Latn"], *encoder, "--output", tmp_path / "other")
    folders = [tmp_path / name / stages.EMBEDDINGS for name in ("out/source", "out/target", "other/target")]
    fingerprints = {stages.read_manifest(str(folder)).config["fingerprint"] for folder in folders}
    assert [fingerprint.endswith("-bfloat16") for fingerprint in fingerprints] == [first]


@pytest.mark.skipif(not is_faster(), reason="needs AVX-512")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
def test_products_of_onednn_are_those_of_torch(dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(48, 32, bias=bias).to(dtype)
    inputs = torch.randn(3, 5, 48).to(dtype)
    with torch.inference_mode():
        outputs, expected = OneDnnLinear(linear)(inputs), inputs.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
    torch.testing.assert_close(outputs.double(), expected, atol=1e-5 if dtype == torch.float32 else 0.03, rtol=0)
