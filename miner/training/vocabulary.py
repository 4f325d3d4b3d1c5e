"""The pieces of a static encoder: a SentencePiece model in which small languages have their share."""

import io
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import sentencepiece

from miner.errors import ConfigError
from miner.training.datasets import Dataset
from miner.training.sampling import smoothed
from miner.training.settings import VocabularySettings

LONGEST = 4000  # bytes; SentencePiece skips longer sentences
TAKEN = 8192  # texts read at a time


def train_pieces(corpora: Sequence[Dataset], settings: VocabularySettings, seed: int, threads: int) -> bytes:
    """Train on a sample of the texts, languages smoothed; the serialised model. ConfigError where the texts are too few for its size."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sample(corpora, settings, seed),
            model_writer=model,
            vocab_size=settings.size,
            model_type="unigram",
            character_coverage=settings.character_coverage,
            normalization_rule_name=settings.normalisation,
            max_sentencepiece_length=20,
            max_sentence_length=LONGEST,
            bos_id=-1,
            eos_id=-1,
            unk_id=0,
            num_threads=threads,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ConfigError(f"vocabulary of {settings.size} pieces: {str(error).splitlines()[-1]}; change vocabulary.size") from error
    return model.getvalue()


def _sample(corpora: Sequence[Dataset], settings: VocabularySettings, seed: int) -> Iterator[str]:
    """At most `settings.sentences` texts; a small language's may come up to three times. Sources that tell no language are one each."""
    random = np.random.default_rng(seed)
    rows = [(corpus, of) for corpus in corpora for of in _by_language(corpus)]
    shares = smoothed(np.array([len(of) for _, of in rows]), settings.language_smoothing)
    for (corpus, of), share in zip(rows, shares, strict=True):
        wanted = int(settings.sentences * share)
        repeated = np.concatenate([random.permutation(of) for _ in range(3)])[:wanted]
        for start in range(0, len(repeated), TAKEN):
            yield from corpus.texts.take(repeated[start : start + TAKEN])


def _by_language(corpus: Dataset) -> Iterator[npt.NDArray[np.int64]]:
    """The rows of the texts of each language."""
    rows = np.arange(len(corpus.texts))
    if "lang" not in corpus.marks.column_names or len(corpus.roles) > 1:  # a language of a pair is not that of both its texts
        yield rows
        return
    codes, languages = corpus.codes("lang")
    for lang in range(len(languages)):
        yield rows[codes == lang]
