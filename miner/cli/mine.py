"""`miner mine`."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, gold, options, report
from miner.cli.filters import check_lang_id_model, filter_option, keep_dropped_option, lang_id_option
from miner.config.choices import ENGINES, MARGINS, RETRIEVALS
from miner.config.commands import (
    DecideSettings,
    EncoderSettings,
    Filters,
    FromCandidatesConfig,
    MineConfig,
    PairFilters,
    SentenceFilters,
    SentenceSettings,
    SideColumns,
)
from miner.config.filters import choose
from miner.errors import ConfigError, MinerError
from miner.io.defer_pandas import defer_pandas

if TYPE_CHECKING:
    from pipelines.mining.select_pairs import WrittenBitext


class NumberOrAuto(click.ParamType[Any]):
    """A number, or the word `auto`."""

    name = "threshold"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "auto":
            return value
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor `auto`", param, ctx)


search_options = options.group(
    options.setting(MineConfig, "source_lang", "Language of SOURCE, if it is text.", metavar="CODE"),
    options.setting(MineConfig, "target_lang", "Language of TARGET, if it is text.", metavar="CODE"),
    options.setting(MineConfig, "k", "Neighbours per sentence.", type=int),
    options.rescore_options,
    options.setting(MineConfig, "engine", "Search engine; auto: the one with the lower estimated time.", type=click.Choice(ENGINES)),
    options.approximate_options,
)
decide_options = options.group(
    options.setting(DecideSettings, "margin", "Score of a pair.", type=click.Choice(list(MARGINS))),
    options.setting(
        DecideSettings,
        "retrieval",
        "; ".join(f"{name}: {retrieval.summary}" for name, retrieval in RETRIEVALS.items()) + ".",
        type=click.Choice(list(RETRIEVALS)),
    ),
    options.setting(
        DecideSettings,
        "threshold",
        "Keep pairs with a larger margin. auto: choose the threshold for --precision, by --gold, --planted or probabilities."
        " Default: recommended by the encoder, or calibrated.",
        metavar="FLOAT|auto",
        type=NumberOrAuto(),
    ),
    options.setting(
        DecideSettings,
        "min_probability",
        "Keep pairs with at least this probability of being right; default: 0.5 without --threshold and --top, where the encoder"
        " has probabilities.",
        type=float,
    ),
    options.setting(DecideSettings, "precision", "Target precision of --threshold auto, and of a calibrated threshold.", type=float),
    options.top_option,
    options.setting(
        DecideSettings,
        "gold",
        "File of all true pairs, `source line<TAB>target line`, counted from 1; or marks of `miner report`, one file or several.",
        metavar="FILE",
        multiple=True,
    ),
    options.setting(DecideSettings, "gold_sample", "Gold is a random part of the true pairs, not all of them.", is_flag=True),
    options.setting(
        DecideSettings,
        "planted",
        "Known pairs that are not in the corpora, `source<TAB>target`: hundreds, of the same kind of text.",
        metavar="FILE",
    ),
)


@click.command()
@click.argument("source", required=False)
@click.argument("target", required=False)
@options.output_option
@click.option("--from-candidates", metavar="DIR", help="Select pairs from the candidates of an earlier run, whose --output is DIR.")
@search_options
@decide_options
@options.encoder_options
@options.side_column_options
@options.text_options
@filter_option(SentenceFilters, PairFilters)
@options.split_option
@options.collapse_option
@lang_id_option
@keep_dropped_option
@options.json_option
@report.report_option
def command(json_file: str | None, no_report: bool, from_candidates: str | None, filters: tuple[str, ...], **settings: Any) -> None:
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
    config = _read_config(click.get_current_context(), from_candidates, filters, settings)
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
        is_shown = result.bitext.shows_precision and not settings["gold_sample"]  # a sample of gold does not show which pairs are wrong
        known_pairs = gold.read(from_candidates or result.output, settings["gold"]) if is_shown else None
        files += filter(None, [report.write_report(result.output, known_pairs)])
        seconds["report"] = time.perf_counter() - start
    console.echo("\n".join([summary.summarise(result), console.time_line(seconds), f"files: {', '.join(files)}"]))
    _warn_of_precision(click.get_current_context(), result.bitext)
    console.exit_if_skipped(result.skipped)


def _read_config(
    ctx: click.Context, from_candidates: str | None, filters: tuple[str, ...], settings: dict[str, Any]
) -> MineConfig | FromCandidatesConfig:
    """Return the settings. Raises UsageError or ConfigError for invalid options, and for those that would have no effect."""
    _check_usage(ctx, from_candidates is not None)
    models: dict[str, type[Filters]] = {"pair_filters": PairFilters}
    if from_candidates is None:
        models["sentence_filters"] = SentenceFilters
    chosen = choose(filters, **models)
    check_lang_id_model(settings["lang_id_model"], chosen.values())
    if from_candidates is not None:
        settings = {name: value for name, value in settings.items() if name in FromCandidatesConfig.model_fields}
        return FromCandidatesConfig.check(candidates=from_candidates, **settings, **chosen)
    options.resolve_sides(settings)
    config = MineConfig.check(**settings, **chosen)
    _check_text_options(ctx, config)
    return config


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
        embed.preload(config.part(EncoderSettings))


def _check_usage(ctx: click.Context, from_candidates: bool) -> None:
    """Raise UsageError without both sides or, with --from-candidates, for an option of an earlier stage."""
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if not from_candidates and name == "source" and ctx.params[name] is None:
            raise click.MissingParameter(ctx=ctx, param=parameter)
        is_unused = name in MineConfig.model_fields and name not in FromCandidatesConfig.model_fields
        is_encoding = name in EncoderSettings.model_fields and name != "encoder"  # which may recommend a threshold
        is_unused |= is_encoding and ctx.params.get("planted") is None  # only planted pairs are embedded
        if from_candidates and is_unused and _is_given(ctx, name):
            label = name.upper() if name in ("source", "target") else parameter.opts[0]
            raise click.UsageError(f"{label} has no effect with --from-candidates; remove it", ctx)


def _check_text_options(ctx: click.Context, config: MineConfig) -> None:
    """Raise ConfigError for an option of the text if no side is text."""
    from miner.io import storage

    names = {*SideColumns.model_fields, *SentenceSettings.model_fields} - {"source_lang", "target_lang", "lang_id_model", "keep_dropped"}
    labels = [parameter.opts[0] for parameter in ctx.command.params if str(parameter.name) in names and _is_given(ctx, str(parameter.name))]
    if labels and storage.is_folder(config.source) and storage.is_folder(config.target):
        raise ConfigError(f"{labels[0]} has no effect on embeddings directories; give it to `miner embed`, or remove it")


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT and ctx.params.get(name) is not None


def _warn_of_precision(ctx: click.Context, bitext: "WrittenBitext") -> None:
    """Warn if --precision was given and did not choose the threshold."""
    is_calibrated = bitext.default is not None and bitext.default.precision is not None
    if _is_given(ctx, "precision") and bitext.choice is None and not is_calibrated:
        console.warn("--precision has no effect on this threshold; add --threshold auto, which chooses the threshold for it")
