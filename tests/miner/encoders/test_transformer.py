"""The transformer encoder against sentence-transformers on the same folder, and against pooling by hand."""

import json
import pickle
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.encoders.transformer import load, token_batches
from miner.errors import ConfigError, MinerError, ModelError

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
WORDS = [*SPECIAL, "the", "a", "cat", "dog", "House", "house", "runs", "sees", "big", "small", "over", "under", "and", ".", ","]
WIDTH, LAYERS, POSITIONS, PAD = 32, 3, 48, 1
TEXTS = [
    "the cat runs",
    "a big dog sees the House .",
    "house",
    "",
    "the small cat and the big dog runs over a house , " * 2,
    "zebra sees a",
]
ST_POOLINGS = ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]

pytestmark = pytest.mark.usefixtures("one_thread")  # tiny models spend their time waiting for threads


def save_tokenizer(folder: Path, **options: Any) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    special = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", mask_token="<mask>", **special, **options
    ).save_pretrained(folder)


def save_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """Save a tiny random model with a word-level tokenizer as a plain Hugging Face folder."""
    common = {"vocab_size": len(WORDS), "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4}
    common |= {"intermediate_size": 48, "max_position_embeddings": POSITIONS, "pad_token_id": PAD, "initializer_range": 0.5}
    config = {
        "bert": lambda: transformers.BertConfig(**common),
        "xlm-roberta": lambda: transformers.XLMRobertaConfig(**common, bos_token_id=0, eos_token_id=2, type_vocab_size=1),
        "t5": lambda: transformers.T5Config(
            vocab_size=len(WORDS), d_model=WIDTH, d_kv=8, d_ff=48, num_layers=LAYERS, num_heads=4, pad_token_id=PAD, eos_token_id=2
        ),
    }[kind]()
    torch.manual_seed(seed)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(scope="module", params=["bert", "xlm-roberta", "t5"])
def any_plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("any"), request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("plain"), "xlm-roberta")


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    return shutil.copytree(plain, tmp_path / "copy")


def save_with_modules(plain: Path, folder: Path, *following: torch.nn.Module, **options: Any) -> Path:
    """Save the plain model as a sentence-transformers folder with these modules after the transformer."""
    SentenceTransformer(modules=[modules.Transformer(str(plain), **options), *following]).save(str(folder))
    return folder


def encode_with_sentence_transformers(folder: Path, texts: Sequence[str]) -> np.ndarray:
    return SentenceTransformer(str(folder), device="cpu").encode(list(texts), normalize_embeddings=True)


def assert_equals_sentence_transformers(folder: Path, **settings: Any) -> None:
    ours = load(str(folder), EncoderSettings(device="cpu", dtype="float32", **settings)).encode(TEXTS)
    reference = encode_with_sentence_transformers(folder, TEXTS)
    assert ours.dtype == np.float32
    assert not ours[TEXTS.index("")].any()
    rows = [row for row, text in enumerate(TEXTS) if text]
    np.testing.assert_allclose(ours[rows], reference[rows], atol=1e-5)
    assert ((ours * reference).sum(axis=1)[rows] > 0.9999).all()


def compute_hidden_states(folder: Path, text: str) -> tuple[torch.Tensor, ...]:
    """Return all hidden states (tokens, width) of one sentence, without padding."""
    ids = [0, *(WORDS.index(word) if word in WORDS else 3 for word in text.split()), 2]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return tuple(state[0] for state in model(torch.tensor([ids]), output_hidden_states=True).hidden_states)


@pytest.mark.parametrize("pooling", [*ST_POOLINGS, ("cls", "mean"), ("max", "lasttoken", "cls")], ids=str)
def test_all_poolings_of_sentence_transformers(plain: Path, tmp_path: Path, pooling: Any) -> None:
    assert_equals_sentence_transformers(save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode=pooling)))


def test_all_architectures(any_plain: Path, tmp_path: Path) -> None:
    assert_equals_sentence_transformers(
        save_with_modules(any_plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode="mean")), batch_tokens=32
    )


@pytest.mark.parametrize("flags", [["mean_tokens"], ["max_tokens", "cls_token"], ["mean_sqrt_len_tokens", "mean_tokens"], []], ids=str)
def test_pooling_flags_of_older_folders(plain: Path, tmp_path: Path, flags: list[str]) -> None:
    folder = save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH))
    config = {"word_embedding_dimension": WIDTH} | {f"pooling_mode_{flag}": True for flag in flags} | {"pooling_mode_lasttoken": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert_equals_sentence_transformers(folder)


@pytest.mark.parametrize("activation", [torch.nn.Tanh(), torch.nn.Identity(), torch.nn.GELU()], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_dense_and_normalize_layers(plain: Path, tmp_path: Path, activation: torch.nn.Module, bias: bool) -> None:
    torch.manual_seed(1)
    layers = [modules.Normalize(), modules.Dense(2 * WIDTH, 24, bias=bias, activation_function=activation), modules.Normalize()]
    folder = save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode=("cls", "mean")), *layers)
    assert_equals_sentence_transformers(folder)
    assert load(str(folder), EncoderSettings()).dim == 24


def test_pickled_weights(plain: Path, tmp_path: Path) -> None:
    folder = save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH), modules.Dense(WIDTH, 16))
    from safetensors.torch import load_file

    for path in (folder, folder / "2_Dense"):
        torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
        (path / "model.safetensors").unlink()
    assert_equals_sentence_transformers(folder)


def test_lower_case_and_maximum_length_of_older_folders(plain: Path, tmp_path: Path) -> None:
    folder = save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH))
    save_tokenizer(folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    assert_equals_sentence_transformers(folder)
    encoder = load(str(folder), EncoderSettings(device="cpu"))
    assert encoder.max_tokens == 9
    upper_case, lower_case = encoder.encode(["the House runs", "the house runs"])
    np.testing.assert_array_equal(upper_case, lower_case)


def test_default_prompt(plain: Path, tmp_path: Path) -> None:
    folder = save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH))
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prompts": {"p": "a cat , "}, "default_prompt_name": "p"}))
    assert_equals_sentence_transformers(folder)


@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_layer_pooling_equals_the_mean_by_hand(plain: Path, layer: int) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", dtype="float32", pooling=f"layer:{layer}"))
    texts = [text for text in TEXTS if text]
    for text, row in zip(texts, encoder.encode(texts), strict=True):
        expected = compute_hidden_states(plain, text)[layer].numpy().mean(axis=0)
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_first_last_avg_equals_the_mean_by_hand(tmp_path: Path, kind: str) -> None:
    folder = save_model(tmp_path, kind)
    encoder = load(str(folder), EncoderSettings(device="cpu", dtype="float32", pooling="first_last_avg"))
    texts = [text for text in TEXTS if text]
    for text, row in zip(texts, encoder.encode(texts), strict=True):
        states = compute_hidden_states(folder, text)
        expected = ((states[1] + states[-1]) / 2).numpy().mean(axis=0)
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "first_last_avg", "layer:2", "lasttoken", "weightedmean"])
def test_vectors_do_not_depend_on_the_batch_and_keep_their_order(plain: Path, pooling: str) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[5:], size=size)) for size in rng.integers(0, 40, size=24)]
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling=pooling))
    single = np.concatenate([encoder.encode([text]) for text in texts])
    for budget in (16, 100, 4096):
        encoder.batch_tokens = budget
        np.testing.assert_allclose(encoder.encode(texts), single, atol=1e-5)
    order = rng.permutation(len(texts))
    np.testing.assert_allclose(encoder.encode([texts[row] for row in order]), single[order], atol=1e-5)


def test_windows_do_not_change_vectors(plain: Path) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    one_window = encoder.encode(TEXTS)
    encoder.window_texts = 2
    np.testing.assert_allclose(encoder.encode(TEXTS), one_window, atol=1e-5)


@pytest.mark.parametrize("budget", [16, 50, 1000])
def test_token_batches(budget: int) -> None:
    lengths = np.random.default_rng(budget).integers(1, 40, size=200).tolist()
    batches = list(token_batches(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    assert all(len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget for batch in batches)
    batched_lengths = [lengths[index] for batch in batches for index in batch]
    assert batched_lengths == sorted(lengths, reverse=True)
    assert list(token_batches([3, 5, 4, 1], 10)) == [[1], [2], [0], [3]]  # from 2.5 tokens on, a batch has texts of one length
    assert list(token_batches([3, 5, 4, 1, 1, 5], 40)) == [[1, 5], [2, 0, 3], [4]]  # 2 x 5 and 3 x 4 are a quarter of 40
    assert list(token_batches([5] * 7, 10)) == [[0, 1], [2, 3], [4, 5], [6]]
    assert list(token_batches([0, 2, 0], 10)) == [[1]]
    assert list(token_batches([], 10)) == []


def test_empty_texts_are_zero_rows(plain: Path) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    rows = encoder.encode(["", "cat", "  \t"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [0, 1, 0], atol=1e-6)
    assert encoder.encode([]).shape == (0, WIDTH)


def test_long_texts_are_truncated(plain: Path) -> None:
    words = (" ".join(WORDS[5:]) + " ") * 20
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    assert encoder.max_tokens == POSITIONS - PAD - 1  # positions start after the padding index
    truncated = " ".join(words.split()[: encoder.max_tokens - 2])
    np.testing.assert_allclose(encoder.encode([words]), encoder.encode([truncated]), atol=1e-6)
    short = load(str(plain), EncoderSettings(device="cpu", pooling="mean", max_tokens=5))
    np.testing.assert_allclose(short.encode(["the cat runs over a house"]), encoder.encode(["the cat runs"]), atol=1e-6)
    with pytest.raises(ConfigError, match="room for 46 tokens"):
        load(str(plain), EncoderSettings(pooling="mean", max_tokens=47))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_close_and_gives_float32_unit_rows(plain: Path, precision: Any) -> None:
    exact = load(str(plain), EncoderSettings(device="cpu", pooling="mean", dtype="float32"))
    half = load(str(plain), EncoderSettings(device="cpu", pooling="mean", dtype=precision))
    texts = [text for text in TEXTS if text]
    rows = half.encode(texts)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert ((rows * exact.encode(texts)).sum(axis=1) > 0.99).all()
    assert half.fingerprint == f"{exact.fingerprint}-{precision}"


def test_batch_out_of_memory_is_encoded_in_halves(plain: Path) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    expected = encoder.encode(TEXTS)
    max_texts = 2

    def raise_out_of_memory(_module: Any, _arguments: Any, inputs: dict[str, torch.Tensor]) -> None:
        if len(inputs["input_ids"]) > max_texts:
            raise torch.cuda.OutOfMemoryError

    encoder._model.register_forward_pre_hook(raise_out_of_memory, with_kwargs=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    max_texts = 0
    with pytest.raises(ModelError, match=r"out of memory on one sentence of 2. tokens; lower --max-tokens"):
        encoder.encode(TEXTS)


def test_nan_vectors_are_an_error(copy: Path) -> None:
    model = transformers.AutoModel.from_pretrained(copy)
    model.embeddings.word_embeddings.weight.data.fill_(float("nan"))
    model.save_pretrained(copy)
    with pytest.raises(ModelError, match="NaN or infinite vectors in float32"):
        load(str(copy), EncoderSettings(pooling="mean", device="cpu")).encode(["the cat"])


def test_fingerprint_changes_exactly_with_the_vectors(plain: Path, copy: Path, tmp_path: Path) -> None:
    def fingerprint(folder: Path, **settings: Any) -> str:
        return load(str(folder), EncoderSettings(**{"pooling": "mean", "device": "cpu", "dtype": "float32", **settings})).fingerprint

    original = fingerprint(plain)
    same = {fingerprint(copy), fingerprint(plain, batch_tokens=16)}
    transformers.AutoModel.from_pretrained(copy).save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    save_tokenizer(tmp_path / "sharded")
    assert not (tmp_path / "sharded" / "model.safetensors").exists()
    assert same | {fingerprint(tmp_path / "sharded")} == {original}

    changed = [fingerprint(plain, pooling="cls"), fingerprint(plain, pooling="layer:2"), fingerprint(plain, max_tokens=12)]
    changed.append(fingerprint(save_model(tmp_path / "seed", "xlm-roberta", seed=1)))
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["normalizer"] = {"type": "Lowercase"}
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    changed.append(fingerprint(copy))
    for seed in (0, 1):
        torch.manual_seed(seed)
        folder = save_with_modules(plain, tmp_path / f"dense{seed}", modules.Pooling(WIDTH), modules.Dense(WIDTH, WIDTH))
        changed.append(fingerprint(folder, pooling=None))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    changed.append(fingerprint(folder, pooling=None))
    assert len({original, *changed}) == 1 + len(changed)


def test_load_encoder_loads_transformers(plain: Path) -> None:
    assert load_encoder(str(plain), EncoderSettings(pooling="mean", device="cpu")).dim == WIDTH


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": None}, r"specifies no pooling; choose one with --pooling: cls, max, mean, .*first_last_avg, .*layer:N"),
        ({"pooling": "average"}, "unknown pooling 'average'; one of cls, max, mean"),
        ({"pooling": "layer:4"}, "has layers 0 to 3"),
        ({"pooling": "layer:-1"}, "unknown pooling"),
        ({"device": "tpu"}, "unknown device 'tpu'; one of auto, cpu, cuda"),
        ({"device": "mps"}, "unknown device 'mps'"),
        ({"device": "cuda:99"}, "torch finds . CUDA devices"),
    ],
)
def test_settings_that_do_not_fit_are_errors(plain: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(str(plain), EncoderSettings(**{"pooling": "mean", "device": "cpu", "dtype": "float32", **settings}))


def test_pooling_that_does_not_fit_the_dense_layer_is_an_error(plain: Path, tmp_path: Path) -> None:
    folder = save_with_modules(plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode=("cls", "mean")), modules.Dense(2 * WIDTH, 8))
    with pytest.raises(ConfigError, match="takes vectors of 64 dimensions, pooling mean gives 32"):
        load(str(folder), EncoderSettings(pooling="mean"))


class MaliciousPickle:
    """A pickle that creates a file when it is loaded without restrictions."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_pickles_are_not_executed(copy: Path, tmp_path: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps(MaliciousPickle(tmp_path / "executed")))
    with pytest.raises(ModelError, match="transformers cannot load it"):
        load(str(copy), EncoderSettings(pooling="mean"))
    assert not (tmp_path / "executed").exists()


def damage(folder: Path, name: str, change: Any) -> None:
    """Overwrite a file with bytes, update its JSON object with a dict, or delete it for None."""
    path = folder / name
    if change is None:
        path.unlink()
    elif isinstance(change, bytes):
        path.write_bytes(change)
    else:
        path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | change))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", None, "no weights"),
        ("model.safetensors", b"not weights", "transformers cannot load it"),
        ("config.json", b"{", "transformers cannot load it|not JSON"),
        ("config.json", None, "so not an encoder"),
        ("config.json", {"model_type": "unheard-of"}, "transformers cannot load it"),
        ("config.json", {"num_hidden_layers": LAYERS + 1}, "weights lack encoder.layer.3"),
        ("config.json", {"hidden_size": 64}, "transformers cannot load it"),
        ("tokenizer.json", b"{}", "transformers cannot load it"),
        ("adapter_config.json", {}, "an adapter without its base model"),
    ],
)
def test_damaged_plain_folder_is_an_error(copy: Path, name: str, change: Any, message: str) -> None:
    damage(copy, name, change)
    with pytest.raises(ModelError, match=message) as caught:
        load(str(copy), EncoderSettings(pooling="mean", device="cpu"))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def sentence_folder(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_with_modules(plain, tmp_path_factory.mktemp("sentence") / "st", modules.Pooling(WIDTH), modules.Dense(WIDTH, 8))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("modules.json", b"[]", "not a list of modules"),
        ("modules.json", b'[{"type": "x.StaticEmbedding", "path": ""}]', "module StaticEmbedding .* is not supported"),
        ("modules.json", b'[{"type": "x.Transformer", "path": ""}, {"type": "x.CNN", "path": "c"}]', "module CNN .* is not supported"),
        ("modules.json", b'[{"type": "x.Transformer", "path": "../other"}]', "points outside the folder"),
        ("modules.json", b'[{"type": "x.Transformer", "path": ""}]', "specifies no pooling"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "'transformer_task' is not supported"),
        ("sentence_bert_config.json", {"config_args": {"is_causal": False}}, "'config_args' is not supported"),
        ("1_Pooling/config.json", {"pooling_mode": "sum"}, "pooling 'sum' is not supported"),
        ("1_Pooling/config.json", None, "No such file"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation os.system is not supported"),
        ("2_Dense/config.json", {"use_residual": True}, "residual Dense layers are not supported"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "Dense layers on token_embeddings"),
        ("2_Dense/config.json", {"out_features": 9}, "size mismatch|cannot load it"),
        ("2_Dense/model.safetensors", None, "no weights"),
    ],
)
def test_unsupported_sentence_folder_is_an_error(sentence_folder: Path, tmp_path: Path, name: str, change: Any, message: str) -> None:
    folder = shutil.copytree(sentence_folder, tmp_path / "st")
    damage(folder, name, change)
    with pytest.raises(MinerError, match=message) as caught:
        load(str(folder), EncoderSettings(device="cpu"))
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu(plain: Path) -> None:
    rows = load(str(plain), EncoderSettings(pooling="mean", device="cpu")).encode(TEXTS)
    exact = load(str(plain), EncoderSettings(pooling="mean", device="cuda", dtype="float32"))
    np.testing.assert_allclose(exact.encode(TEXTS), rows, atol=1e-4)
    auto = load(str(plain), EncoderSettings(pooling="mean"))
    assert auto.device.type == "cuda"
    assert ((auto.encode(TEXTS) * rows).sum(axis=1)[[0, 1, 2]] > 0.99).all()
