"""The code blocks of documents, and the `miner` commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from miner.cli.main import main

ROOT = Path(__file__).parents[2]


def code_blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Return the language and the text of each code block of a page that is marked with one of these languages."""
    text = (ROOT / page).read_text(encoding="utf-8") if (ROOT / page).exists() else ""
    return re.findall(rf"^```({'|'.join(languages)})\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words after `miner` of the commands in a shell script, continued lines joined, with what follows a pipe or `>`."""
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"^\s*(\$ |\.venv/bin/)*", "", line)
        if line.startswith("miner "):
            yield shlex.split(line, comments=True)[1:]


def parse_command(words: list[str]) -> None:
    """Parse the words after `miner` as the program does: commands, options, choices, types, and what is required. Run nothing."""
    end = next((number for number, word in enumerate(words) if re.fullmatch(r"--|\||\d?>>?", word)), len(words))
    arguments, command, context = words[:end], main, click.Context(main, info_name="miner")
    try:
        while isinstance(command, click.Group):
            name, command, arguments = command.resolve_command(context, arguments)
            if "--help" in arguments:
                return
            if isinstance(command, click.Group):
                context = click.Context(command, info_name=name, parent=context)
        with command.make_context(words[0], list(arguments), parent=context):
            pass
    except click.UsageError as error:
        raise AssertionError(f"miner {shlex.join(words)}: {error.format_message()}") from error
