"""The vocabulary of a static encoder: a SentencePiece model trained on a language-smoothed sample."""

import io
import re
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import sentencepiece

from miner.errors import ConfigError
from miner.training.data.datasets import Dataset
from miner.training.data.sampling import smooth_shares
from miner.training.settings import VocabularySettings

MAX_SENTENCE_BYTES = 4000  # SentencePiece skips longer sentences
MAX_REPEATS = 3  # times a text is read, to raise the share of a small language
TOO_LARGE = re.compile(r"set it to a value <= (\d+)")  # in errors of SentencePiece
TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")
READ_TEXTS = 8192  # texts per read


def train_pieces(datasets: Sequence[Dataset], settings: VocabularySettings, seed: int, num_threads: int) -> bytes:
    """Train a SentencePiece model and return it serialised. Raises ConfigError if there are too few texts for its size."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sample_texts(datasets, settings, seed),
            model_writer=model,
            vocab_size=settings.size,
            model_type="unigram",
            character_coverage=settings.character_coverage,
            normalization_rule_name=settings.normalisation,
            max_sentencepiece_length=20,
            max_sentence_length=MAX_SENTENCE_BYTES,
            bos_id=-1,
            eos_id=-1,
            unk_id=0,
            num_threads=num_threads,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(f"encoder.vocabulary.size {settings.size}: {_explain(str(error))}") from error
    return model.getvalue()


def _explain(message: str) -> str:
    """Return what is wrong with a size, and how to fix it, from an error of SentencePiece."""
    if match := TOO_LARGE.search(message):
        return f"the texts have only {int(match[1]):,} pieces; lower it to at most that"
    if match := TOO_SMALL.search(message):
        return f"the texts have {int(match[1]):,} characters; raise it above that, or lower encoder.vocabulary.character_coverage"
    return f"{message.splitlines()[-1]}; change it"


def _sample_texts(datasets: Sequence[Dataset], settings: VocabularySettings, seed: int) -> Iterator[str]:
    """Yield at most `settings.sentences` texts, languages smoothed. A source without a language column counts as one language."""
    random = np.random.default_rng(seed)
    parts = [(dataset, rows) for dataset in datasets for rows in _rows_by_language(dataset)]
    shares = smooth_shares(np.array([len(rows) for _, rows in parts]), settings.language_smoothing)
    for (dataset, rows), share in zip(parts, shares, strict=True):
        sample_size = int(settings.sentences * share)
        sample = np.concatenate([random.permutation(rows) for _ in range(MAX_REPEATS)])[:sample_size]
        for start in range(0, len(sample), READ_TEXTS):
            yield from dataset.texts.take(sample[start : start + READ_TEXTS])


def _rows_by_language(dataset: Dataset) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of the texts of each language."""
    rows = np.arange(len(dataset.texts))
    # In rows with several texts, the language column does not apply to each of them.
    if "lang" not in dataset.metadata.column_names or len(dataset.roles) > 1:
        yield rows
        return
    codes, languages = dataset.encode_column("lang")
    for code in range(len(languages)):
        yield rows[codes == code]
