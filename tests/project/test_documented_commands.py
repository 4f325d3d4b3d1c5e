"""Every documented command is one that the program takes, and every documented config is one that it reads. Nothing is run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click
import pydantic
import pytest
import yaml
from documents import ROOT, code_blocks, command_lines, parse_command

from miner.cli.main import COMMANDS, main
from miner.config import recipes
from miner.config.base import Settings, load_yaml
from miner.config.runs import RunConfig
from miner.evaluation.suite import SuiteConfig
from miner.loop.settings import LoopConfig
from miner.research.reproduction.registry import PaperSettings
from miner.training.config import TrainConfig

PAGES = [
    "README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    "benchmarks/README.md",
    "deploy/README.md",
    "examples/README.md",
    "miner/encoders/assets/builtin/README.md",
]
MODELS: list[type[Settings]] = [TrainConfig, LoopConfig, RunConfig, SuiteConfig, PaperSettings]


@pytest.fixture(autouse=True)
def _configs_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "config_path", lambda path: path)


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_are_valid(page: str) -> None:
    lines = [words for _, block in code_blocks(page, "bash", "sh", "console") for words in command_lines(block)]
    for words in lines:
        parse_command(words)
    assert lines or page not in ("README.md", "docs/quickstart.md", "docs/mining.md")


def leaf_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            subcommand = command.get_command(click.Context(command), name)
            assert subcommand is not None
            yield from leaf_commands(subcommand, (*path, name))
    else:
        yield " ".join(path), command


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_help_are_valid(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for path, leaf in leaf_commands(command, (name,)):
        examples = list(command_lines("\n".join(line.strip() for line in (leaf.help or "").splitlines())))
        assert examples, f"miner {path} --help has no example"
        for words in examples:
            parse_command(words)
            assert " ".join(words).startswith(path) or path == "plan"


CONFIG_BLOCKS = [(page, block) for page in PAGES for _, block in code_blocks(page, "yaml") if yaml.safe_load(block)]


@pytest.mark.parametrize(("page", "block"), CONFIG_BLOCKS, ids=[page for page, _ in CONFIG_BLOCKS])
def test_configs_of_pages_are_valid(page: str, block: str, tmp_path: Path) -> None:
    """A whole config fits its model; a part of one has settings of the model with valid values."""
    values = yaml.safe_load(block)
    model = next((model for model in MODELS if set(values) <= set(model.model_fields)), None)
    assert model is not None, f"{page}: no command has all of the settings {', '.join(values)}"
    if all(not field.is_required() or name in values for name, field in model.model_fields.items()):
        (tmp_path / "config.yaml").write_text(block, encoding="utf-8")
        load_yaml(model, str(tmp_path / "config.yaml"))
    for name, value in values.items():
        field = model.model_fields[name]
        pydantic.TypeAdapter(Annotated[field.annotation, field]).validate_python(value)
