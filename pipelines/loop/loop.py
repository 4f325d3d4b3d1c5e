"""`miner loop`: rounds of mining with an encoder and training the next one on what was mined, until another round is not worth it.

`OUTPUT/seed` and `OUTPUT/round-00`, `round-01`, ... each hold an `encoder`; `latest` points to the one that mines next, `best` to
the best on dev. `OUTPUT/loop.json` tells of all rounds. Everything that is finished is kept, so a run that was stopped goes on.
"""

import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from miner import storage
from miner.config.commands import DecideSettings
from miner.encoders import find_folder, load_encoder
from miner.errors import ConfigError
from miner.evaluation.inputs import read_aligned
from miner.evaluation.tatoeba import find_files
from miner.loop.decontaminate import EvaluationIndex
from miner.loop.evaluation_texts import sentences
from miner.loop.settings import LoopConfig
from miner.loop.stopping import LoopState, RoundOutcome, judge
from miner.text import readers
from miner.training import checkpoints, config_checks
from miner.training import run as training
from miner.training.columns import expand_globs
from miner.training.trainer import ENCODER
from pipelines.loop import round as rounds
from pipelines.loop.overlap import changes
from pipelines.mining import auto_threshold
from pipelines.mining import gold_pairs as golds

SEED, LATEST, BEST, LOOP, CONFIG, ROUND = "seed", "latest", "best", "loop.json", "config.json", "round.json"
MAY_CHANGE = {"corpora", "stop"}  # settings that may differ when a loop is resumed

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopResult:
    """What `miner loop` came to."""

    output: str
    start: Mapping[str, Any]  # of the first encoder: dev, test, tatoeba
    rounds: Sequence[Mapping[str, Any]]  # of each round: selection, dev, test, drift, seconds, kept
    state: LoopState

    @property
    def encoder(self) -> str:
        """The best on dev."""
        return str(Path(self.output) / BEST / ENCODER)

    def figures(self) -> dict[str, Any]:
        """The same for a program."""
        told = [{**figures, "kept": kept} for figures, kept in zip(self.rounds, self.state.kept, strict=True)]
        names = {"best": _name(self.state.best), "latest": _name(self.state.latest), "stopped": self.state.stop}
        return {"start": self.start, "rounds": told, **names}


def run(config: LoopConfig, output: str, resume: bool = False, options: Sequence[str] = ()) -> LoopResult:
    """Run the loop into `output`, or go on with it.

    Raises the MinerError of whatever cannot work; all that can be known before the first round is said before it.
    """
    forbidden = check(config)
    _claim(config, Path(output), resume)
    start = _start(config, output)
    done: list[dict[str, Any]] = []
    while storage.exists(_place(output, len(done), ROUND)):
        done.append(storage.read_json(_place(output, len(done), ROUND)))
    while True:
        state = _judge(config, start, done)
        result = LoopResult(output, start, done, state)
        _point(Path(output), state)
        storage.write_json(storage.join(output, LOOP), result.figures())
        if done and "dev" in done[-1] and not state.kept[-1]:
            logger.warning("%s is rolled back: dev is worse than that of %s", _name(len(done) - 1), _name(state.latest))
        if state.stop is not None:
            logger.info("the loop ends: %s", state.stop)
            return result
        done.append(_round(config, output, len(done), state, forbidden, options))


def check(config: LoopConfig) -> EvaluationIndex:
    """See that files and encoder are there, and read what may not be learnt from; raises the MinerError of what is not."""
    for files in config.corpora.values():
        readers.expand(files)
    for recipe in (config.training, config.start.train):
        if recipe is not None:
            config_checks.check(recipe)
            expand_globs([uri for source in recipe.data for uri in source.files if "{round}" not in uri])
    for pair in config.mined:
        gold, planted = (rounds.of_pair(name, pair) for name in (config.mining.gold, config.mining.planted))
        auto_threshold.check(config.mining.part(DecideSettings).model_copy(update={"gold": gold, "planted": planted}))
        if gold is not None:
            golds.read(gold)
            several = [lang for lang in pair if len(readers.expand(config.corpora[lang])) > 1]
            if several:
                raise ConfigError(
                    f"mining.gold tells lines of one file, and corpora.{several[0]} has more; give one file a language, or no gold"
                )
    if config.start.train is None:
        load_encoder(config.start.encoder, config.start)
    for task in (*config.evaluation.dev.values(), *config.evaluation.test.values()):
        read_aligned(task)
    return EvaluationIndex(_evaluation_texts(config), config.evaluation.near)


def _evaluation_texts(config: LoopConfig) -> Iterable[str]:
    """Every sentence that encoders are measured on, or that the config names besides."""
    evaluation = config.evaluation
    files = {place for tasks in (evaluation.dev, evaluation.test) for task in tasks.values() for place in task.places()}
    files |= set(find_files(evaluation.tatoeba).values()) if evaluation.tatoeba is not None else set()
    for uri in sorted({*files, *expand_globs(evaluation.decontaminate)}):
        yield from sentences(uri)


def _claim(config: LoopConfig, folder: Path, resume: bool) -> None:
    """Write the config down; ConfigError where the folder holds another loop, or one that is not to be resumed."""
    held = folder / CONFIG
    ours = config.model_dump(mode="json")
    if held.exists():
        if not resume:
            raise ConfigError(f"{folder}: holds a loop already; go on with it by --resume, delete it, or choose another --output")
        theirs = storage.read_json(str(held))
        different = [name for name in ours if name not in MAY_CHANGE and ours[name] != theirs.get(name)]
        if different:
            raise ConfigError(f"{held}: the loop was begun with another {different[0]}; resume it with its own config")
    elif folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: not empty, and not a loop; choose another --output")
    storage.write_json(str(held), ours)


def _start(config: LoopConfig, output: str) -> dict[str, Any]:
    """Train or copy the first encoder, and measure it."""
    seed = Path(output) / SEED
    if config.start.train is not None:
        training.train(config.start.train, str(seed), resume=True)
    elif not (seed / ENCODER).exists():
        with checkpoints.atomic_folder(seed / ENCODER) as aside:
            shutil.copytree(find_folder(config.start.encoder), aside, dirs_exist_ok=True)
    return rounds.evaluate(config, rounds.RoundFolder(-1, str(seed), str(seed / ENCODER)))


def _round(
    config: LoopConfig, output: str, number: int, state: LoopState, forbidden: EvaluationIndex, options: Sequence[str]
) -> dict[str, Any]:
    """Run a round and write down what it came to."""
    folder = _place(output, number)
    last, start = (str(Path(output) / _name(of) / ENCODER) for of in (state.latest, -1))
    figures = rounds.run(config, rounds.RoundFolder(number, folder, start, last), forbidden, options)
    figures["changes"] = changes(folder, _place(output, number - 1) if number else None)
    figures["text"] = storage.read_json(storage.join(folder, rounds.BEGUN))  # what was embedded, and not what came since
    storage.write_json(storage.join(folder, ROUND), figures)
    return figures


def _judge(config: LoopConfig, start: Mapping[str, Any], done: Sequence[Mapping[str, Any]]) -> LoopState:
    new_text = bool(done) and done[-1]["text"] != rounds.signature(config)
    return judge(fmean(start["dev"].values()), [_ran(figures) for figures in done], config.stop, new_text)


def _ran(figures: Mapping[str, Any]) -> RoundOutcome:
    dev = fmean(figures["dev"].values()) if "dev" in figures else None
    return RoundOutcome(figures["selection"]["learnt"], figures["changes"]["jaccard"], dev, sum(figures["seconds"].values()))


def _point(folder: Path, state: LoopState) -> None:
    """Turn `latest` and `best` to their rounds."""
    for name, number in ((LATEST, state.latest), (BEST, state.best)):
        aside = folder / f".{name}.tmp"
        aside.unlink(missing_ok=True)
        aside.symlink_to(_name(number))
        aside.replace(folder / name)


def _name(number: int) -> str:
    return SEED if number < 0 else f"round-{number:02d}"


def _place(output: str, number: int, *names: str) -> str:
    return storage.join(output, _name(number), *names)
