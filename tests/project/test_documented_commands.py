"""Every documented command is one that the program takes, and every documented config is one that it reads. Nothing is run."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click
import pydantic
import pytest
import yaml

from miner.cli.main import COMMANDS, main
from miner.config import recipes
from miner.config.base import Settings, load_yaml
from miner.config.runs import RunConfig
from miner.evaluation.tasks import SuiteConfig
from miner.loop.settings import LoopConfig
from miner.research.reproduction.registry import PaperSettings
from miner.training.config import TrainConfig

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    "benchmarks/README.md",
    "deploy/README.md",
    "examples/README.md",
    "miner/encoders/assets/builtin/README.md",
]
MODELS: list[type[Settings]] = [TrainConfig, LoopConfig, RunConfig, SuiteConfig, PaperSettings]


def page_blocks(page: str, *languages: str) -> list[str]:
    """Return the code blocks of a page that are marked with one of these languages."""
    text = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else ""
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the arguments of the `miner` commands in a shell script, continued lines joined."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"^\s*(\$ |\.venv/bin/)*", "", line)
        if line.startswith("miner "):
            yield shlex.split(re.split(r" [|>] ?", line)[0], comments=True)[1:]


@pytest.fixture(autouse=True)
def _configs_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "config_path", lambda path: path)


def parse(words: list[str]) -> None:
    """Parse the arguments as the program does: commands, options, choices, types, and what is required. Run nothing."""
    arguments = words[: words.index("--")] if "--" in words else words
    command: click.Command = main
    context = click.Context(main, info_name="miner")
    while isinstance(command, click.Group):
        name, command_or_none, arguments = command.resolve_command(context, arguments)
        assert command_or_none is not None
        command = command_or_none
        if "--help" in arguments:
            return
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
    with command.make_context(words[0], list(arguments), parent=context):
        pass


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_are_valid(page: str) -> None:
    lines = [words for block in page_blocks(page, "bash", "sh", "console") for words in command_lines(block)]
    for words in lines:
        try:
            parse(words)
        except click.UsageError as error:
            pytest.fail(f"{page}: miner {shlex.join(words)}: {error.format_message()}")
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
            try:
                parse(words)
            except click.UsageError as error:
                pytest.fail(f"miner {path} --help: miner {shlex.join(words)}: {error.format_message()}")
            assert " ".join(words).startswith(path) or path == "plan"


CONFIG_BLOCKS = [(page, block) for page in PAGES for block in page_blocks(page, "yaml") if yaml.safe_load(block)]


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
