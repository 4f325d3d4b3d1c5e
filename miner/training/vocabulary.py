"""The pieces of a static encoder: a SentencePiece model in which small languages have their share."""

import io
from collections.abc import Iterator

import numpy as np
import sentencepiece

from miner.config import VocabularySettings
from miner.errors import ConfigError
from miner.training.examples import Groups, smoothed

LONGEST = 4000  # bytes; SentencePiece skips longer sentences


def train_pieces(groups: Groups, settings: VocabularySettings, seed: int, threads: int) -> bytes:
    """Train on a sample of the texts, languages smoothed; the serialised model. ConfigError where the texts are too few for its size."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sample(groups, settings, seed),
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


def _sample(groups: Groups, settings: VocabularySettings, seed: int) -> Iterator[str]:
    """At most `settings.sentences` texts; a small language's may come up to three times."""
    random = np.random.default_rng(seed)
    rows = [np.flatnonzero(groups.lang == lang) for lang in range(len(groups.languages))]
    shares = smoothed(np.array([len(of) for of in rows]), settings.language_smoothing)
    for of, share in zip(rows, shares, strict=True):
        wanted = int(settings.sentences * share)
        repeated = np.concatenate([random.permutation(of) for _ in range(3)])
        for row in repeated[:wanted]:
            yield groups.texts[int(row)].as_py()
