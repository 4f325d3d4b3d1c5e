"""`miner mine`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, gold, options, report
from miner.cli.filters import choose, filter_option, keep_dropped_option
from miner.config.commands import DecideSettings, EncoderSettings, FromCandidatesConfig, MineConfig, PairFilters, SentenceFilters

if TYPE_CHECKING:
    from miner.mining.thresholds import ThresholdChoice
    from pipelines.mining.mine import MineResult

TEXT_WIDTH = 60  # characters of a sentence in the summary


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
    options.setting(MineConfig, "source_lang", "Language of SOURCE, where it is text.", metavar="CODE"),
    options.setting(MineConfig, "target_lang", "Language of TARGET, where it is text.", metavar="CODE"),
    options.setting(MineConfig, "k", "Neighbours looked at on each side.", type=int),
    options.setting(
        MineConfig, "engine", "auto: exact as long as that takes less time than FAISS.", type=click.Choice(["auto", "exact", "faiss"])
    ),
    options.approximate_options,
)
decide_options = options.group(
    options.setting(DecideSettings, "margin", "How a pair is scored.", type=click.Choice(["ratio", "distance", "absolute"])),
    options.setting(
        DecideSettings,
        "retrieval",
        "max: one to one, best first; forward, backward: the best of each source or target; intersection: the best of both;"
        " all: every candidate, above no threshold unless there is one.",
        type=click.Choice(["max", "forward", "backward", "intersection", "all"]),
    ),
    options.setting(
        DecideSettings,
        "threshold",
        "Keep pairs that score above; `auto` chooses by --gold or --planted; without it, what suits the built-in encoder.",
        metavar="FLOAT|auto",
        type=NumberOrAuto(),
    ),
    options.setting(DecideSettings, "precision", "That `auto` is to expect of the pairs.", type=float),
    options.setting(DecideSettings, "gold", "True pairs to compare with: `source line<TAB>target line`, from 1.", metavar="FILE"),
    options.setting(DecideSettings, "gold_sample", "Gold is a random part of the true pairs, not all of them.", is_flag=True),
    options.setting(
        DecideSettings, "planted", "Known pairs that the corpora lack, `source<TAB>target`: hundreds, of the same kind.", metavar="FILE"
    ),
)


@click.command()
@click.argument("source", required=False)
@click.argument("target", required=False)
@options.output_option
@click.option("--from-candidates", metavar="DIR", help="Decide again on what an earlier run left in its --output.")
@search_options
@decide_options
@options.encoder_options
@options.text_options
@filter_option(SentenceFilters, PairFilters)
@options.collapse_option
@keep_dropped_option
@options.json_option
@report.report_option
def command(json_file: str | None, no_report: bool, from_candidates: str | None, filters: tuple[str, ...], **settings: Any) -> None:
    """Find the translations of SOURCE in TARGET.

    Both are text, as `miner embed` takes it, or folders of `miner embed` or `miner index`. The pairs go to bitext.tsv.gz
    (margin, source, target; the best first) and, with the places they come from, to bitext.parquet; report.html shows them.
    Run again with another margin, retrieval or threshold, it only decides anew; with --from-candidates, into another folder.
    Run again when a pattern matches more files, it embeds and searches only what is new; deltas/ tells which pairs changed.

    \b
    Examples:
      miner mine news.en.txt news.de.txt --source-lang en --target-lang de --output mined
      miner mine --from-candidates mined --retrieval all --output all-candidates
    """
    _check_usage(click.get_current_context(), from_candidates is not None)
    from pipelines.mining import mine

    if from_candidates is None:
        chosen = choose(filters, sentence_filters=SentenceFilters, pair_filters=PairFilters)
        result = mine.run(MineConfig.check(**settings, **chosen), console.beam_options())
    else:
        decided = {name: value for name, value in settings.items() if name in FromCandidatesConfig.model_fields}
        chosen = choose(filters, pair_filters=PairFilters)
        result = mine.run_from_candidates(
            FromCandidatesConfig.check(candidates=from_candidates, **decided, **chosen), console.beam_options()
        )
    console.write_figures(json_file, result.figures())
    files = result.files
    if not no_report:
        whole = settings["gold"] if not settings["gold_sample"] else None  # a sample does not tell which pairs are wrong
        known = None if whole is None else gold.read(from_candidates or result.output, whole)
        files += filter(None, [report.leave(result.output, known)])
    click.echo(summary(result, files))
    console.exit_if_skipped(result.set_aside)


def _check_usage(ctx: click.Context, decide_only: bool) -> None:
    """Both sides, or candidates and nothing that went before them."""
    for parameter in ctx.command.params:
        name = str(parameter.name)
        if not decide_only and name in ("source", "target") and ctx.params[name] is None:
            raise click.MissingParameter(ctx=ctx, param=parameter)
        given = ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT and ctx.params.get(name) is not None
        needless = name in MineConfig.model_fields and name not in FromCandidatesConfig.model_fields
        needless |= name in EncoderSettings.model_fields and ctx.params.get("planted") is None  # which alone are embedded
        if decide_only and given and needless:
            label = name.upper() if name in ("source", "target") else parameter.opts[0]
            raise click.UsageError(f"{label} has no part in what --from-candidates decides; leave it out", ctx)


def summary(result: "MineResult", files: Sequence[str]) -> str:
    """What a person wants to know."""
    lines = [f"{side}: {result.sentences[side]:,} sentences, {result.unique[side]:,} unique" for side in ("source", "target")]
    above = "" if result.threshold is None else f" above a margin of {result.threshold:g}"
    lines.append(f"{result.pairs:,} pairs{above}")
    if result.delta is not None:
        changes = ", ".join(f"{count:,} {change}" for change, count in result.delta.counts.items())
        lines.append(f"since the run before: {changes} ({result.delta.file})")
    if result.choice is not None:
        lines.append(_told(result.choice))
    if result.dropped:
        lines.append("dropped: " + ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in result.dropped.items()))
    if result.scores is not None:
        scores = result.scores
        lines.append(f"precision {scores.precision:.4f}, recall {scores.recall:.4f}, F1 {scores.f1:.4f}")
    if result.examples:
        lines += ["", f"{'margin':>7}  pairs from the best to the last"]
        lines += [f"{margin:7.4f}  {_cut(one)}  |  {_cut(other)}" for margin, one, other in result.examples]
    total = sum(result.seconds.values())
    shares = [f"{name} {seconds:.1f} s ({seconds / total:.0%})" for name, seconds in result.seconds.items()]
    lines += ["", *_searched(result.engine), f"{total:.1f} s: {', '.join(shares)}", f"files: {', '.join(files)}"]
    return "\n".join(lines)


def _searched(engine: Mapping[str, Any]) -> list[str]:
    """Which engine searched, why, and what an approximate one found."""
    lines = [f"search: {engine['name']} ({engine['why']})"]
    for direction in (name for name in ("forward", "backward") if name in engine):
        told = engine[direction]
        reached = "" if told["low"] >= told["target_recall"] else f", which does not surely reach {told['target_recall']:g}"
        again = f", {told['searched_again']:,} searched again" if told["searched_again"] else ""
        lines.append(f"{direction}: recall {told['recall']:.4f} of a sample by {told['factory']}{reached}{again}")
    return lines


def _told(choice: "ThresholdChoice") -> str:
    """How the threshold was chosen, and what it lets expect."""
    estimates = {"precision": choice.precision, "recall": choice.recall}
    shares = [f"{name} {part.value:.4f} ({part.low:.4f}-{part.high:.4f})" for name, part in estimates.items()]
    evidence = {
        "gold": "pairs that gold judges",
        "gold sample": "gold pairs found",
        "planted": "planted sentences without a translation",
    }
    return f"threshold chosen by {choice.evidence:,} {evidence[choice.by]}: expected {', '.join(shares)}, with 95 % confidence"


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"
