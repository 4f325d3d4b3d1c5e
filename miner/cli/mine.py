"""`miner mine`."""

import contextlib
import time
from typing import Any

import click

from miner.cli import console, gold, options, report
from miner.config.base import Settings
from miner.config.commands import FromCandidatesConfig, MineConfig, SentenceSettings, SideColumns
from miner.config.filters import FILTERS, MisuseError
from miner.config.messages import as_option
from miner.errors import ConfigError, MinerError
from miner.io.defer_pandas import defer_pandas

USED_WITHOUT_TEXT = {"source_lang", "target_lang", "lang_id_model", "keep_dropped", "sentence_filters"}  # settings of texts


class MineCommand(options.SettingsCommand):
    """The command on two sides, or on the candidates of an earlier run."""

    def read(self, values: dict[str, Any], ctx: click.Context) -> dict[str, Settings]:
        candidates = ctx.params.pop("from_candidates")
        if candidates is None:
            return super().read(values, ctx)
        for name in values:
            if name != FILTERS and name not in FromCandidatesConfig.model_fields:
                label = name.upper() if name in MineConfig.ARGUMENTS else as_option(name)
                raise MisuseError(f"{label} has no effect with --from-candidates; remove it")
        return {"config": options.read(FromCandidatesConfig, {**values, "candidates": candidates})}


@click.command(cls=MineCommand, models={"config": MineConfig})
@click.option("--from-candidates", metavar="DIR", help="Select pairs from the candidates of an earlier run, whose --output is DIR.")
@options.json_option
@options.report_option
def command(config: MineConfig | FromCandidatesConfig, json_file: str | None, no_report: bool) -> None:
    """Mine pairs of sentences that are translations of each other.

    SOURCE and TARGET are text, as for `miner embed`, or embeddings or index directories. Without TARGET, SOURCE has both sides: a
    table with --source-column and --target-column, TMX, or the stem of Moses files. The pairs are written to bitext.tsv.gz
    (margin, source, target; best first) and, with files and line numbers, to bitext.parquet; report.html shows them.
    A rerun with another margin, retrieval or threshold only selects again; --from-candidates does that into another directory.
    A rerun after adding files embeds and searches only the new text; deltas/ lists the pairs that changed.

    \b
    Examples:
      miner mine news.en.txt news.de.txt --source-lang en --target-lang de --output mined
      miner mine corpus.tmx --source-lang en --target-lang de --output mined
      miner mine --from-candidates mined --retrieval all --output all-candidates
    """
    if isinstance(config, MineConfig):
        _check_text_options(config)
    _preload(config, not no_report)
    from pipelines.mining import mine, summary  # after the checks, which need not wait for large packages

    if isinstance(config, MineConfig):
        result = mine.run(config, console.beam_options())
    else:
        result = mine.run_from_candidates(config, console.beam_options())
    console.write_figures(json_file, result.figures())
    files, seconds = result.files, dict(result.seconds)
    if not no_report:
        start = time.perf_counter()
        is_shown = result.bitext.shows_precision and not config.gold_sample  # a sample of gold does not show which pairs are wrong
        known_pairs = gold.read(config.output if isinstance(config, MineConfig) else config.candidates, config.gold) if is_shown else None
        files += filter(None, [report.write_report(result.output, known_pairs)])
        seconds["report"] = time.perf_counter() - start
    console.echo("\n".join([summary.summarise(result), console.time_line(seconds), f"files: {', '.join(files)}"]))
    console.exit_if_skipped(result.skipped)


def _preload(config: MineConfig | FromCandidatesConfig, has_report: bool) -> None:
    """Start to read in the background what the command will need, while it imports its own modules and reads texts."""
    defer_pandas()
    if isinstance(config, MineConfig):
        with contextlib.suppress(MinerError):  # raised again where the command uses the value
            _preload_encoder(config)
    if has_report:
        report.preload_charts()


def _preload_encoder(config: MineConfig) -> None:
    """Start to read the encoder if a side is text and nothing is in the output yet."""
    from miner.io import stages, storage
    from pipelines.corpus import embed

    has_text = not all(storage.is_folder(path) for path in (config.source, config.target))
    if has_text and not storage.exists(storage.join(config.output, stages.MANIFEST)):
        embed.preload(config, filter(None, (config.source, config.target)))


def _check_text_options(config: MineConfig) -> None:
    """Raise ConfigError for an option of the text if no side is text."""
    from miner.io import storage

    names = {*SideColumns.model_fields, *SentenceSettings.model_fields} - USED_WITHOUT_TEXT
    unused = [name for name in config.model_fields_set if name in names]
    if unused and storage.is_folder(config.source) and storage.is_folder(config.target):
        raise ConfigError(f"{as_option(unused[0])} has no effect on embeddings directories; give it to `miner embed`, or remove it")
