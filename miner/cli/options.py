"""Options that several commands share. Their defaults are those of `miner.config`, so that each stands in one place."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from miner.config.base import Settings
from miner.config.commands import ApproximateSettings, EmbedConfig, EncoderSettings, SentenceSettings, TextSettings

Function = TypeVar("Function", bound=Callable[..., Any])


def setting(model: type[Settings], name: str, help: str, **extra: Any) -> Callable[[Function], Function]:
    """The option of the setting `name` of `model`, called as the setting is."""
    default = model.model_fields[name].default
    return click.option(f"--{name.replace('_', '-')}", name, default=default, show_default=default is not None, help=help, **extra)


def group(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several options as one decorator, in the order of the help."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


encoder_options = group(
    setting(EncoderSettings, "encoder", "`builtin`, a folder, or a hub id.", metavar="NAME"),
    setting(EncoderSettings, "pooling", "cls, mean, max, first_last_avg or layer:N; without it, as the folder says.", metavar="NAME"),
    setting(EncoderSettings, "device", "auto, cpu, cuda or cuda:N.", metavar="NAME"),
    setting(EncoderSettings, "dtype", "Of a transformer's arithmetic.", type=click.Choice(["auto", "float32", "bfloat16", "float16"])),
    setting(EncoderSettings, "batch_tokens", "Tokens in one batch of a transformer.", type=int),
    setting(EncoderSettings, "max_tokens", "A transformer cuts longer sentences; without it, at its own limit.", type=int),
)

text_column_option = setting(TextSettings, "text_column", "Column of TSV, JSONL or Parquet: a name, or a number from 1.", metavar="NAME")

reading_options = group(
    setting(TextSettings, "strict", "Stop at the first bad line or file instead of leaving it out.", is_flag=True),
    setting(TextSettings, "max_chars", "Drop longer lines.", type=int),
    setting(TextSettings, "shards", "Shards to cut the text into; without it, one for about 32 MB.", type=int),
)

text_options = group(text_column_option, reading_options)

collapse_option = setting(
    SentenceSettings, "collapse", "Count sentences that differ in case, punctuation and spaces alone as one.", is_flag=True
)

approximate_options = group(
    setting(ApproximateSettings, "target_recall", "Of FAISS: share of the true neighbours to find.", type=float),
    setting(ApproximateSettings, "memory", "Of FAISS: what an index may take, where its kind is chosen.", metavar="SIZE"),
)

config_argument = click.argument("config", metavar="CONFIG")


def changes_option(example: str) -> Callable[[Function], Function]:
    """The option that changes settings of CONFIG, as in the example."""
    return click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help=f"Change a setting of CONFIG: {example}.")


output_option = click.option("--output", required=True, metavar="DIR", help="Folder to write; run again, it goes on where it stopped.")
json_option = click.option("--json", "json_file", metavar="FILE", help="Also write the figures to this file.")
lang_option = setting(EmbedConfig, "lang", "Language of the text: de, deu, deu_Latn.", metavar="CODE")
