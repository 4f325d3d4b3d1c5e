"""Token vectors of a layer of a transformer: against the hidden states of transformers, and plain loops in float64."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
import transformers

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder
from miner.encoders.layer_tokens import LayerTokens, choose_token_encoder
from miner.encoders.model_folder import read_recipe
from miner.encoders.token_vectors import SCALE, WEIGHT_SCALE, TokenFile, TokenTable, TokenVectors
from miner.encoders.transformer import TransformerEncoder
from miner.errors import ConfigError
from miner.mining.late_interaction import late_similarities

SETTINGS = EncoderSettings(pooling="mean", device="cpu", dtype="float32")
SOURCES = ["one two three", "four", "five six seven eight nine one", "  ", "two unknown"]
TARGETS = ["eins zwei drei", "sieben", "vier fünf sechs sieben null"]
WIDTH = 12  # no multiple of 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_transformer(tmp_path_factory.mktemp("model"), layers=4, width=WIDTH)


def load(folder: Path, prompt: str = "", batch_tokens: int = 64) -> TransformerEncoder:
    recipe = replace(read_recipe(folder), pooling=("mean",), prompt=prompt)
    return TransformerEncoder(folder, recipe, SETTINGS.model_copy(update={"batch_tokens": batch_tokens}))


def hidden_states(folder: Path, words: list[str], layer: int) -> np.ndarray:
    """Return the states (tokens, width) of a sentence without padding, in float64, without the special tokens."""
    ids = [0, *(tiny.WORDS.index(word) if word in tiny.WORDS else 3 for word in words), 2]
    model = transformers.AutoModel.from_pretrained(folder).eval().double()
    with torch.no_grad():
        return model(torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0, 1:-1].numpy()


def reference(x: np.ndarray, y: np.ndarray) -> float:
    """Return L of tokens (n, width) and (m, width), which all weigh the same."""
    if not len(x) or not len(y):
        return 0.0
    units = [[token / np.sqrt(token @ token) for token in side] for side in (x, y)]
    forward = [max(float(u @ v) for v in units[1]) for u in units[0]]
    backward = [max(float(u @ v) for u in units[0]) for v in units[1]]
    return (sum(forward) / len(forward) + sum(backward) / len(backward)) / 2


@pytest.mark.parametrize("layer", [0, 1, 4])
def test_late_interaction_equals_plain_loops_over_hidden_states(folder: Path, layer: int) -> None:
    tokens = LayerTokens(load(folder), layer)
    rows, columns = (grid.ravel() for grid in np.meshgrid(np.arange(len(SOURCES)), np.arange(len(TARGETS))))
    similarities = late_similarities(tokens.token_vectors(SOURCES), tokens.token_vectors(TARGETS), rows, columns)
    states = {text: hidden_states(folder, text.split(), layer) for text in (*SOURCES, *TARGETS)}
    expected = [reference(states[SOURCES[row]], states[TARGETS[column]]) for row, column in zip(rows, columns, strict=True)]
    np.testing.assert_allclose(similarities, expected, atol=0.02)
    assert np.ptp(expected) > 0.1


def test_tokens_are_those_of_the_text_and_weigh_the_same(folder: Path) -> None:
    tokens = LayerTokens(load(folder)).token_vectors(SOURCES)
    assert tokens.lengths.tolist() == [3, 1, 6, 0, 2]
    assert set(tokens.weights.tolist()) == {WEIGHT_SCALE}
    assert tokens.table.shape == (12, 16)
    assert not tokens.table[:, WIDTH:].any()
    np.testing.assert_allclose(np.linalg.norm(tokens.table.astype(float), axis=1), SCALE, atol=2)


def test_batches_change_single_units_at_most(folder: Path) -> None:
    texts = [tiny.sentence("eng_Latn", digits) for digits in tiny.numbers(40, 0)]
    small, large = (LayerTokens(load(folder, batch_tokens=size)).token_vectors(texts) for size in (16, 4096))
    assert small.bounds.tolist() == large.bounds.tolist()
    assert np.abs(small.table.astype(int) - large.table).max() <= 1


def test_tokens_of_the_prompt_are_left_out(folder: Path) -> None:
    """They are in the context, so the vectors of the text are those of the text after the prompt."""
    tokens = LayerTokens(load(folder, prompt="seven one "), 4).token_vectors(["two three", ""])
    assert tokens.lengths.tolist() == [2, 0]
    states = hidden_states(folder, ["seven", "one", "two", "three"], 4)[2:]
    np.testing.assert_allclose(tokens.table[:, :WIDTH], states * SCALE / np.linalg.norm(states, axis=1, keepdims=True), atol=0.51)


def test_the_default_layer_is_at_two_thirds_and_a_missing_one_is_an_error(folder: Path) -> None:
    encoder = load(folder)
    assert LayerTokens(encoder).form.layer == 3  # of 4
    with pytest.raises(ConfigError, match=r"--token-layer 5: .* has layers 0 to 4; choose one of them"):
        choose_token_encoder(encoder, 5)


def test_encoders_without_layers_or_tokens(toy_encoder: Path) -> None:
    static = load_encoder(str(toy_encoder))
    assert choose_token_encoder(static, None) is static
    with pytest.raises(ConfigError, match="--token-layer 0: this encoder has no layers"):
        choose_token_encoder(static, 0)

    class PlainEncoder:
        dim, fingerprint = 4, "plain"

        def encode(self, texts: list[str]) -> np.ndarray:
            return np.ones((len(texts), 4), np.float32)

    assert choose_token_encoder(PlainEncoder(), None) is None


def test_vectors_in_a_file_are_those_in_memory() -> None:
    rng = np.random.default_rng(0)
    blocks = [rng.normal(size=(size, 16)) for size in (5, 0, 3)]
    file = TokenFile()
    for block in blocks:
        file.append(TokenTable.of(block))
    table, expected = file.table(), TokenTable.of(np.concatenate(blocks))
    assert isinstance(table.vectors, np.memmap)
    np.testing.assert_array_equal(table.vectors, expected.vectors)
    np.testing.assert_array_equal(table.norms, expected.norms)
    nothing = TokenFile().table()
    text, zero = TokenVectors.of(nothing, np.zeros(0, np.int32), np.zeros(2, np.int64)), np.zeros(1, np.int64)
    assert late_similarities(text, text, zero, zero).tolist() == [0.0]
