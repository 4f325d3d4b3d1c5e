"""One round: embed every language, mine every pair, select, train, evaluate. What is finished in its folder is kept."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miner import storage
from miner.config.commands import DecideSettings, EmbedConfig, EncoderSettings, EngineSettings, MineConfig, SentenceSettings, TextSettings
from miner.corpus import open_corpus
from miner.encoders import Encoder, load_encoder
from miner.errors import NoThresholdError
from miner.evaluation import retrieval, tatoeba
from miner.evaluation.inputs import encode, read_aligned
from miner.evaluation.settings import RetrievalTask, TatoebaTask
from miner.loop.decontaminate import EvaluationIndex
from miner.loop.figures import drift
from miner.loop.settings import LoopConfig
from miner.text import readers, sentences
from miner.training import run as training
from miner.training.settings import TrainConfig
from miner.training.trainer import CHECKPOINTS, ENCODER
from pipelines.corpus import embed
from pipelines.loop.select import GROUPS, PAIRS, SELECTION, VALIDATION, MinedFolder, Pair, name_of, select
from pipelines.mining import gold_pairs as golds
from pipelines.mining import mine

CORPORA, MINED, EVALUATION, BEGUN, SPENT = "corpora", "mined", "evaluation.json", "begun.json", "seconds.json"
LEARNT = (PAIRS, GROUPS, VALIDATION, SELECTION, EVALUATION, CHECKPOINTS, training.WORK, training.CONFIG, training.RESULT)
SPARE = 2  # times as many pairs as are wanted are mined, for those that the selection leaves out
DRIFT_TEXTS = 4000  # of the dev files, at most, by which encoders are compared

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundFolder:
    """Where a round stands."""

    number: int  # -1 for the start
    folder: str
    start: str  # the first encoder
    last: str | None = None  # the encoder that mines

    @property
    def encoder(self) -> str:
        """The encoder that comes out."""
        return storage.join(self.folder, ENCODER)


def run(config: LoopConfig, places: RoundFolder, forbidden: EvaluationIndex, options: Sequence[str] = ()) -> dict[str, Any]:
    """Run a round, or what is left of it, and tell its figures; without `dev` where too little was mined to train on."""
    folder = places.folder
    _begin(config, folder)
    with _timed(folder, "embed"):
        corpora = {lang: _embed(config, lang, places, options) for lang in config.corpora}
    with _timed(folder, "mine"):
        found = {pair: _mine(config, pair, corpora, places, options) for pair in config.mined}
    selected = storage.join(folder, SELECTION)
    if not storage.exists(selected):
        with _timed(folder, "select"):
            select(config, folder, found, forbidden)
    figures: dict[str, Any] = {"selection": storage.read_json(selected)}
    if figures["selection"]["learnt"] >= config.stop.least_pairs:
        with _timed(folder, "train"):
            training.train(recipe(config.training, places), folder, resume=True)
        with _timed(folder, "evaluate"):
            figures |= evaluate(config, places)
    return {**figures, "seconds": storage.read_json(storage.join(folder, SPENT))}


def _begin(config: LoopConfig, folder: str) -> None:
    """Take back what the round learnt from text that is not the same any more; vectors of sentences that stayed are kept."""
    text, begun = signature(config), storage.join(folder, BEGUN)
    if storage.exists(begun) and storage.read_json(begun) != text:
        logger.warning("%s: the corpora changed; mining and training again", folder)
        for name in LEARNT:
            storage.remove(storage.join(folder, name))
    storage.write_json(begun, text)


def signature(config: LoopConfig) -> dict[str, dict[str, str]]:
    """What changes with the text of the corpora: language -> file -> its size and time."""
    return {lang: {uri: sentences.signature(uri) for uri in readers.expand(files)} for lang, files in config.corpora.items()}


@contextlib.contextmanager
def _timed(folder: str, stage: str) -> Iterator[None]:
    """Add to the seconds that a stage took, also over several runs."""
    logger.info("%s: %s", Path(folder).name, stage)
    start, spent = time.perf_counter(), storage.join(folder, SPENT)
    yield
    seconds = storage.read_json(spent) if storage.exists(spent) else {}
    seconds[stage] = round(seconds.get(stage, 0) + time.perf_counter() - start, 2)
    storage.write_json(spent, seconds)


def _embed(config: LoopConfig, lang: str, places: RoundFolder, options: Sequence[str]) -> str:
    output = storage.join(places.folder, CORPORA, lang)
    settings = {name: value for part in (TextSettings, SentenceSettings) for name, value in config.reading.part(part)}
    settings |= dict(_settings(config, places, places.last or places.start))
    embed.run(EmbedConfig(inputs=config.corpora[lang], output=output, lang=lang, **settings), options)
    return output


def _settings(config: LoopConfig, places: RoundFolder, encoder: str) -> EncoderSettings:
    """How an encoder of the loop runs: as the first one, but a trained one knows its own pooling."""
    changes = {"encoder": encoder, **({} if encoder == places.start else {"pooling": None})}
    return config.start.part(EncoderSettings).model_copy(update=changes)


def _mine(config: LoopConfig, pair: Pair, corpora: Mapping[str, str], places: RoundFolder, options: Sequence[str]) -> MinedFolder:
    """Mine above the threshold or, where that may leave too few, above the floor: the selection then takes the best."""
    output = storage.join(places.folder, MINED, name_of(pair))
    settings = {name: value for part in (EngineSettings, DecideSettings) for name, value in config.mining.part(part)}
    settings |= {name: of_pair(settings[name], pair) for name in ("gold", "planted")}
    settings |= dict(_settings(config, places, places.last or places.start))  # for planted pairs
    wanted = MineConfig(source=corpora[pair[0]], target=corpora[pair[1]], output=output, k=config.mining.k, **settings)
    pairs, threshold = _above_threshold(wanted, options)
    # What is forbidden or repeated goes first, so as many as are wanted may not be enough.
    if np.isposinf(threshold) or (pairs < SPARE * config.selection.min_count and threshold > config.selection.floor):
        mine.run(wanted.model_copy(update={"threshold": config.selection.floor, "planted": None}), options)
    gold = None
    if wanted.gold is not None:
        gold = golds.resolve(golds.read(wanted.gold), *(open_corpus(corpora[lang]) for lang in pair))[0]
    return MinedFolder(output, threshold, gold)


def _above_threshold(wanted: MineConfig, options: Sequence[str]) -> tuple[int, float]:
    """How many pairs are above the threshold, and the threshold: infinite where none could be chosen that is precise enough."""
    try:
        result = mine.run(wanted, options)
    except NoThresholdError as error:
        logger.warning("%s: %s", wanted.output, error)
        return 0, np.inf
    return result.pairs, -np.inf if result.threshold is None else result.threshold


def of_pair(name: str | None, pair: Pair) -> str | None:
    """The name of a file that each pair of languages has its own of."""
    return name and name.replace("{source}", pair[0]).replace("{target}", pair[1])


def recipe(config: TrainConfig, places: RoundFolder) -> TrainConfig:
    """The training of a round: names filled in, and a seed of its own for each round."""
    names = {"{round}": places.folder, "{last}": places.last or places.start, "{start}": places.start}

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            for name, place in names.items():
                value = value.replace(name, place)
            return value
        if isinstance(value, dict):
            return {name: fill(part) for name, part in value.items()}
        return [fill(part) for part in value] if isinstance(value, list) else value

    values = fill(config.model_dump(mode="json"))
    values["training"]["seed"] += places.number + 1
    return TrainConfig.check(**values)


def evaluate(config: LoopConfig, places: RoundFolder) -> dict[str, Any]:
    """How good the round's encoder is, and how far from the one before, if there was one; kept in `FOLDER/evaluation.json`."""
    uri = storage.join(places.folder, EVALUATION)
    if not storage.exists(uri):
        encoder = load_encoder(places.encoder, _settings(config, places, places.encoder))
        sets = {"dev": config.evaluation.dev, "test": config.evaluation.test, "validation": _validation(places.folder)}
        figures: dict[str, Any] = {name: _retrieved(encoder, tasks) for name, tasks in sets.items()}
        if config.evaluation.tatoeba is not None:
            task = TatoebaTask(data=config.evaluation.tatoeba)
            figures["tatoeba"] = tatoeba.evaluate(encoder, task).figures()["average"]["all"]
        if places.last is not None:
            before = load_encoder(places.last, _settings(config, places, places.last))
            texts = _texts(config)
            figures["drift"] = drift(*(encode(one, texts, np.float32) for one in (before, encoder)))
        storage.write_json(uri, figures)
    found: dict[str, Any] = storage.read_json(uri)
    return found


def _retrieved(encoder: Encoder, tasks: Mapping[str, RetrievalTask]) -> dict[str, float]:
    """The accuracy by ratio margin, the mean of both directions."""
    return {name: retrieval.evaluate(encoder, task).figures()["accuracy"]["ratio"]["mean"] for name, task in tasks.items()}


def _texts(config: LoopConfig) -> list[str]:
    """Sentences of the dev files, evenly spread over them."""
    texts = [text for task in config.evaluation.dev.values() for side in read_aligned(task) for text in side]
    return texts[:: -(-len(texts) // DRIFT_TEXTS)]


def _validation(folder: str) -> dict[str, RetrievalTask]:
    """The mined pairs that were not learnt from, by pair of languages."""
    place = storage.join(folder, VALIDATION)
    files = {name.removesuffix(".tsv"): storage.join(place, name) for name in storage.names_in(place)}
    return {name: RetrievalTask(source=uri, target=uri, text_column="source", target_column="target") for name, uri in files.items()}
