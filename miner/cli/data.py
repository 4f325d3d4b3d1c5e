"""`miner data`: public datasets as they are downloaded."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from miner.cli import console, options
from miner.units import counted

if TYPE_CHECKING:
    from miner.research.datasets.convert import DatasetSummary

name_argument = click.argument("name", metavar="NAME")
path_argument = click.argument("path", metavar="PATH")
language_option = click.option(
    "--language", "languages", multiple=True, metavar="CODE", help="Language to read: de, deu, deu_Latn; may be repeated."
)


@click.group()
def command() -> None:
    """Read public datasets as they are downloaded.

    \b
    Example:
      miner data show xnli-mt XNLI-MT-1.0 --language de --language fr
    """


@command.command("list")
@options.json_option
def list_layouts(json_file: str | None) -> None:
    """List the datasets that can be read: name, kind of rows, what it is, licence where it is known.

    \b
    Example:
      miner data list
    """
    from miner.cli.plan import table
    from miner.research.datasets.registry import LAYOUTS

    layouts = [LAYOUTS[name] for name in sorted(LAYOUTS)]
    rows = [(layout.name, layout.kind.name, layout.title, layout.licence) for layout in layouts]
    console.write_figures(
        json_file,
        {
            layout.name: {
                "kind": layout.kind.name,
                "title": layout.title,
                "licence": layout.licence,
                "download": layout.download,
                "columns": list(layout.kind.columns),
                "notes": layout.notes,
            }
            for layout in layouts
        },
    )
    console.echo("\n".join(table(("name", "kind", "what it is", "licence"), rows, "<<<<")))


@command.command()
@name_argument
@path_argument
@language_option
@click.option("--split", default="all", show_default=True, metavar="NAME", help="train, dev, test or another split of the dataset.")
@options.json_option
def show(name: str, path: str, languages: tuple[str, ...], split: str, json_file: str | None) -> None:
    """Show what would be read: files, rows, columns, languages, dropped rows by reason, three rows.

    NAME is one of `miner data list`; PATH is a file of the release, its archive, or the directory that it is unpacked in. Everything
    is read, nothing is written.

    \b
    Example:
      miner data show paws-x x-final.tar.gz --language de --split dev
    """
    from miner.research.datasets.convert import summarise
    from miner.research.datasets.reading import read_dataset
    from miner.research.datasets.registry import get_layout

    layout = get_layout(name)
    summary = summarise(layout, read_dataset(layout, path, languages, split))
    console.write_figures(json_file, summary.figures())
    console.echo(summary_text(summary))


@command.command()
@name_argument
@path_argument
@click.option("--output", required=True, metavar="FILE", help="File to write: .tsv, .jsonl (also with .gz) or .parquet.")
@language_option
@click.option("--split", metavar="NAME", help="train, dev, test or another split; needed where there are several; all for each.")
@options.json_option
def convert(name: str, path: str, output: str, languages: tuple[str, ...], split: str | None, json_file: str | None) -> None:
    """Write a dataset in the columns of `miner train` and `miner eval`.

    NAME is one of `miner data list`; PATH is a file of the release, its archive, or the directory that it is unpacked in.

    \b
    Example:
      miner data convert snli snli_1.0.zip --split train --output snli.tsv.gz
    """
    from miner.research.datasets.convert import convert_dataset
    from miner.research.datasets.reading import read_dataset
    from miner.research.datasets.registry import get_layout
    from miner.research.datasets.release import list_files

    layout = get_layout(name)
    inputs = [file.path for file in list_files(path)]
    summary = convert_dataset(layout, read_dataset(layout, path, languages, split), output, inputs)
    console.write_figures(json_file, {**summary.figures(), "output": output})
    console.echo(f"{counted(summary.kept, 'row')} ({', '.join(summary.columns)}) in {output}; {_dropped(summary.dropped)}")


def summary_text(summary: "DatasetSummary") -> str:
    """A table of the files, the totals, and the first rows."""
    from miner.cli.plan import table

    rows = [
        (
            part.files[0] + (f" and {len(part.files) - 1} more" if len(part.files) > 1 else ""),
            part.split,
            " ".join(part.languages[:8]) + (" ..." if len(part.languages) > 8 else ""),
            f"{part.rows:,}",
            f"{part.kept:,}",
            _dropped(part.dropped) if part.dropped else "",
        )
        for part in summary.files.values()
    ]
    languages = ", ".join(f"{code} {count:,}" for code, count in sorted(summary.languages.items()) if code) or "not known"
    lines = [
        *table(("files", "split", "languages", "rows", "kept", "dropped"), rows, "<<<>><"),
        "",
        f"columns: {', '.join(summary.columns)}",
        f"rows by language: {languages}",
        f"{counted(summary.rows, 'row')} read, {summary.kept:,} kept; {_dropped(summary.dropped)}",
    ]
    for number, row in enumerate(summary.examples, start=1):
        lines += ["", f"row {number}", *(f"  {column}: {cell}" for column, cell in row.items())]
    return "\n".join(lines)


def _dropped(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} dropped: {reason}" for reason, count in sorted(dropped.items())) or "none dropped"
