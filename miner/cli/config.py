"""`miner config`."""

import json
from importlib import import_module

import click

from miner.cli import console
from miner.config import recipes

# Command -> the model of its config. `miner plan` takes that of `run`.
MODELS = {
    "run": "miner.config.runs:RunConfig",
    "train": "miner.training.config:TrainConfig",
    "loop": "miner.loop.settings:LoopConfig",
    "suite": "miner.evaluation.suite:SuiteConfig",
    "reproduce": "miner.research.reproduction.registry:PaperSettings",
}


@click.group()
def command() -> None:
    """List the recipes that ship with the package, and describe the settings of configs."""


@command.command("list")
def list_recipes() -> None:
    """List the recipes: configs to run as they are or to start from.

    A recipe's name can take the place of its file.

    \b
    Example:
      miner config list
    """
    from miner.cli.plan import table

    rows = [(recipe.name, recipe.command(), recipe.description()) for recipe in recipes.recipes().values()]
    console.echo("\n".join(table(("recipe", "command", "description"), rows, "<<<")))


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """Print the recipe NAME, with its comments.

    \b
    Example:
      miner config show loop-news > my-loop.yaml
    """
    console.echo(recipes.find_recipe(name).text().rstrip())


@command.command()
@click.argument("command_name", metavar="COMMAND", type=click.Choice(list(MODELS)))
def schema(command_name: str) -> None:
    """Print the JSON schema of the configs of COMMAND; editors use it to complete and check YAML.

    COMMAND is run (also of `miner plan`), train, loop, suite (of `miner eval suite`) or reproduce (the tables of papers).

    \b
    Example:
      miner config schema loop > loop.schema.json
    """
    from miner.config.base import json_schema

    module, _, name = MODELS[command_name].partition(":")
    console.echo(json.dumps(json_schema(getattr(import_module(module), name)), indent=2, ensure_ascii=False))
