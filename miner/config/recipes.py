"""The recipes that ship with the package: `configs/` of the repository, which a wheel holds as `miner/recipes`."""

import re
from dataclasses import dataclass
from pathlib import Path

from miner.config.base import load_values
from miner.config.messages import find_similar
from miner.errors import ConfigError

FOLDER = (Path(__file__).parents[1] / "recipes").resolve()
SUFFIX = ".yaml"
MAX_DESCRIPTION = 110  # characters

# Command -> a setting that only its configs have.
COMMANDS = {"train": "objective", "loop": "training", "eval suite": "tasks", "reproduce": "tables", "run": "corpora"}


@dataclass(frozen=True)
class Recipe:
    """A config that ships with the package."""

    name: str  # path below the folder, without .yaml
    path: Path

    def text(self) -> str:
        """Return the YAML of the recipe, with its comments."""
        return self.path.read_text(encoding="utf-8")

    def command(self) -> str:
        """Return the command that runs it."""
        values = load_values(str(self.path))
        return next(command for command, setting in COMMANDS.items() if setting in values)

    def description(self) -> str:
        """Return the first sentence of its leading comment."""
        words: list[str] = []
        for line in self.text().splitlines():
            if not line.startswith("#") or (words and words[-1].endswith(":")):
                break
            words += line.lstrip("# ").split()
        sentence = re.split(r"\. |: `?miner ", " ".join(words))[0].rstrip(".:")
        return sentence if len(sentence) <= MAX_DESCRIPTION else sentence[: MAX_DESCRIPTION - 1] + "…"


def recipes() -> dict[str, Recipe]:
    """Return all recipes by name."""
    names = {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in FOLDER.rglob(f"*{SUFFIX}")}
    return {name: Recipe(name, names[name]) for name in sorted(names)}


def find_recipe(name: str) -> Recipe:
    """Return the recipe of this name. Raises ConfigError for an unknown one."""
    all_recipes = recipes()
    name = name.removesuffix(SUFFIX).removeprefix("configs/")
    if name not in all_recipes:
        similar = find_similar(name, all_recipes)
        hint = f"did you mean {similar}?" if similar else "`miner config list` lists them"
        raise ConfigError(f"unknown recipe {name!r}; {hint}")
    return all_recipes[name]


def config_path(path: str) -> str:
    """Return the path of a config: `path` itself, or that of the recipe of this name. Raises ConfigError if there is neither."""
    if "://" in path or Path(path).exists():
        return path
    if path not in recipes():
        similar = find_similar(Path(path).stem, recipes())
        hint = f"did you mean the recipe {similar}?" if similar else "`miner config list` lists the recipes"
        raise ConfigError(f"{path}: no such file or recipe; {hint}")
    return str(find_recipe(path).path)
