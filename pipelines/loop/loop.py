"""`miner loop`: rounds that mine with an encoder and train the next one on the mined pairs, until a stop rule applies.

`OUTPUT/seed` and `OUTPUT/round-00`, `round-01`, ... each contain an `encoder`; `latest` links to the one that mines next, `best` to the
best one on dev. `OUTPUT/loop.json` records all rounds. Finished stages are kept, so an interrupted run can be resumed.
"""

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from miner.config.commands import DecideSettings, EncoderSettings
from miner.config.datasets import DatasetFiles
from miner.config.messages import name_keys
from miner.encoders import find_folder, load_encoder
from miner.encoders.model_folder import read_recipe
from miner.encoders.pair import PairEncoder
from miner.errors import ConfigError, StorageError
from miner.evaluation.inputs import read_aligned
from miner.evaluation.tatoeba import as_dataset, find_tables
from miner.io import lock, records, storage
from miner.loop.progress import LoopState, RoundOutcome, assess_rounds
from miner.loop.settings import LoopConfig, MiningSettings, ReadingSettings
from miner.research.datasets.columns import expand_files, file_fingerprints, read_texts
from miner.text import readers
from miner.text.decontaminate import EvaluationIndex
from miner.training import run as training
from miner.training.config import check_config
from miner.training.layout import ENCODER
from miner.training.models.export import store_pooling, store_prompt
from miner.training.settings import TransformerSettings
from miner.training.steps import checkpoints
from pipelines.loop import round as rounds
from pipelines.loop.figures import CorpusSignature, RoundFigures
from pipelines.loop.select import VALIDATION, LanguagePair, compare_selections
from pipelines.mining import choose_threshold
from pipelines.mining import gold_pairs as golds

SEED, LATEST, BEST, LOOP, CONFIG, ROUND = "seed", "latest", "best", "loop.json", "config.json", "round.json"
EVALUATION_KEY = "evaluation_files"  # of CONFIG: their names, sizes and times of modification
MAY_CHANGE = {"corpora", "stop"}  # settings that may differ when a loop is resumed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopResult:
    """The result of `miner loop`."""

    output: str
    start: Mapping[str, Any]  # of the start encoder: dev, test, tatoeba
    rounds: Sequence[Mapping[str, Any]]  # of each round: selection, dev, test, drift, seconds
    state: LoopState

    @property
    def encoder(self) -> str:
        """The directory of the best encoder on dev."""
        return str(Path(self.output) / BEST / ENCODER)

    def figures(self) -> dict[str, Any]:
        """Return the content of loop.json."""
        rounds = [{**figures, "kept": kept} for figures, kept in zip(self.rounds, self.state.kept, strict=True)]
        names = {"best": _round_name(self.state.best), "latest": _round_name(self.state.latest), "stop_reason": self.state.stop_reason}
        return {"start": self.start, "rounds": rounds, **names}


@name_keys({"start": EncoderSettings, "reading": ReadingSettings, "mining": MiningSettings})
def run(config: LoopConfig, output: str, resume: bool = False, options: Sequence[str] = ()) -> LoopResult:
    """Run the loop into `output`, or resume it.

    Raises a MinerError. Errors in the config and its files are reported before the first round.
    """
    evaluation = check(config)
    with lock.hold(output):
        _claim(config, Path(output), resume)
        return _run_rounds(config, output, evaluation, options)


def _run_rounds(config: LoopConfig, output: str, evaluation: EvaluationIndex, options: Sequence[str]) -> LoopResult:
    """Run rounds after those that are done, until a stop rule applies."""
    start = _prepare_start(config, output)
    done: list[dict[str, Any]] = []
    while storage.exists(_round_path(output, len(done), ROUND)):
        done.append(dict(records.read(_round_path(output, len(done), ROUND), RoundFigures)))
    while True:
        has_new_text = bool(done) and done[-1]["corpora"] != rounds.corpus_signature(config)
        outcomes = [_outcome(figures) for figures in done]
        state = assess_rounds(fmean(start["dev"].values()), outcomes, config.stop, has_new_text)
        result = LoopResult(output, start, done, state)
        for number in {state.latest, state.best} - {-1}:
            _check_encoder(output, number)
        _update_links(Path(output), state)
        records.write(storage.join(output, LOOP), result.figures())
        if done and "dev" in done[-1] and not state.kept[-1]:
            logger.warning("%s is rolled back: dev is worse than that of %s", _round_name(len(done) - 1), _round_name(state.latest))
        if state.stop_reason is not None:
            logger.info("the loop ends: %s", state.stop_reason)
            return result
        done.append(_run_round(config, output, len(done), state, evaluation, options))


def check(config: LoopConfig) -> EvaluationIndex:
    """Check files and encoders before the first round, and index the evaluation sentences. Raises the MinerError of what is wrong."""
    for files in config.corpora.values():
        readers.expand(files)
    for train_config in (config.training, config.start.train):
        if train_config is not None:
            check_config(train_config)
            file_fingerprints([uri for source in train_config.data for uri in source.files if "{round}" not in str(uri)])
            encoder_settings = train_config.encoder
            if isinstance(encoder_settings, TransformerSettings) and encoder_settings.towers == "pair":
                raise ConfigError(
                    "training: encoder.towers pair trains two encoders, and the loop needs one for all languages; set it to shared"
                )
    for langs in config.language_pairs:
        _check_language_pair(config, langs)
    if config.start.train is None:
        encoder = load_encoder(config.start.encoder, config.start)
        if isinstance(encoder, PairEncoder):
            raise ConfigError(f"start.encoder: {encoder.pair.folder} has two sides, and the loop needs one encoder for all languages")
    _check_validation(config)
    for key, tasks in (("dev", config.evaluation.dev), ("test", config.evaluation.test)):
        for name, task in tasks.items():
            with name_keys({f"evaluation.{key}.{name}": type(task)}):
                read_aligned(task)
    sentences = (sentence for uri in _evaluation_files(config) for sentence in read_texts(uri))
    return EvaluationIndex(sentences, config.evaluation.near)


def _check_language_pair(config: LoopConfig, langs: LanguagePair) -> None:
    """Check threshold, planted pairs and gold pairs of a language pair."""
    settings = rounds.fill_evidence(config.mining.part(DecideSettings), langs)
    choose_threshold.check(settings)
    if choose_threshold.uses_probabilities(settings):
        raise ConfigError("mining.threshold: auto needs mining.gold or mining.planted, as an encoder that is trained has no probabilities")
    if isinstance(golds.read(settings.gold, settings.gold_sample), golds.GoldFile):
        for lang in langs:
            if len(readers.expand(config.corpora[lang])) > 1:
                raise ConfigError(
                    f"mining.gold refers to lines of one file, and corpora.{lang} has several; give one file per language, or no gold"
                )


def _check_validation(config: LoopConfig) -> None:
    """Check that the pairs on which a round evaluates its training are held out."""
    files = () if config.training.evaluation is None else config.training.evaluation.files
    if config.selection.validation == 0 and any(f"{{round}}/{VALIDATION}/" in str(uri) for uri in files):
        raise ConfigError("selection.validation 0 holds out no pairs, but training.evaluation.files are such pairs; raise it")


def _evaluation_files(config: LoopConfig) -> list[str | DatasetFiles]:
    """Return the evaluation files and those of `evaluation.decontaminate`."""
    evaluation = config.evaluation
    uris: set[str | DatasetFiles] = {uri for tasks in (evaluation.dev, evaluation.test) for task in tasks.values() for uri in task.paths()}
    if evaluation.tatoeba is not None:
        uris |= set(find_tables(evaluation.tatoeba).values()) or {as_dataset(evaluation.tatoeba)}
    return sorted({*uris, *expand_files(evaluation.decontaminate)}, key=str)


def _claim(config: LoopConfig, folder: Path, resume: bool) -> None:
    """Write the config. Raises ConfigError if the folder has another loop, or a loop and `resume` is not set."""
    path = folder / CONFIG
    settings = config.model_dump(mode="json")
    settings[EVALUATION_KEY] = storage.key([list(fingerprint) for fingerprint in file_fingerprints(_evaluation_files(config))])
    if path.exists():
        if not resume:
            raise ConfigError(f"{folder}: contains a loop already; continue it with --resume, delete it, or choose another --output")
        stored_settings = records.read(str(path), dict[str, Any])
        if settings[EVALUATION_KEY] != stored_settings.get(EVALUATION_KEY):
            raise ConfigError(f"{path}: evaluation files changed since the loop started; restore them, or start a loop in another --output")
        different = [name for name in settings if name not in MAY_CHANGE and settings[name] != stored_settings.get(name)]
        if different:
            raise ConfigError(f"{path}: the loop was started with another {different[0]}; resume it with its own config")
    elif any(not path.name.startswith(lock.PREFIX) for path in folder.iterdir()):
        raise ConfigError(f"{folder}: not empty, and not a loop; choose another --output")
    records.write(str(path), settings)


def _prepare_start(config: LoopConfig, output: str) -> dict[str, Any]:
    """Train or copy the start encoder, and evaluate it."""
    seed = Path(output) / SEED
    if config.start.train is not None:
        training.train(config.start.train, str(seed), resume=True)
    elif not (seed / ENCODER).exists():
        with checkpoints.atomic_folder(seed / ENCODER) as temporary:
            shutil.copytree(find_folder(config.start.encoder), temporary, dirs_exist_ok=True)
            if config.start.pooling is not None and not store_pooling(temporary, config.start.pooling):
                logger.warning("start.pooling %s is not stored with the copy of the start encoder", config.start.pooling)
            if config.start.prompt is not None:
                store_prompt(temporary, read_recipe(temporary).with_settings(config.start).prompt)
    return rounds.evaluate(config, rounds.RoundPaths(-1, str(seed), str(seed / ENCODER)))


def _run_round(
    config: LoopConfig, output: str, number: int, state: LoopState, evaluation: EvaluationIndex, options: Sequence[str]
) -> dict[str, Any]:
    """Run a round and write its figures to `round.json`."""
    folder = _round_path(output, number)
    start_encoder, last_encoder = (str(Path(output) / _round_name(source) / ENCODER) for source in (-1, state.latest))
    figures = rounds.run(config, rounds.RoundPaths(number, folder, start_encoder, last_encoder), evaluation, options)
    figures["changes"] = compare_selections(folder, _round_path(output, number - 1) if number else None)
    figures["corpora"] = records.read(storage.join(folder, rounds.STARTED), CorpusSignature)  # the corpora as embedded, not as they are now
    records.write(storage.join(folder, ROUND), figures)
    return figures


def _check_encoder(output: str, number: int) -> None:
    """Raise StorageError if a finished round has lost its encoder."""
    encoder = Path(_round_path(output, number, ENCODER))
    if not encoder.is_dir():
        raise StorageError(f"{encoder}: missing; delete {encoder.parent} and later rounds, which are then run again by --resume")


def _outcome(figures: Mapping[str, Any]) -> RoundOutcome:
    dev = fmean(figures["dev"].values()) if "dev" in figures else None
    return RoundOutcome(figures["selection"]["training"], figures["changes"]["jaccard"], dev, sum(figures["seconds"].values()))


def _update_links(folder: Path, state: LoopState) -> None:
    """Point `latest` and `best` to their rounds, atomically."""
    for name, number in ((LATEST, state.latest), (BEST, state.best)):
        temporary = folder / f".{name}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(_round_name(number))
        temporary.replace(folder / name)


def _round_name(number: int) -> str:
    return SEED if number < 0 else f"round-{number:02d}"


def _round_path(output: str, number: int, *names: str) -> str:
    return storage.join(output, _round_name(number), *names)
