"""Options that several commands share. Their defaults come from `miner.config`, so each is defined once."""

import contextlib
import fnmatch
import functools
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from miner.cli import console
from miner.config import recipes
from miner.config.base import Settings, dump_yaml
from miner.config.choices import DTYPES, RESCORINGS
from miner.config.commands import (
    ApproximateSettings,
    EmbedConfig,
    EncoderSettings,
    RescoreSettings,
    SentenceSettings,
    SideColumns,
    TextSettings,
    TopSettings,
)
from miner.errors import ConfigError, StorageError

Function = TypeVar("Function", bound=Callable[..., Any])


def setting(model: type[Settings], name: str, help: str, **extra: Any) -> Callable[[Function], Function]:
    """Create the option --NAME for the setting NAME of `model`, with its default."""
    default = model.model_fields[name].default
    return click.option(f"--{name.replace('_', '-')}", name, default=default, show_default=default is not None, help=help, **extra)


def group(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Combine options into one decorator, in the order of the help."""

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


runtime_options = group(
    setting(EncoderSettings, "encoder", "`builtin`, a directory, a URI, or a model id of the Hugging Face Hub.", metavar="NAME"),
    setting(EncoderSettings, "pooling", "cls, mean, max, first_last_avg or layer:N; by default, the encoder's own.", metavar="NAME"),
    setting(EncoderSettings, "device", "auto, cpu, cuda or cuda:N.", metavar="NAME"),
    setting(EncoderSettings, "dtype", "Data type of a transformer; int8 is for CPUs.", type=click.Choice(DTYPES)),
    setting(EncoderSettings, "batch_tokens", "Tokens per batch of a transformer; by default 4096 on a CPU, 16384 on a GPU.", type=int),
    setting(EncoderSettings, "max_tokens", "Truncate sentences with more tokens; by default, at the limit of the transformer.", type=int),
)

side_option = setting(
    EncoderSettings, "side", "Side of an encoder with two sides; by default, that of the language.", type=click.Choice(["source", "target"])
)

encoder_options = group(runtime_options, side_option)

text_column_option = setting(
    TextSettings, "text_column", "Column of a table: a name, a number from 1, or a language of TMX.", metavar="NAME"
)

side_column_options = group(
    setting(SideColumns, "source_column", "Column of the source: a name, a number from 1, or a language of TMX.", metavar="NAME"),
    setting(SideColumns, "target_column", "Column of the target, which may be in the same file: leave TARGET out.", metavar="NAME"),
)

reading_options = group(
    setting(TextSettings, "strict", "Stop at the first invalid line or file instead of skipping it.", is_flag=True),
    setting(TextSettings, "max_chars", "Drop lines with more characters.", type=int),
    setting(TextSettings, "max_expansion", "Refuse compressed files that expand by a larger factor.", type=float),
    setting(TextSettings, "shards", "Number of shards; by default, one per 32 MB of text; above 16, at most one per 10 kB.", type=int),
)

text_options = group(text_column_option, reading_options)

split_option = setting(
    SentenceSettings, "split", "Split each line into sentences by the rules of its language; needs the extra `split`.", is_flag=True
)

collapse_option = setting(
    SentenceSettings, "collapse", "Treat sentences that differ only in case, punctuation and spaces as one.", is_flag=True
)

approximate_options = group(
    setting(ApproximateSettings, "target_recall", "Recall of the nearest neighbours with FAISS.", type=float),
    setting(ApproximateSettings, "memory", "Memory limit for the choice of the FAISS index.", metavar="SIZE"),
)

rescore_options = group(
    setting(
        RescoreSettings,
        "rescore",
        "Rescore candidates by late interaction of tokens; auto: if the encoder is static.",
        type=click.Choice(RESCORINGS),
    ),
    setting(
        RescoreSettings,
        "rescore_candidates",
        "Candidates per sentence with rescoring, at least --k; default: 16, or 8 if a side has more than 20,000 sentences.",
        type=int,
    ),
    setting(
        RescoreSettings,
        "token_layer",
        "Layer of a transformer whose tokens rescore; by default, two thirds of its depth.",
        type=int,
    ),
)

top_option = setting(TopSettings, "top", "Keep the best N pairs.", type=int, metavar="N")


def _find_config(ctx: click.Context, parameter: click.Parameter, path: str) -> str:  # noqa: ARG001
    return recipes.config_path(path)


config_argument = click.argument("config", metavar="CONFIG", callback=_find_config)
suite_option = click.option(
    "--config", "path", required=True, metavar="FILE", callback=_find_config, help="Config file with the tasks, such as configs/eval.yaml."
)
print_config_option = click.option(
    "--print-config", is_flag=True, help="Print CONFIG with all defaults filled in, as YAML, and do nothing else."
)


def print_config(settings: Settings) -> None:
    """Print all settings of a config."""
    console.echo(dump_yaml(settings).rstrip())


def require_output(output: str | None) -> str:
    """Return the output of a command that also has --print-config, which needs none."""
    if output is None:
        raise click.UsageError("Missing option '--output'.")
    return output


def changes_option(example: str) -> Callable[[Function], Function]:
    """Create the option --set, which changes settings of CONFIG, with an example for the help."""
    return click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help=f"Change a setting of CONFIG, for example {example}.")


def resolve_sides(settings: dict[str, Any]) -> None:
    """Complete SOURCE and TARGET: both may be one file with two columns, or the stem of Moses files such as corpus.en and corpus.de."""
    source, target = settings["source"], settings["target"]
    if target is not None:
        return
    stems = [f"{source}.{settings[f'{side}_lang']}" for side in ("source", "target")]
    if not os.path.exists(source) and all(map(os.path.isfile, stems)):  # noqa: PTH110  # strings, as in the settings
        settings["source"], settings["target"] = stems
        return
    languages = [settings[f"{side}_lang"] for side in ("source", "target")]
    is_tmx = bool(re.search(r"\.tmx(\.\w+)?$", source, re.IGNORECASE)) and "und" not in languages
    if not is_tmx and (settings["source_column"] is None or settings["target_column"] is None):
        raise click.UsageError(
            "give TARGET, or one file with --source-column and --target-column, TMX with --source-lang and --target-lang,"
            " or the stem of files SOURCE.LANG"
        )
    settings["target"] = source


output_option = click.option(
    "--output", required=True, metavar="DIR", help="Output directory. Run again, the command resumes where it stopped."
)


def _check_replaceable(path: str, values: Iterable[Any]) -> None:
    """Raise ConfigError for an input of the command, named or by a pattern, and for a file that no `--json` can have written."""
    from miner.io import records, storage

    if storage.exists(path):
        try:
            is_figures = isinstance(storage.read_json(path), dict) and not records.has_checksum(path)
        except StorageError:
            is_figures = False
        if not is_figures:
            raise ConfigError(f"--json {path}: this file exists, and holds no figures of an earlier command; choose another one")
    for value in values:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and fnmatch.fnmatch(os.path.realpath(path), os.path.realpath(text)):
                raise ConfigError(f"--json {path}: this file is an input of the command; choose another one")


def json_option(function: Function) -> Function:
    """Add `--json FILE`. Before the command runs, raise ConfigError if the file is one of its inputs."""

    @functools.wraps(function)
    def run(*args: Any, **values: Any) -> Any:
        path: str | None = values.get("json_file")
        if path == console.STDOUT and not console.is_quiet():
            with contextlib.redirect_stdout(sys.stderr):
                return function(*args, **values)
        if path is not None:
            _check_replaceable(path, [value for name, value in values.items() if name != "json_file"])
        return function(*args, **values)

    help = "Also write the results to this JSON file; `-` is standard output, and the summary then goes to standard error."
    return click.option("--json", "json_file", metavar="FILE", help=help)(run)  # type: ignore[return-value]


lang_option = setting(EmbedConfig, "lang", "Language of the text: de, deu, deu_Latn.", metavar="CODE")
