"""`miner mine`."""

from typing import TYPE_CHECKING, Any

import click

from miner.cli import console, options
from miner.config import MineConfig

if TYPE_CHECKING:
    from pipelines.mine import MineResult

TEXT_WIDTH = 60  # characters of a sentence in the summary

mining_options = options.group(
    options.setting(MineConfig, "source_lang", "Language of SOURCE, where it is text.", metavar="CODE"),
    options.setting(MineConfig, "target_lang", "Language of TARGET, where it is text.", metavar="CODE"),
    options.setting(MineConfig, "k", "Neighbours looked at on each side.", type=int),
    options.setting(MineConfig, "margin", "How a pair is scored.", type=click.Choice(["ratio", "distance", "absolute"])),
    options.setting(
        MineConfig,
        "retrieval",
        "max: one to one, best first; forward, backward: the best of each source or target; intersection: the best of both.",
        type=click.Choice(["max", "forward", "backward", "intersection"]),
    ),
    options.setting(MineConfig, "threshold", "Keep pairs that score above; without it, what suits the built-in encoder.", type=float),
    options.setting(MineConfig, "gold", "True pairs to compare with: `source line<TAB>target line`, from 1.", metavar="FILE"),
)


@click.command()
@click.argument("source")
@click.argument("target")
@options.output_option
@mining_options
@options.encoder_options
@options.text_options
@options.json_option
def command(source: str, target: str, output: str, json_file: str | None, **settings: Any) -> None:
    """Find the translations of SOURCE in TARGET.

    Both are text, as `miner embed` takes it, or folders of `miner embed` or `miner index`. The pairs go to bitext.tsv.gz
    (margin, source, target; the best first) and, with the places they come from, to bitext.parquet. Run again with another
    margin, retrieval or threshold, it only decides anew.

    \b
    Example:
      miner mine news.en.txt news.de.txt --source-lang en --target-lang de --output mined
    """
    from pipelines import mine

    result = mine.run(MineConfig.check(source=source, target=target, output=output, **settings), console.beam_options())
    console.write_figures(json_file, result.figures())
    click.echo(summary(result))


def summary(result: "MineResult") -> str:
    """What a person wants to know."""
    lines = [f"{side}: {result.sentences[side]:,} sentences, {result.unique[side]:,} unique" for side in ("source", "target")]
    lines.append(f"{result.pairs:,} pairs above a margin of {result.threshold:g}")
    if result.scores is not None:
        scores = result.scores
        lines.append(f"precision {scores.precision:.4f}, recall {scores.recall:.4f}, F1 {scores.f1:.4f}")
    if result.examples:
        lines += ["", f"{'margin':>7}  pairs from the best to the last"]
        lines += [f"{margin:7.4f}  {_cut(one)}  |  {_cut(other)}" for margin, one, other in result.examples]
    total = sum(result.seconds.values())
    shares = [f"{name} {seconds:.1f} s ({seconds / total:.0%})" for name, seconds in result.seconds.items()]
    lines += ["", f"{total:.1f} s: {', '.join(shares)}", f"files: {', '.join(result.files)}"]
    return "\n".join(lines)


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 1] + "…"
