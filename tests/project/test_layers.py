"""Who may import whom. The rooms of the library and their doors are described in docs/architecture.md."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The rooms in the order of their layers: a room imports itself and rooms before it only. A room is a file or a folder of `miner`, a folder
# of `pipelines`, a file or a folder of `miner.research` or `miner.training`.
ROOMS = [
    *("errors", "arrays", "units", "progress", "devices", "languages"),
    *("io", "config", "search", "encoders", "mining", "filters", "text", "research.datasets", "plan", "export"),
    *(f"training.{name}" for name in ("settings", "layout", "losses", "data", "models", "steps")),
    *("training.config", "training.stream_setup", "training.run"),
    *("evaluation", "research.tasks", "loop", "report", "research.reproduction"),
    *("pipelines.beam", "pipelines.corpus", "pipelines.search", "pipelines.mining", "pipelines.runs", "pipelines.loop"),
    *("api", "cli", "__main__"),
]
NESTED = ("miner.research", "miner.training", "pipelines")  # packages whose folders are rooms

# Package -> the modules that may import it, a trailing dot standing for all modules below.
FENCES = {
    "apache_beam": ("pipelines.beam.",),
    "faiss": ("miner.search.faiss_index",),
    "click": ("miner.cli.",),
    "matplotlib": ("miner.report.charts.",),
    "tqdm": ("miner.cli.",),
}

MATHS = ("miner.search.", "miner.mining.", "miner.training.losses.")
WRITERS = {"miner.mining.writers"}  # the one file of `mining` that writes
NOT_MATHS = {"os", "io", "pathlib", "shutil", "tempfile", "json", "csv", "gzip", "fsspec", "pyarrow", "pydantic", "yaml"}

LIGHT = {
    "click",
    "miner",
    "miner.config.choices",
    "miner.io.credentials",
    "miner.io.defer_pandas",
    "miner.units",
    "miner.errors",
    "miner.progress",
    "miner.config",
    "miner.config.base",
    "miner.config.commands",
    "miner.config.filters",
    "miner.config.messages",
    "miner.config.planning",
    "miner.config.datasets",
    "miner.config.recipes",
    "miner.evaluation.tasks",
    "miner.export.settings",
}  # what the modules of miner.cli may import before a command is chosen
HEAVY = {"torch", "matplotlib", "transformers", "apache_beam", "faiss", "pyarrow", "sentencepiece", "numpy", "huggingface_hub", "fsspec"}


def modules() -> dict[str, Path]:
    """Module name -> file, for all of `miner` and `pipelines`."""
    files = [path for package in ("miner", "pipelines") for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


MODULES = modules()


def imports(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    """The full names imported by these nodes; `from miner.io import storage` is `miner.io.storage`."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in MODULES else str(node.module)


def imports_of(module: str) -> set[str]:
    """Everything `module` imports, at its top or inside functions."""
    return set(imports(ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))))


def room_of(module: str) -> str | None:
    """`miner.text.streams` -> `text`, `pipelines.beam.runner` -> `pipelines.beam`; empty packages and other packages have no room."""
    parts = module.split(".")
    if module.startswith(tuple(f"{package}." for package in NESTED)):
        return ".".join(parts[: 3 if parts[0] == "miner" else 2]).removeprefix("miner.")
    return parts[1] if parts[0] == "miner" and len(parts) > 1 and module not in NESTED else None


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_rooms_below_it(module: str) -> None:
    room = room_of(module)
    reached = {name: room_of(name) for name in imports_of(module)}
    if room is None:
        assert set(reached.values()) <= {None, "api"}, "a package itself offers the Python interface only"
        return
    assert room in ROOMS, f"{room} is new: add it to ROOMS"
    allowed = {*ROOMS[: ROOMS.index(room) + 1], None}
    assert {name for name, other in reached.items() if other not in allowed} == set()


def nodes_that_run(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node`, except those that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from nodes_that_run(child)


def test_no_modules_import_each_other() -> None:
    """An import inside a function counts too: it hides a circle."""
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    graph = {name: {*imports(nodes_that_run(tree))} & MODULES.keys() for name, tree in trees.items()}
    TopologicalSorter(graph).prepare()  # its error names the modules of a circle


@pytest.mark.parametrize("package", FENCES)
def test_a_package_behind_a_door_is_imported_only_there(package: str) -> None:
    users = {module for module in MODULES if package in {name.split(".")[0] for name in imports_of(module)}}
    assert {user for user in users if not f"{user}.".startswith(FENCES[package])} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if f"{name}.".startswith(MATHS) and name not in WRITERS])
def test_maths_touches_no_files_and_no_settings(module: str) -> None:
    names = imports_of(module) - {"miner.config.choices"}
    assert {name for name in names if name.split(".")[0] in NOT_MATHS or room_of(name) in ("io", "config")} == set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    calls = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not calls & {"open", "print"}


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) == "cli"])
def test_commands_import_what_they_need_when_they_run(module: str) -> None:
    top = set(imports(ast.parse(MODULES[module].read_text(encoding="utf-8")).body))
    outside = {name for name in top if name.split(".")[0] not in sys.stdlib_module_names and room_of(name) != "cli"}
    assert outside <= LIGHT


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('loaded', *({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n"
        "from miner.cli.main import main\n"
        "sys.argv = ['miner', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    assert done.stderr.split() == ["loaded"]


def test_the_architecture_page_lists_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^  (\w+(?:\.py|/))", page, flags=re.MULTILINE))
    folders = [ROOT / "miner", ROOT / "pipelines"]
    entries = {f"{path.name}/" if path.is_dir() else path.name for folder in folders for path in folder.iterdir()}
    assert {name for name in entries if not name.startswith(("_", "py.typed"))} - listed == set()
