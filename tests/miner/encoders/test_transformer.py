"""The transformer encoder against sentence-transformers on the same folder, and against sums done by hand."""

import json
import pickle
import shutil
from collections.abc import Iterator, Sequence
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


def save_tokenizer(folder: Path, **options: Any) -> None:
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    special = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", mask_token="<mask>", **special, **options
    ).save_pretrained(folder)


def save_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """A tiny model of random weights with a word-level tokenizer, as a plain Hugging Face folder."""
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


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small spend their time waiting for threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=["bert", "xlm-roberta", "t5"])
def any_plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("any"), request.param)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("plain"), "xlm-roberta")


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    return shutil.copytree(plain, tmp_path / "copy")


def save_sentence(plain: Path, folder: Path, *after: torch.nn.Module, **options: Any) -> Path:
    """The plain folder as a sentence-transformers folder with these modules after the transformer."""
    SentenceTransformer(modules=[modules.Transformer(str(plain), **options), *after]).save(str(folder))
    return folder


def theirs(folder: Path, texts: Sequence[str]) -> np.ndarray:
    return SentenceTransformer(str(folder), device="cpu").encode(list(texts), normalize_embeddings=True)


def assert_as_theirs(folder: Path, **settings: Any) -> None:
    ours = load(str(folder), EncoderSettings(device="cpu", **settings)).encode(TEXTS)
    reference = theirs(folder, TEXTS)
    assert ours.dtype == np.float32
    assert not ours[TEXTS.index("")].any()
    filled = [row for row, text in enumerate(TEXTS) if text]
    np.testing.assert_allclose(ours[filled], reference[filled], atol=1e-5)
    assert ((ours * reference).sum(axis=1)[filled] > 0.9999).all()


def by_hand(folder: Path, text: str) -> tuple[torch.Tensor, ...]:
    """Every hidden state (tokens, width) of one sentence alone, so that nothing is padded."""
    ids = [0, *(WORDS.index(word) if word in WORDS else 3 for word in text.split()), 2]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return tuple(state[0] for state in model(torch.tensor([ids]), output_hidden_states=True).hidden_states)


@pytest.mark.parametrize("pooling", [*ST_POOLINGS, ("cls", "mean"), ("max", "lasttoken", "cls")], ids=str)
def test_every_pooling_of_sentence_transformers(plain: Path, tmp_path: Path, pooling: Any) -> None:
    assert_as_theirs(save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode=pooling)))


def test_every_architecture(any_plain: Path, tmp_path: Path) -> None:
    assert_as_theirs(save_sentence(any_plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode="mean")), batch_tokens=32)


@pytest.mark.parametrize("flags", [["mean_tokens"], ["max_tokens", "cls_token"], ["mean_sqrt_len_tokens", "mean_tokens"], []], ids=str)
def test_pooling_flags_of_older_folders(plain: Path, tmp_path: Path, flags: list[str]) -> None:
    folder = save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH))
    config = {"word_embedding_dimension": WIDTH} | {f"pooling_mode_{flag}": True for flag in flags} | {"pooling_mode_lasttoken": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert_as_theirs(folder)


@pytest.mark.parametrize("activation", [torch.nn.Tanh(), torch.nn.Identity(), torch.nn.GELU()], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_dense_and_normalize_layers(plain: Path, tmp_path: Path, activation: torch.nn.Module, bias: bool) -> None:
    torch.manual_seed(1)
    layers = [modules.Normalize(), modules.Dense(2 * WIDTH, 24, bias=bias, activation_function=activation), modules.Normalize()]
    folder = save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode=("cls", "mean")), *layers)
    assert_as_theirs(folder)
    assert load(str(folder), EncoderSettings()).dim == 24


def test_weights_that_are_not_safetensors(plain: Path, tmp_path: Path) -> None:
    folder = save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH), modules.Dense(WIDTH, 16))
    from safetensors.torch import load_file

    for part in (folder, folder / "2_Dense"):
        torch.save(load_file(part / "model.safetensors"), part / "pytorch_model.bin")
        (part / "model.safetensors").unlink()
    assert_as_theirs(folder)


def test_lower_case_and_maximum_length_of_older_folders(plain: Path, tmp_path: Path) -> None:
    folder = save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH))
    save_tokenizer(folder)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    assert_as_theirs(folder)
    encoder = load(str(folder), EncoderSettings(device="cpu"))
    assert encoder.max_tokens == 9
    capital, small = encoder.encode(["the House runs", "the house runs"])
    np.testing.assert_array_equal(capital, small)


def test_default_prompt(plain: Path, tmp_path: Path) -> None:
    folder = save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH))
    path = folder / "config_sentence_transformers.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prompts": {"p": "a cat , "}, "default_prompt_name": "p"}))
    assert_as_theirs(folder)


@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_mean_of_a_layer_by_hand(plain: Path, layer: int) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling=f"layer:{layer}"))
    texts = [text for text in TEXTS if text]
    for text, row in zip(texts, encoder.encode(texts), strict=True):
        expected = by_hand(plain, text)[layer].numpy().mean(axis=0)
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_first_and_last_layer_by_hand(tmp_path: Path, kind: str) -> None:
    folder = save_model(tmp_path, kind)
    encoder = load(str(folder), EncoderSettings(device="cpu", pooling="first_last_avg"))
    texts = [text for text in TEXTS if text]
    for text, row in zip(texts, encoder.encode(texts), strict=True):
        states = by_hand(folder, text)
        expected = ((states[1] + states[-1]) / 2).numpy().mean(axis=0)
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max", "first_last_avg", "layer:2", "lasttoken", "weightedmean"])
def test_rows_do_not_depend_on_the_batch_and_keep_their_order(plain: Path, pooling: str) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[5:], size=size)) for size in rng.integers(0, 40, size=24)]
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling=pooling))
    alone = np.concatenate([encoder.encode([text]) for text in texts])
    for budget in (16, 100, 4096):
        encoder.batch_tokens = budget
        np.testing.assert_allclose(encoder.encode(texts), alone, atol=1e-5)
    order = rng.permutation(len(texts))
    np.testing.assert_allclose(encoder.encode([texts[row] for row in order]), alone[order], atol=1e-5)


def test_more_texts_than_one_window(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    whole = encoder.encode(TEXTS)
    monkeypatch.setattr("miner.encoders.transformer.WINDOW", 2)
    np.testing.assert_allclose(encoder.encode(TEXTS), whole, atol=1e-5)


@pytest.mark.parametrize("budget", [16, 50, 1000])
def test_token_batches(budget: int) -> None:
    lengths = np.random.default_rng(budget).integers(1, 40, size=200).tolist()
    batches = list(token_batches(lengths, budget))
    assert sorted(place for batch in batches for place in batch) == list(range(200))
    assert all(len(batch) == 1 or len(batch) * max(lengths[place] for place in batch) <= budget for batch in batches)
    in_order = [lengths[place] for batch in batches for place in batch]
    assert in_order == sorted(lengths, reverse=True)
    assert list(token_batches([3, 5, 4, 1], 10)) == [[1, 2], [0, 3]]
    assert list(token_batches([0, 2, 0], 10)) == [[1]]
    assert list(token_batches([], 10)) == []


def test_texts_with_nothing_to_encode_are_zero_rows(plain: Path) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    rows = encoder.encode(["", "cat", "  \t"])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), [0, 1, 0], atol=1e-6)
    assert encoder.encode([]).shape == (0, WIDTH)


def test_long_sentences_are_cut(plain: Path) -> None:
    words = (" ".join(WORDS[5:]) + " ") * 20
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    assert encoder.max_tokens == POSITIONS - PAD - 1  # its positions start after the padding's
    cut = " ".join(words.split()[: encoder.max_tokens - 2])
    np.testing.assert_allclose(encoder.encode([words]), encoder.encode([cut]), atol=1e-6)
    short = load(str(plain), EncoderSettings(device="cpu", pooling="mean", max_tokens=5))
    np.testing.assert_allclose(short.encode(["the cat runs over a house"]), encoder.encode(["the cat runs"]), atol=1e-6)
    with pytest.raises(ConfigError, match="room for 46 tokens"):
        load(str(plain), EncoderSettings(pooling="mean", max_tokens=47))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_is_close_and_gives_float32_unit_rows(plain: Path, precision: Any) -> None:
    exact = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    half = load(str(plain), EncoderSettings(device="cpu", pooling="mean", dtype=precision))
    texts = [text for text in TEXTS if text]
    rows = half.encode(texts)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert ((rows * exact.encode(texts)).sum(axis=1) > 0.99).all()
    assert half.fingerprint == exact.fingerprint


def test_a_batch_without_room_is_encoded_in_halves(plain: Path) -> None:
    encoder = load(str(plain), EncoderSettings(device="cpu", pooling="mean"))
    expected = encoder.encode(TEXTS)
    room = 2

    def run_out(_module: Any, _arguments: Any, inputs: dict[str, torch.Tensor]) -> None:
        if len(inputs["input_ids"]) > room:
            raise torch.cuda.OutOfMemoryError

    encoder._model.register_forward_pre_hook(run_out, with_kwargs=True)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, atol=1e-5)
    room = 0
    with pytest.raises(ModelError, match=r"out of memory on one sentence of 2. tokens; lower --max-tokens"):
        encoder.encode(TEXTS)


def test_vectors_that_are_not_numbers(copy: Path) -> None:
    model = transformers.AutoModel.from_pretrained(copy)
    model.embeddings.word_embeddings.weight.data.fill_(float("nan"))
    model.save_pretrained(copy)
    with pytest.raises(ModelError, match="NaN or infinite vectors in float32"):
        load(str(copy), EncoderSettings(pooling="mean", device="cpu")).encode(["the cat"])


def test_fingerprint_follows_what_changes_vectors(plain: Path, copy: Path, tmp_path: Path) -> None:
    def name(folder: Path, **settings: Any) -> str:
        return load(str(folder), EncoderSettings(**{"pooling": "mean", "device": "cpu", **settings})).fingerprint

    first = name(plain)
    same = {name(copy), name(plain, batch_tokens=16), name(plain, dtype="bfloat16")}
    transformers.AutoModel.from_pretrained(copy).save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    save_tokenizer(tmp_path / "sharded")
    assert not (tmp_path / "sharded" / "model.safetensors").exists()
    assert same | {name(tmp_path / "sharded")} == {first}

    changed = [name(plain, pooling="cls"), name(plain, pooling="layer:2"), name(plain, max_tokens=12)]
    changed.append(name(save_model(tmp_path / "seed", "xlm-roberta", seed=1)))
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    tokenizer["normalizer"] = {"type": "Lowercase"}
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    changed.append(name(copy))
    for seed in (0, 1):
        torch.manual_seed(seed)
        folder = save_sentence(plain, tmp_path / f"dense{seed}", modules.Pooling(WIDTH), modules.Dense(WIDTH, WIDTH))
        changed.append(name(folder, pooling=None))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": True}))
    changed.append(name(folder, pooling=None))
    assert len({first, *changed}) == 1 + len(changed)


def test_the_registry_finds_transformers(plain: Path) -> None:
    assert load_encoder(str(plain), EncoderSettings(pooling="mean", device="cpu")).dim == WIDTH


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": None}, r"does not say how to pool .* one of cls, mean, max, first_last_avg, .*layer:N"),
        ({"pooling": "average"}, "unknown pooling 'average'; one of cls, mean"),
        ({"pooling": "layer:4"}, "has layers 0 to 3"),
        ({"pooling": "layer:-1"}, "unknown pooling"),
        ({"device": "tpu"}, "unknown device 'tpu'; one of auto, cpu, cuda"),
        ({"device": "mps"}, "unknown device 'mps'"),
        ({"device": "cuda:99"}, "CUDA devices here"),
    ],
)
def test_settings_that_cannot_work(plain: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(str(plain), EncoderSettings(**{"pooling": "mean", "device": "cpu", **settings}))


def test_pooling_that_does_not_fit_the_layers_after_it(plain: Path, tmp_path: Path) -> None:
    folder = save_sentence(plain, tmp_path / "st", modules.Pooling(WIDTH, pooling_mode=("cls", "mean")), modules.Dense(2 * WIDTH, 8))
    with pytest.raises(ConfigError, match="takes vectors of 64, pooling mean gives 32"):
        load(str(folder), EncoderSettings(pooling="mean"))


class Harm:
    """A pickle that leaves a file behind when it is read carelessly."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self.trace,)


def test_pickles_are_not_run(copy: Path, tmp_path: Path) -> None:
    (copy / "model.safetensors").unlink()
    (copy / "pytorch_model.bin").write_bytes(pickle.dumps(Harm(tmp_path / "trace")))
    with pytest.raises(ModelError, match="not loaded by transformers"):
        load(str(copy), EncoderSettings(pooling="mean"))
    assert not (tmp_path / "trace").exists()


def damage(folder: Path, name: str, change: Any) -> None:
    """Rewrite a file: to these bytes, to these changes of its JSON object, or (None) to nothing at all."""
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
        ("model.safetensors", b"not weights", "not loaded by transformers"),
        ("config.json", b"{", "not loaded by transformers|not JSON"),
        ("config.json", None, "so not the folder of an encoder"),
        ("config.json", {"model_type": "unheard-of"}, "not loaded by transformers"),
        ("config.json", {"num_hidden_layers": LAYERS + 1}, "its weights lack encoder.layer.3"),
        ("config.json", {"hidden_size": 64}, "not loaded by transformers"),
        ("tokenizer.json", b"{}", "not loaded by transformers"),
        ("adapter_config.json", {}, "an adapter without its model"),
    ],
)
def test_damaged_plain_folders(copy: Path, name: str, change: Any, message: str) -> None:
    damage(copy, name, change)
    with pytest.raises(ModelError, match=message) as caught:
        load(str(copy), EncoderSettings(pooling="mean", device="cpu"))
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def sentence(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentence(plain, tmp_path_factory.mktemp("sentence") / "st", modules.Pooling(WIDTH), modules.Dense(WIDTH, 8))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("modules.json", b"[]", "not a list of modules"),
        ("modules.json", b'[{"type": "x.StaticEmbedding", "path": ""}]', "module StaticEmbedding .* is not supported"),
        ("modules.json", b'[{"type": "x.Transformer", "path": ""}, {"type": "x.CNN", "path": "c"}]', "module CNN .* is not supported"),
        ("modules.json", b'[{"type": "x.Transformer", "path": "../other"}]', "leaves the folder"),
        ("modules.json", b'[{"type": "x.Transformer", "path": ""}]', "does not say how to pool"),
        ("sentence_bert_config.json", {"transformer_task": "fill-mask"}, "'transformer_task' is not supported"),
        ("sentence_bert_config.json", {"config_args": {"is_causal": False}}, "'config_args' is not supported"),
        ("1_Pooling/config.json", {"pooling_mode": "sum"}, "pooling 'sum' is not supported"),
        ("1_Pooling/config.json", None, "No such file"),
        ("2_Dense/config.json", {"activation_function": "os.system"}, "activation os.system is not supported"),
        ("2_Dense/config.json", {"use_residual": True}, "residual Dense layers are not supported"),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "Dense layers on token_embeddings"),
        ("2_Dense/config.json", {"out_features": 9}, "size mismatch|not loaded"),
        ("2_Dense/model.safetensors", None, "no weights"),
    ],
)
def test_unsupported_sentence_folders(sentence: Path, tmp_path: Path, name: str, change: Any, message: str) -> None:
    folder = shutil.copytree(sentence, tmp_path / "st")
    damage(folder, name, change)
    with pytest.raises(MinerError, match=message) as caught:
        load(str(folder), EncoderSettings(device="cpu"))
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_agrees_with_cpu(plain: Path) -> None:
    rows = load(str(plain), EncoderSettings(pooling="mean", device="cpu")).encode(TEXTS)
    exact = load(str(plain), EncoderSettings(pooling="mean", device="cuda", dtype="float32"))
    np.testing.assert_allclose(exact.encode(TEXTS), rows, atol=1e-4)
    auto = load(str(plain), EncoderSettings(pooling="mean"))
    assert auto.device.type == "cuda"
    assert ((auto.encode(TEXTS) * rows).sum(axis=1)[[0, 1, 2]] > 0.99).all()
