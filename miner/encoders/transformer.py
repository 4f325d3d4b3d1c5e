"""The transformer encoder: Hugging Face and sentence-transformers folders, and hub ids, on CPU or CUDA.

Weights are read from safetensors if there are any; pickles are loaded without executing code, and code in a model folder is never
run. Texts are sorted by length and split into batches of at most `batch_tokens` tokens, padding included, which bounds the memory of a
batch; where there are enough of them, a batch has texts of one length. On a CPU, small batches are faster: they fit into its cache.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from miner import languages
from miner.arrays import Bools, Floats32, Int8s, Ints
from miner.config.choices import AUTO, FLOAT32
from miner.config.commands import EncoderSettings
from miner.devices import CPU, attention_kernels, choose_device, read_ahead, upload
from miner.encoders import transformer_parts as parts
from miner.encoders.base import EncodeCounts, check_texts
from miner.encoders.model_folder import ModelRecipe, fingerprint, read_recipe
from miner.encoders.pooling import CHOICES, highest_layer, pooler
from miner.errors import ConfigError, ModelError
from miner.progress import add_work

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TokenLists = dict[str, list[list[int]]]  # inputs of the model, each as lists of different lengths
Forward = Callable[[TokenLists, Sequence[int]], tuple["Tensor", ...]]  # tokens of texts and a batch of these -> their vectors
ReduceStates = Callable[["Tensor"], Int8s]

BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}  # by default
MIN_BATCH_SHARE = 1 / 4  # of a batch's tokens, from which on it ends rather than being padded
# Tokenized and sorted together, which bounds the memory of their tokens. A GPU works on some while the next are tokenized.
WINDOW_TEXTS = {"cpu": 16384, "cuda": 4096}
STATES_TEXTS = 1024  # whose hidden states are in memory at a time: 120 MB at 40 tokens of 768 dimensions

logger = logging.getLogger(__name__)


class TokenizedTexts(NamedTuple):
    """Texts as inputs of the model."""

    inputs: TokenLists  # `input_ids` and maybe `token_type_ids`
    special: list[list[int]]  # for each token 1 if the tokenizer added it
    num_truncated: int


def load(name: str, settings: EncoderSettings) -> TransformerEncoder:
    """Load the transformer in a folder.

    Raise ModelError where it is missing, damaged or unsupported, ConfigError where the settings do not fit it.
    """
    folder = Path(name)
    return TransformerEncoder(folder, _read_recipe(folder, settings), settings)


def identify(name: str, settings: EncoderSettings) -> tuple[str, int, tuple[int, int]]:
    """Return the fingerprint, the dimension, and the layers and their width of the transformer in a folder.

    Its weights are hashed, and loaded only for `auto`.

    Raise what `load` raises, except for weights that do not fit the config.
    """
    recipe = _read_recipe(Path(name), settings)
    model = parts.build_skeleton(recipe.folder)
    max_tokens = parts.token_limit(recipe, settings.max_tokens, parts.load_tokenizer(recipe), model)
    dtype = settle_precision(name, settings)
    width = int(model.config.hidden_size)
    return fingerprint(recipe, max_tokens, dtype), _output_width(recipe, width), (int(model.config.num_hidden_layers), width)


def settle_precision(name: str, settings: EncoderSettings) -> str:
    """Return the data type that `load` chooses for these settings. The transformer is loaded only where `auto` compares its vectors."""
    if settings.dtype != AUTO:
        return settings.dtype
    device = torch_device(settings)
    fastest = parts.choose_precision(settings.dtype, device)
    return load(name, settings).precision if is_compared(settings.dtype, fastest, device) else fastest


def torch_device(settings: EncoderSettings) -> torch.device:
    """Return the device of an encoder."""
    import torch

    return torch.device(choose_device(settings.device))


def is_compared(dtype: str, fastest: str, device: torch.device) -> bool:
    """Return whether vectors in float32 decide on a data type: with `auto`, where the processor has a faster one."""
    return dtype == AUTO and fastest != FLOAT32 and device.type == CPU


def _read_recipe(folder: Path, settings: EncoderSettings) -> ModelRecipe:
    """Read a folder and apply the pooling and the prompt of the settings; raise ConfigError where there is no pooling."""
    recipe = read_recipe(folder).with_settings(settings)
    if not recipe.pooling:
        raise ConfigError(f"{folder}: the folder specifies no pooling; choose one with --pooling: {CHOICES}")
    for pooling in recipe.pooling:
        pooler(pooling)
    return recipe


def _output_width(recipe: ModelRecipe, hidden_size: int) -> int:
    """Return the dimension after pooling and all layers; raise ConfigError where they do not fit together."""
    width = hidden_size * len(recipe.pooling)
    for layer in recipe.layers:
        if layer.config.get("in_features", width) != width:
            raise ConfigError(
                f"{layer.folder}: takes vectors of {layer.config['in_features']} dimensions, pooling {', '.join(recipe.pooling)}"
                f" gives {width}; choose another --pooling"
            )
        width = int(layer.config.get("out_features", width))
    return width


class TransformerEncoder:
    """A transformer, its pooling and the layers after it.

    The vector of a text does not depend on the other texts, beyond rounding errors (1e-5 in float32, 1e-3 in int8).
    """

    def __init__(self, folder: Path, recipe: ModelRecipe, settings: EncoderSettings) -> None:
        """`recipe` decides the pooling, not `settings`."""
        self.folder, self.recipe = folder, recipe
        self.device = torch_device(settings)
        self.batch_tokens = settings.batch_tokens or BATCH_TOKENS[self.device.type]
        self.window_texts = WINDOW_TEXTS[self.device.type]
        self._model = parts.load_model(recipe.folder)
        self._tokenizer = parts.load_tokenizer(recipe)
        self.max_tokens = parts.token_limit(recipe, settings.max_tokens, self._tokenizer, self._model)
        self._poolers = [pooler(name) for name in recipe.pooling]
        self._needs_hidden_states = self._check_layers()
        self._layers = [parts.load_layer(layer, self.device) for layer in recipe.layers]
        self.dim = _output_width(recipe, int(self._model.config.hidden_size))
        self.num_positions = parts.count_positions(self._model)
        self._num_weights = parts.count_weights(self._model)
        self._num_embeddings = int(self._model.get_input_embeddings().weight.shape[0])
        self._input_names = tuple(inspect.signature(self._model.forward).parameters)
        self.tally = EncodeCounts()
        self._lock = threading.Lock()  # one batch at a time: two would need twice the memory
        self._set_precision(parts.choose_precision(settings.dtype, self.device), settings.dtype)
        self.fingerprint = fingerprint(recipe, self.max_tokens, self.precision)

    def _set_precision(self, fastest: str, dtype: str) -> None:
        """Move the model to its device, with `auto` in float32 where the fastest data type gives other vectors."""
        if not is_compared(dtype, fastest, self.device):
            self._move(fastest)
            return
        self._move(FLOAT32)
        exact = self.encode(parts.PROBE_TEXTS)
        self._move(fastest)
        try:
            is_close = bool(((exact * self.encode(parts.PROBE_TEXTS)).sum(axis=1) >= parts.MIN_COSINE).all())
        except ModelError:  # not finite
            is_close = False
        if not is_close:
            logger.info("%s: in float32, as %s gives other vectors", self.recipe.folder, fastest)
            self._model = parts.load_model(self.recipe.folder)
            self._move(FLOAT32)
        self.tally = EncodeCounts()

    def _move(self, precision: str) -> None:
        self.precision = precision
        parts.move(self._model, self.device, precision)

    def encode(self, texts: Sequence[str]) -> Floats32:
        """n texts -> (n, dim) float32 unit rows in the order of the texts; a zero row for a text without tokens or of spaces only."""
        import torch

        check_texts(texts)
        vectors = np.zeros((len(texts), self.dim), dtype=np.float32)
        rows = np.array([row for row, text in enumerate(texts) if text.strip()], dtype=np.int64)
        with self._lock:
            for window, tokenized in read_ahead(self._tokenized_windows(texts, rows)):
                batches = list(token_batches(self._count(tokenized), self.batch_tokens))
                encoded = [self._encode_batch(self._forward, tokenized.inputs, batch)[0] for batch in batches]
                if encoded:  # downloaded together: a GPU works on one batch while the next is prepared
                    vectors[window[np.concatenate(batches)]] = self._download(torch.cat(encoded))
        return vectors

    def in_language(self, lang: str) -> TransformerEncoder:
        """Return the encoder of texts of a language: this one, or one with the same weights whose tokenizer adds the tag of the language.

        Raise ConfigError where the tokenizer has tags, and none for the language.
        """
        tags = parts.language_tags(self._tokenizer)
        if not tags:
            return self
        code = languages.canonical(lang)
        if code not in tags:
            problem = "needs the language of texts" if code == languages.UNDETERMINED else f"has no tag for the language {code}"
            raise ConfigError(f"{self.folder}: {problem}; give another code with --lang, --source-lang or --target-lang")
        encoder = copy.copy(self)
        encoder._tokenizer = copy.deepcopy(self._tokenizer)
        encoder._tokenizer.src_lang = tags[code]
        return encoder

    def _tokenized_windows(self, texts: Sequence[str], rows: Ints) -> Iterator[tuple[Ints, TokenizedTexts]]:
        """Yield some rows (n,) of texts at a time, with their tokens."""
        for start in range(0, len(rows), self.window_texts):
            window = rows[start : start + self.window_texts]
            yield window, self._tokenize([texts[row] for row in window])

    @property
    def num_layers(self) -> int:
        """The number of layers, of which 0 is that of the embeddings."""
        return int(self._model.config.num_hidden_layers)

    @property
    def width(self) -> int:
        """The dimension of hidden states."""
        return int(self._model.config.hidden_size)

    def hidden_states(self, texts: Sequence[str], layer: int) -> Iterator[tuple[Floats32, Ints]]:
        """Yield the hidden states (t, width) of the tokens of successive texts (n,), and the number of tokens of each text (n,).

        Special tokens and those of the prompt are left out. A text of spaces only has no tokens.
        """
        check_texts(texts)
        for start in range(0, len(texts), STATES_TEXTS):
            with self._lock:
                block = self._hidden_states(texts[start : start + STATES_TEXTS], layer)
            yield block

    def encode_with_states(self, texts: Sequence[str], layer: int, reduce: ReduceStates) -> tuple[Floats32, Int8s, Ints]:
        """Return the vectors of n texts as `encode` does and, of the same pass, the tokens (t, k) and their number (n,).

        The tokens are those of `hidden_states`. `reduce` maps the hidden states of tokens (t, width) to integers (t, k), batch by batch.
        """
        import torch

        check_texts(texts)
        vectors, counts = np.zeros((len(texts), self.dim), dtype=np.float32), np.zeros(len(texts), dtype=np.int64)
        rows = np.array([row for row, text in enumerate(texts) if text.strip()], dtype=np.int64)
        blocks = [reduce(torch.zeros((0, self.width), device=self.device))]
        with self._lock:
            for window, tokenized in read_ahead(self._tokenized_windows(texts, rows)):
                lengths = self._count(tokenized)
                masks = [self._text_mask(texts[row], special) for row, special in zip(window, tokenized.special, strict=True)]
                counts[window] = [mask.sum() for mask in masks]
                starts = np.cumsum(counts[window]) - counts[window]
                block = np.zeros((int(counts[window].sum()), blocks[0].shape[1]), dtype=np.int8)
                for batch in token_batches(lengths, self.batch_tokens):
                    both = self._encode_batch(lambda tokens, part: self._forward_both(tokens, part, layer), tokenized.inputs, batch)
                    positions = np.concatenate([starts[index] + np.arange(counts[window[index]]) for index in batch])
                    is_of_text = torch.from_numpy(np.concatenate([masks[index] for index in batch])).to(self.device)
                    vectors[window[batch]] = self._download(both[0])
                    block[positions] = reduce(both[1][is_of_text])
                blocks.append(block)
        return vectors, np.concatenate(blocks), counts

    def _count(self, tokenized: TokenizedTexts) -> list[int]:
        """Add texts to the tally, and return the number of tokens of each."""
        lengths = [len(ids) for ids in tokenized.inputs["input_ids"]]
        self.tally.tokens += sum(lengths)
        self.tally.truncated_texts += tokenized.num_truncated
        return lengths

    def _hidden_states(self, texts: Sequence[str], layer: int) -> tuple[Floats32, Ints]:
        tokens, special, num_truncated = self._tokenize(texts)
        self.tally.truncated_texts += num_truncated
        masks = [self._text_mask(*marked) for marked in zip(texts, special, strict=True)]
        counts = np.array([mask.sum() for mask in masks], dtype=np.int64)
        starts = np.cumsum(counts) - counts
        states = np.zeros((int(counts.sum()), self.width), dtype=np.float32)

        def forward(tokens: TokenLists, batch: Sequence[int]) -> tuple[Tensor]:
            return (self._forward_tokens(tokens, batch, layer),)

        for batch in token_batches([len(ids) for ids in tokens["input_ids"]], self.batch_tokens):
            positions = np.concatenate([starts[index] + np.arange(counts[index]) for index in batch])
            is_of_text = np.concatenate([masks[index] for index in batch])
            states[positions] = self._download(self._encode_batch(forward, tokens, batch)[0])[is_of_text]
        return states, counts

    def count_tokens(self, texts: Sequence[str]) -> Ints:
        """Return the number of tokens (n,) of each text of which `hidden_states` returns the states."""
        special = self._tokenize(texts).special
        return np.array([self._text_mask(*marked).sum() for marked in zip(texts, special, strict=True)], dtype=np.int64)

    def _text_mask(self, text: str, is_special: Sequence[int]) -> Bools:
        """Mark (t,) the tokens of a text, without special ones and those of the prompt."""
        mask: Bools = np.array(is_special, dtype=np.int64) == 0
        mask[np.flatnonzero(mask)[: self._num_prompt_tokens]] = False
        mask &= bool(text.strip())
        return mask

    @cached_property
    def _num_prompt_tokens(self) -> int:
        prompt = (self.recipe.prompt or "").rstrip()
        return len(self._tokenizer(prompt, add_special_tokens=False)["input_ids"]) if prompt else 0

    def operations(self, tokens: float) -> float:
        """Return the floating point operations for a text: two per weight and token except embeddings, plus attention."""
        config = self._model.config
        return float(2 * self._num_weights * tokens + 4 * config.num_hidden_layers * config.hidden_size * tokens**2)

    def weight_bytes(self) -> int:
        """Return the bytes of the weights in memory."""
        return sum(int(weights.nbytes) for weights in self._model.parameters())

    def _tokenize(self, texts: Sequence[str]) -> TokenizedTexts:
        """Return the tokens of texts, cut at the limit."""
        prompted = [self.recipe.prompt + text for text in texts] if self.recipe.prompt else list(texts)
        truncation = {"truncation": True, "max_length": self.max_tokens} if self.max_tokens else {"truncation": False}
        tokens = self._tokenizer(prompted, padding=False, return_attention_mask=False, return_special_tokens_mask=True, **truncation)
        names = [name for name in ("input_ids", "token_type_ids") if name in tokens and name in self._input_names]
        num_truncated = sum(parts.find_truncated(tokens, self.max_tokens))
        return TokenizedTexts({name: tokens[name] for name in names}, tokens["special_tokens_mask"], num_truncated)

    def _encode_batch(self, forward: Forward, tokens: TokenLists, batch: Sequence[int]) -> tuple[Tensor, ...]:
        """Return what `forward` does for one batch; split it in halves where CUDA memory runs out."""
        import torch

        try:
            outputs = forward(tokens, batch)
            add_work(len(batch))
            return outputs
        except torch.cuda.OutOfMemoryError:
            longest = max(len(tokens["input_ids"][index]) for index in batch)
        # After the handler, whose traceback keeps the tensors of the failed batch alive.
        torch.cuda.empty_cache()
        if len(batch) == 1:
            raise ModelError(
                f"{self.device}: out of memory on one sentence of {longest} tokens; lower --max-tokens, or choose another --device"
            )
        logger.warning("out of memory on %d x %d tokens; retrying in halves, a lower --batch-tokens is faster", len(batch), longest)
        half = len(batch) // 2
        halves = [self._encode_batch(forward, tokens, part) for part in (batch[:half], batch[half:])]
        return tuple(torch.cat(outputs) for outputs in zip(*halves, strict=True))

    def _forward(self, tokens: TokenLists, batch: Sequence[int]) -> tuple[Tensor]:
        """Return the vectors (batch, dim) of texts."""
        import torch

        with torch.inference_mode():
            states, mask = self._run_model(tokens, batch, self._needs_hidden_states)
            return (self._pool(states, mask),)

    def _forward_both(self, tokens: TokenLists, batch: Sequence[int], layer: int) -> tuple[Tensor, Tensor]:
        """Return the vectors (batch, dim) of texts, and the hidden states (t, width) of all tokens."""
        import torch

        with torch.inference_mode():
            states, mask = self._run_model(tokens, batch, needs_hidden_states=True)
            return self._pool(states if self._needs_hidden_states else states[-1:], mask), states[layer][mask.bool()].float()

    def _pool(self, states: Sequence[Tensor], mask: Tensor) -> Tensor:
        """Return the vectors (batch, dim) of texts with these hidden states."""
        import torch

        vectors = torch.cat([pool(states, mask) for pool in self._poolers], dim=1)
        for layer in self._layers:
            vectors = layer(vectors)
        return torch.nn.functional.normalize(vectors, dim=1)

    def _forward_tokens(self, tokens: TokenLists, batch: Sequence[int], layer: int) -> Tensor:
        """Return the hidden states (t, width) of all tokens of texts, without padding."""
        import torch

        with torch.inference_mode():
            states, mask = self._run_model(tokens, batch, needs_hidden_states=True)
            return states[layer][mask.bool()]

    def _run_model(self, tokens: TokenLists, batch: Sequence[int], needs_hidden_states: bool) -> tuple[Sequence[Tensor], Tensor]:
        """Return the hidden states (batch, tokens, width) of all layers, or of the last one, and the mask (batch, tokens) of the tokens."""
        import torch

        inputs = {name: self._pad([values[index] for index in batch], name) for name, values in tokens.items()}
        lengths = torch.tensor([len(tokens["input_ids"][index]) for index in batch])
        mask = upload((torch.arange(inputs["input_ids"].shape[1]) < lengths[:, None]).long(), self.device)
        with attention_kernels(self.device):
            output = self._model(**inputs, attention_mask=mask, output_hidden_states=needs_hidden_states)
        return output.hidden_states if needs_hidden_states else [output.last_hidden_state], mask

    def _download(self, vectors: Tensor) -> Floats32:
        """Copy vectors to the memory of the CPU; raise ModelError where they are not finite."""
        result: Floats32 = vectors.float().cpu().numpy()
        if not np.isfinite(result).all():
            remedy = "its weights may be damaged; download it again" if self.precision == FLOAT32 else f"try --dtype {FLOAT32}"
            raise ModelError(f"{self.recipe.folder}: NaN or infinite vectors in {self.precision}; {remedy}")
        return result

    def _pad(self, values: Sequence[Sequence[int]], name: str) -> torch.Tensor:
        """Lists of token ids -> (batch, longest), padded on the right, on the device."""
        import torch

        fill = self._tokenizer.pad_token_type_id if name == "token_type_ids" else self._tokenizer.pad_token_id
        padded = np.full((len(values), max(map(len, values))), fill or 0, dtype=np.int64)
        for row, value in zip(padded, values, strict=True):
            row[: len(value)] = value
        if name == "input_ids" and padded.max(initial=0) >= self._num_embeddings:
            numbers = f"the tokenizer has token {padded.max()}, but the model only {self._num_embeddings}"
            raise ModelError(f"{self.recipe.folder}: {numbers}; they do not belong together: download the model again")
        return upload(torch.from_numpy(padded), self.device)

    def _check_layers(self) -> bool:
        """Return whether the pooling needs all hidden states; raise ConfigError for a layer that the model lacks."""
        highest = highest_layer(self.recipe.pooling)
        if highest is not None and highest > self.num_layers:
            layers = f"{self.recipe.folder} has layers 0 to {self.num_layers}"
            raise ConfigError(f"pooling {', '.join(self.recipe.pooling)}: {layers}; choose one of them")
        return highest is not None


def token_batches(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Yield indices of texts with these lengths in batches of at most `budget` tokens, padding included; longest first.

    A batch with MIN_BATCH_SHARE of the budget ends before a shorter text. A text longer than the budget is a batch of its own; a text
    without tokens is in no batch. Memory runs out early or not at all, since later texts are shorter.
    """
    batch: list[int] = []
    for index in sorted(filter(lengths.__getitem__, range(len(lengths))), key=lambda index: -lengths[index]):
        longest = lengths[batch[0]] if batch else 0
        needs_padding = lengths[index] < longest and len(batch) * longest >= MIN_BATCH_SHARE * budget
        if needs_padding or (batch and (len(batch) + 1) * longest > budget):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
