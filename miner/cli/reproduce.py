"""`miner reproduce`."""

import click

from miner.cli import console, options
from miner.errors import require

LISTED_ROWS = 12  # of each table, when all are listed


@click.command()
@click.argument("table", required=False, metavar="[TABLE]")
@click.option("--data", default="data", show_default=True, metavar="DIR", help="Directory of the public datasets as downloaded.")
@click.option("--models", metavar="DIR", help="Directory of models, each named by its hub id; other models come from the hub.")
@click.option(
    "--output", default="build/reproduce", show_default=True, metavar="DIR", help="Output directory. Run again, the command resumes there."
)
@click.option("--rows", multiple=True, metavar="NAME", help="Run this row, or those that match a pattern; may be repeated.")
@click.option("--seeds", type=click.IntRange(1), help="Number of seeds of each row; by default, that of the paper.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Change a setting of every recipe: training.gradient_cache=32.")
@click.option("--configs", metavar="DIR", help="Directory of recipes and tables; by default, those of the package.")
@click.option("--list", "only_list", is_flag=True, help="List the tables, or TABLE, with the data and models that they need; run nothing.")
@click.option("--dry-run", is_flag=True, help="Print the commands that train, and what is missing; run nothing.")
@options.json_option
def command(
    table: str | None,
    configs: str | None,
    only_list: bool,
    dry_run: bool,
    json_file: str | None,
    **values: str | int | tuple[str, ...] | None,
) -> None:
    """Train and evaluate the rows of a table of a paper, and print published beside measured figures.

    Without TABLE, list the tables. Rows whose data or model is missing are marked; DIR/TABLE.md and DIR/TABLE.json have the result.

    \b
    Example:
      miner reproduce msimcse-retrieval --data data --models models --rows unsupervised --rows 'nli-*'
    """
    from miner.research.reproduction import describe
    from miner.research.reproduction.plan import ReproductionOptions, plan_table
    from miner.research.reproduction.registry import load_registry

    registry = load_registry(configs)
    if table is None or only_list:
        figures = {name: describe.describe_table(registry, name) for name in (registry.tables if table is None else [table])}
        console.write_figures(json_file, figures)
        max_rows = LISTED_ROWS if table is None else None
        console.echo("\n\n".join(describe.description_text(name, figures[name], max_rows) for name in figures))
        return
    plan = plan_table(registry, table, ReproductionOptions(**values))  # type: ignore[arg-type]
    if dry_run:
        console.echo(describe.dry_run_text(plan))
        return
    require("accelerate")
    from miner.research.reproduction import run

    result = run.reproduce(plan)
    console.write_figures(json_file, result.figures())
    console.echo(result.summary())
