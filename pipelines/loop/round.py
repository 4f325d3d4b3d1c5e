"""One round of the loop: embed each language, mine each language pair, select, train, evaluate. Finished stages are kept on a rerun."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miner.config.commands import (
    DecideSettings,
    EmbedConfig,
    EncoderSettings,
    MineConfig,
    TokenSettings,
)
from miner.encoders import Encoder, load_encoder, mining_profile
from miner.errors import NoThresholdError
from miner.evaluation.inputs import encode, read_aligned
from miner.evaluation.retrieval import RetrievalTask
from miner.evaluation.tatoeba import TatoebaTask
from miner.io import records, storage
from miner.io.corpus import open_corpus
from miner.loop.progress import drift
from miner.loop.settings import LoopConfig
from miner.text import readers
from miner.text.decontaminate import EvaluationIndex
from miner.training import run as training
from miner.training.config import TrainConfig
from miner.training.layout import ENCODER, OUTPUTS
from pipelines.corpus import embed
from pipelines.loop.figures import CorpusSignature, EvaluationFigures, SelectionFigures, StageSeconds
from pipelines.loop.select import GROUPS, PAIRS, SELECTION, VALIDATION, LanguagePair, MinedFolder, pair_name, select
from pipelines.mining import choose_threshold, mine, rescore_choice
from pipelines.mining import gold_pairs as golds

CORPORA, MINED, EVALUATION, STARTED, SECONDS = "corpora", "mined", "evaluation.json", "started.json", "seconds.json"
# Everything that depends on the text of a round, except embeddings, which are kept by sentence id.
TRAINING_OUTPUTS = (PAIRS, GROUPS, VALIDATION, SELECTION, EVALUATION, *OUTPUTS)
MINED_PER_REQUESTED = 2  # mined pairs per pair of `min_count`, since the selection drops some
MAX_DRIFT_TEXTS = 4000  # dev sentences by which encoders are compared

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundPaths:
    """The directories that a round reads and writes."""

    number: int  # -1 for the start encoder
    folder: str
    start_encoder: str
    last_encoder: str | None = None  # the encoder that mines; None for the start encoder itself

    @property
    def encoder(self) -> str:
        """The encoder that the round trains."""
        return storage.join(self.folder, ENCODER)

    @property
    def mining_encoder(self) -> str:
        return self.last_encoder or self.start_encoder


def run(config: LoopConfig, paths: RoundPaths, evaluation: EvaluationIndex, options: Sequence[str] = ()) -> dict[str, Any]:
    """Run or resume a round and return its figures, without `dev` if there are too few pairs to train on."""
    folder = paths.folder
    _discard_stale_outputs(config, folder)
    with _timed(folder, "embed"):
        corpora = {lang: _embed(config, lang, paths, options) for lang in config.corpora}
    _warn(config, paths, open_corpus(next(iter(corpora.values()))).fingerprint)
    with _timed(folder, "mine"):
        mined = {langs: _mine(config, langs, corpora, paths, options) for langs in config.language_pairs}
    selection = storage.join(folder, SELECTION)
    if not storage.exists(selection):
        with _timed(folder, "select"):
            select(config, folder, mined, evaluation)
    figures: dict[str, Any] = {"selection": records.read(selection, SelectionFigures)}
    if figures["selection"]["training"] >= config.stop.least_pairs:
        with _timed(folder, "train"):
            training.train(resolve_training_config(config.training, paths), folder, resume=True)
        with _timed(folder, "evaluate"):
            figures |= evaluate(config, paths)
    return {**figures, "seconds": records.read(storage.join(folder, SECONDS), StageSeconds)}


def _warn(config: LoopConfig, paths: RoundPaths, fingerprint: str) -> None:
    """Warn, once for all language pairs, of thresholds that the encoder does not recommend and of languages that it does not know."""
    profile = embed.find_profile(_encoder_settings(config, paths, paths.mining_encoder), fingerprint)
    is_rescored = rescore_choice.is_planned(config.mining, paths.mining_encoder)
    choose_threshold.warn_of_corpora(config.mining, profile, is_rescored)
    mining_profile.warn_of_languages(profile, config.corpora)


def _discard_stale_outputs(config: LoopConfig, folder: str) -> None:
    """Remove what an interrupted run of the round selected and trained if the corpora changed since. Embeddings are kept."""
    signature, started = corpus_signature(config), storage.join(folder, STARTED)
    if storage.exists(started) and records.read(started, CorpusSignature) != signature:
        logger.warning("%s: the corpora changed; mining and training again", folder)
        for name in TRAINING_OUTPUTS:
            storage.remove(storage.join(folder, name))
    records.write(started, signature)


def corpus_signature(config: LoopConfig) -> dict[str, dict[str, str]]:
    """Return language -> file -> size and modification time, which change with the text of the corpora."""
    return {lang: {uri: readers.input_signature(uri) for uri in readers.expand(files)} for lang, files in config.corpora.items()}


@contextlib.contextmanager
def _timed(folder: str, stage: str) -> Iterator[None]:
    """Add the duration of a stage to `FOLDER/seconds.json`, which accumulates over resumed runs, unless the process was killed."""
    logger.info("%s: %s", Path(folder).name, stage)
    start, uri = time.perf_counter(), storage.join(folder, SECONDS)
    try:
        yield
    finally:  # also of an attempt that failed
        seconds = records.read(uri, StageSeconds) if storage.exists(uri) else {}
        seconds[stage] = round(seconds.get(stage, 0) + time.perf_counter() - start, 2)
        records.write(uri, seconds)


def _embed(config: LoopConfig, lang: str, paths: RoundPaths, options: Sequence[str]) -> str:
    output = storage.join(paths.folder, CORPORA, lang)
    settings = {**config.mining.shared(TokenSettings), **config.reading.shared(EmbedConfig)}
    settings |= dict(_encoder_settings(config, paths, paths.mining_encoder))
    embed.run(EmbedConfig(inputs=config.corpora[lang], output=output, lang=lang, replace=True, **settings), options)
    return output


def _encoder_settings(config: LoopConfig, paths: RoundPaths, encoder: str) -> EncoderSettings:
    """Return the runtime settings of an encoder: those of the start encoder, except pooling and prompt, which a trained encoder stores."""
    changes = {"encoder": encoder, **({} if encoder == paths.start_encoder else {"pooling": None, "prompt": None})}
    return config.start.part(EncoderSettings).model_copy(update=changes)


def _mine(config: LoopConfig, langs: LanguagePair, corpora: Mapping[str, str], paths: RoundPaths, options: Sequence[str]) -> MinedFolder:
    """Mine above the threshold, or above the floor if there may be too few pairs; the selection then takes the best."""
    output = storage.join(paths.folder, MINED, pair_name(langs))
    settings = {**config.mining.shared(MineConfig), **dict(fill_evidence(config.mining.part(DecideSettings), langs))}
    settings |= dict(_encoder_settings(config, paths, paths.mining_encoder))  # encodes planted pairs
    mine_config = MineConfig(source=corpora[langs[0]], target=corpora[langs[1]], output=output, **settings)
    num_pairs, threshold = _mine_above_threshold(mine_config, options)
    has_too_few = num_pairs < MINED_PER_REQUESTED * config.selection.min_count
    if np.isposinf(threshold) or (has_too_few and threshold > config.selection.floor):
        mine.run(mine_config.model_copy(update={"threshold": config.selection.floor, "planted": None}), options, warns=False)
    gold = golds.resolve(golds.read(mine_config.gold, mine_config.gold_sample), *(open_corpus(corpora[lang]) for lang in langs))
    return MinedFolder(output, threshold, gold)


def _mine_above_threshold(config: MineConfig, options: Sequence[str]) -> tuple[int, float]:
    """Return the number of mined pairs and the threshold: infinite if no threshold reaches the required precision."""
    try:
        bitext = mine.run(config, options, warns=False).bitext
    except NoThresholdError as error:
        logger.warning("%s: %s", config.output, error)
        return 0, np.inf
    return bitext.pairs, -np.inf if bitext.threshold is None else bitext.threshold


def fill_evidence(settings: DecideSettings, langs: LanguagePair) -> DecideSettings:
    """Replace `{source}` and `{target}` in the files of gold, marks and planted pairs by the codes of a language pair."""

    def fill(name: str) -> str:
        return name.replace("{source}", langs[0]).replace("{target}", langs[1])

    planted = None if settings.planted is None else fill(settings.planted)
    return settings.model_copy(update={"gold": tuple(map(fill, settings.gold)), "planted": planted})


def resolve_training_config(config: TrainConfig, paths: RoundPaths) -> TrainConfig:
    """Return the training config of a round, with placeholders replaced and a seed of its own."""
    names = {"{round}": paths.folder, "{last}": paths.mining_encoder, "{start}": paths.start_encoder}
    replacements = {placeholder: str(Path(name).absolute()) for placeholder, name in names.items()}  # the same, however --output is written

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            for placeholder, path in replacements.items():
                value = value.replace(placeholder, path)
            return value
        if isinstance(value, dict):
            return {name: fill(part) for name, part in value.items()}
        return [fill(part) for part in value] if isinstance(value, list) else value

    values = fill(config.model_dump(mode="json"))
    values["training"]["seed"] += paths.number + 1
    return TrainConfig.check(**values)


def evaluate(config: LoopConfig, paths: RoundPaths) -> dict[str, Any]:
    """Evaluate the encoder of a round and its drift from the one that mined, and keep the figures in `FOLDER/evaluation.json`."""
    uri = storage.join(paths.folder, EVALUATION)
    if not storage.exists(uri):
        encoder = load_encoder(paths.encoder, _encoder_settings(config, paths, paths.encoder))
        tasks = {"dev": config.evaluation.dev, "test": config.evaluation.test, "validation": _validation_tasks(paths.folder)}
        figures: dict[str, Any] = {name: _retrieval_accuracy(encoder, named_tasks) for name, named_tasks in tasks.items()}
        if config.evaluation.tatoeba is not None:
            figures["tatoeba"] = TatoebaTask(data=config.evaluation.tatoeba).evaluate(encoder).figures["average"]["all"]
        if paths.last_encoder is not None:
            last_encoder = load_encoder(paths.last_encoder, _encoder_settings(config, paths, paths.last_encoder))
            texts = _drift_texts(config)
            figures["drift"] = drift(encode(last_encoder, texts, np.float32), encode(encoder, texts, np.float32))
        records.write(uri, figures)
    return dict(records.read(uri, EvaluationFigures))


def _retrieval_accuracy(encoder: Encoder, tasks: Mapping[str, RetrievalTask]) -> dict[str, float]:
    """Return the accuracy by ratio margin, the mean of both directions, of each task."""
    return {name: task.evaluate(encoder).figures["accuracy"]["ratio"]["mean"] for name, task in tasks.items()}


def _drift_texts(config: LoopConfig) -> list[str]:
    """Return an evenly spaced sample of the dev sentences."""
    texts = [text for task in config.evaluation.dev.values() for side in read_aligned(task) for text in side]
    return texts[:: -(-len(texts) // MAX_DRIFT_TEXTS)]


def _validation_tasks(folder: str) -> dict[str, RetrievalTask]:
    """Return a retrieval task for the validation pairs of each language pair."""
    validation = storage.join(folder, VALIDATION)
    files = {name.removesuffix(".tsv"): storage.join(validation, name) for name in storage.names_in(validation)}
    return {name: RetrievalTask(source=uri, target=uri, source_column="source", target_column="target") for name, uri in files.items()}
