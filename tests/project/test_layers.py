"""Who may import whom. The rooms of the library and their doors are described in docs/architecture.md."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Room -> the rooms it may import, besides itself. A room is a file or a folder of `miner`, or a folder of `pipelines`.
ROOMS = {
    "errors": set(),
    "arrays": set(),
    "choices": set(),
    "counts": set(),
    "units": set(),
    "background": set(),
    "int8_products": set(),
    "devices": {"errors"},
    "extras": {"errors"},
    "progress": set(),
    "credentials": set(),
    "tables": {"arrays", "errors"},
    "config": {"errors", "choices"},
    "object_stores": set(),
    "whole_files": {"object_stores"},
    "storage": {"errors", "object_stores", "whole_files"},
    "checked_reads": {"errors", "object_stores", "storage"},
    "table_files": {"arrays", "checked_reads", "errors", "storage"},
    "records": {"errors", "storage"},
    "checksums": {"errors", "records", "storage"},
    "host_copies": {"checksums", "credentials", "errors", "storage", "whole_files"},
    "stages": {"errors", "records", "storage"},
    "lock": {"credentials", "errors", "progress", "records", "storage", "units"},
    "languages": {"errors"},
    "corpus": {"arrays", "errors", "tables", "storage", "stages", "table_files"},
    "text": {
        "arrays",
        "counts",
        "units",
        "credentials",
        "errors",
        "extras",
        "background",
        "tables",
        "config",
        "storage",
        "languages",
        "filters",
        "progress",
        "table_files",
    },
    "datasets": {"errors", "config", "storage", "languages", "table_files", "text"},
    "encoders": {
        "arrays",
        "units",
        "background",
        "checksums",
        "choices",
        "config",
        "credentials",
        "devices",
        "errors",
        "host_copies",
        "languages",
        "progress",
        "records",
        "storage",
        "tables",
        "int8_products",
    },
    "search": {"arrays", "background", "devices", "errors", "extras", "int8_products"},
    "filters": {"arrays", "errors", "extras", "choices", "config", "languages", "tables", "mining"},
    "mining": {"arrays", "errors", "choices", "devices", "encoders", "search"},
    "export": {"arrays", "errors", "config", "languages", "lock", "mining", "records", "stages", "storage", "table_files", "tables"},
    "plan": {"errors", "config", "progress", "storage", "table_files", "text", "search", "units"},
    "training": {
        "background",
        "arrays",
        "units",
        "checksums",
        "counts",
        "devices",
        "errors",
        "extras",
        "lock",
        "progress",
        "records",
        "tables",
        "config",
        "storage",
        "languages",
        "text",
        "datasets",
        "encoders",
        "search",
        "mining",
        "whole_files",
    },
    "evaluation": {
        "arrays",
        "errors",
        "extras",
        "choices",
        "counts",
        "progress",
        "tables",
        "config",
        "storage",
        "stages",
        "table_files",
        "languages",
        "text",
        "datasets",
        "encoders",
        "search",
        "filters",
        "mining",
        "training",
    },
    "report": {
        "arrays",
        "errors",
        "choices",
        "counts",
        "extras",
        "records",
        "storage",
        "stages",
        "table_files",
        "filters",
        "mining",
        "evaluation",
        "loop",
    },
    "reproduction": {"errors", "lock", "progress", "records", "config", "storage", "datasets", "encoders", "training", "evaluation"},
    "loop": {"arrays", "errors", "config", "storage", "languages", "text", "datasets", "filters", "training", "evaluation"},
}
LIBRARY = set(ROOMS)
ROOMS["api"] = LIBRARY
ROOMS["pipelines"] = set()  # the package itself is empty
ROOMS["pipelines.beam"] = LIBRARY
ROOMS["pipelines.corpus"] = LIBRARY | {"pipelines.beam"}
ROOMS["pipelines.search"] = LIBRARY | {"pipelines.beam"}
ROOMS["pipelines.mining"] = LIBRARY | {"pipelines.beam", "pipelines.corpus", "pipelines.search"}
ROOMS["pipelines.runs"] = ROOMS["pipelines.mining"] | {"pipelines.mining"}
ROOMS["pipelines.loop"] = ROOMS["pipelines.mining"] | {"pipelines.mining"}
ROOMS["cli"] = set(ROOMS)
ROOMS["__main__"] = {"cli"}
EXTRA_DOORS = {"miner.mining.writers": {"table_files", "tables", "storage"}}  # the one file of `mining` that writes

# Package -> the modules that may import it, a trailing dot standing for all modules below.
FENCES = {
    "apache_beam": ("pipelines.beam.",),
    "faiss": ("miner.search.faiss_index",),
    "click": ("miner.cli.",),
    "matplotlib": ("miner.report.charts.",),
    "tqdm": ("miner.cli.",),
}

MATHS = ("miner.search.", "miner.mining.", "miner.training.losses")
NOT_MATHS = {"os", "io", "pathlib", "shutil", "tempfile", "json", "csv", "gzip", "fsspec", "pyarrow", "pydantic", "yaml"}

LIGHT = {
    "click",
    "miner",
    "miner.choices",
    "miner.credentials",
    "miner.counts",
    "miner.units",
    "miner.errors",
    "miner.progress",
    "miner.config",
    "miner.config.base",
    "miner.config.commands",
    "miner.config.filters",
    "miner.config.datasets",
    "miner.config.recipes",
    "miner.evaluation.task_base",
    "miner.evaluation.tasks",
    "miner.evaluation.label_tasks",
    "miner.evaluation.translation_tasks",
    "miner.export.settings",
}  # what the modules of miner.cli may import before a command is chosen
HEAVY = {"torch", "matplotlib", "transformers", "apache_beam", "faiss", "pyarrow", "sentencepiece", "numpy", "huggingface_hub", "fsspec"}


def modules() -> dict[str, Path]:
    """Module name -> file, for all of `miner` and `pipelines`."""
    files = [path for package in ("miner", "pipelines") for path in sorted((ROOT / package).rglob("*.py"))]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


MODULES = modules()


def imports(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[str]:
    """The full names imported by these nodes; `from miner import storage` is `miner.storage`."""
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
    """`miner.text.streams` -> `text`, `pipelines.beam.runner` -> `pipelines.beam`; `miner` itself and other packages have no room."""
    parts = module.split(".")
    if parts[0] == "miner":
        return parts[1] if len(parts) > 1 else None
    return ".".join(parts[:2]) if parts[0] == "pipelines" else None


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_rooms_below_it(module: str) -> None:
    room = room_of(module)
    reached = {name: room_of(name) for name in imports_of(module)}
    if room is None:
        assert set(reached.values()) <= {None, "api"}, "the package itself offers the Python interface only"
        return
    assert room in ROOMS, f"{room} is new: say in ROOMS what it may import"
    allowed = ROOMS[room] | EXTRA_DOORS.get(module, set()) | {room, None}
    assert {name for name, other in reached.items() if other not in allowed} == set()


@pytest.mark.parametrize("package", FENCES)
def test_a_package_behind_a_door_is_imported_only_there(package: str) -> None:
    users = {module for module in MODULES if package in {name.split(".")[0] for name in imports_of(module)}}
    assert {user for user in users if not f"{user}.".startswith(FENCES[package])} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if f"{name}.".startswith(MATHS) and name not in EXTRA_DOORS])
def test_maths_touches_no_files_and_no_settings(module: str) -> None:
    assert {name for name in imports_of(module) if name.split(".")[0] in NOT_MATHS} == set()
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
