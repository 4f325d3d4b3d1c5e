"""`miner eval`: one command for each evaluation."""

from typing import Any

import click

from miner.cli import console, options
from miner.config import EncoderSettings, MineConfig


@click.group()
def command() -> None:
    """Measure an encoder."""


@command.command()
@click.argument("source")
@click.argument("target")
@options.encoder_options
@options.setting(MineConfig, "k", "Neighbours on each side, for the margin.", type=click.IntRange(1, 1024))
@options.text_column_option
@options.json_option
def retrieval(source: str, target: str, k: int, text_column: str | None, json_file: str | None, **settings: Any) -> None:
    """How often line i of TARGET is found for line i of SOURCE, and the other way round.

    By cosine, and by ratio margin among the k nearest. SOURCE and TARGET are text with a sentence on each line.

    \b
    Example:
      miner eval retrieval news.de.txt.gz news.en.txt.gz --encoder sentence-transformers/LaBSE
    """
    from miner.encoders import load_encoder
    from miner.evaluation.retrieval import evaluate

    chosen = EncoderSettings.check(**settings)
    _report(evaluate(load_encoder(chosen.encoder, chosen), source, target, k, text_column), json_file)


@command.command()
@click.option("--data", required=True, metavar="DIR", help="Folder of files tatoeba.xxx-eng.tsv.gz: xxx<TAB>English, no header.")
@options.encoder_options
@options.json_option
def tatoeba(data: str, json_file: str | None, **settings: Any) -> None:
    """Retrieval by cosine between English and each language of Tatoeba, with XTREME's averages.

    Forward is from the language to English, backward from English to it.

    \b
    Example:
      miner eval tatoeba --data tatoeba --encoder builtin --json tatoeba.json
    """
    from miner.encoders import load_encoder
    from miner.evaluation.tatoeba import evaluate

    chosen = EncoderSettings.check(**settings)
    _report(evaluate(load_encoder(chosen.encoder, chosen), data), json_file)


def _report(result: Any, json_file: str | None) -> None:
    console.write_figures(json_file, result.figures())
    click.echo(result.summary())
