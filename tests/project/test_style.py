"""Conventions of CONTRIBUTING.md that a program can check: words and names. ruff checks the complexity of functions."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROSE = {".md", ".py", ".yaml", ".toml", ".html", ".js", ".service", ".timer", ".cron"}
EXEMPT = {"tests/project/test_style.py", "CHANGELOG.md"}  # this list; released notes are not rewritten

# Pattern of a word or phrase that is not plain technical English -> what to write instead.
REPLACEMENTS = {
    r"mend(?:s|ed|ing)?": "fix, repair",
    r"tells? of|told of|tells? (?:how|what|which|whether|that)|is told": "report, print, state",
    r"heaps? of|two heaps": "corpora",
    r"anew": "again",
    r"goes on after|went on after|goes? on where|after a fall": "resumes",
    r"lets? go|letting go": "release, discard",
    r"what came of|what comes of|what became of|what becomes of": "result, outcome, how ... is handled",
    r"set aside|sets aside|setting aside": "skipped",
    r"by far the": "the",
    r"stands in|stand in the|lies in|lie in the": "is in, is stored in",
    r"look(?:s|ed)? into": "inspect, read",
    r"find(?:s|ing)? out|found out": "determine, measure",
    r"gone on from|go on from": "continue from",
    r"crowds?": "hub count",
    r"sift(?:s|ed|ing)?": "filter",
    r"judges?": "filter, select, rate",
    r"sow|harvest": "plant, recover",
}
FORBIDDEN = re.compile(r"(?<![\w/-])(?:" + "|".join(f"({pattern})" for pattern in REPLACEMENTS) + r")(?![\w-])", re.IGNORECASE)
VAGUE_NAMES = {"found", "told", "wanted", "held", "given", "known", "place", "places", "asked", "said", "anew", "aside"}
VAGUE_KEYS = {"among", "elsewhere", "from", "others", "to", "what", "why"}


def tracked_files() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\0")
    files = [ROOT / name for name in names if name] or [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return [path for path in files if path.suffix in PROSE and path.is_file() and str(path.relative_to(ROOT)) not in EXEMPT]


def modules(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_prose_uses_standard_terms() -> None:
    faults = []
    for path in tracked_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for match in FORBIDDEN.finditer(line):
                advice = list(REPLACEMENTS.values())[match.lastindex - 1 if match.lastindex else 0]
                faults.append(f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: write {advice}")
    assert not faults, "\n".join(faults)


def test_names_are_nouns_of_the_field() -> None:
    faults = []
    for path in modules("miner", "pipelines"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name, line = node.id, node.lineno
            elif isinstance(node, ast.arg):
                name, line = node.arg, node.lineno
            else:
                continue
            if name.lower() in VAGUE_NAMES:
                faults.append(f"{path.relative_to(ROOT)}:{line}: {name!r} does not say what it holds")
    assert not faults, "\n".join(faults)


def test_keys_of_json_are_nouns_of_the_field() -> None:
    """Of records, manifests and --json: the keys of `figures` methods, and those of pipelines."""
    faults = []
    for path in modules("miner", "pipelines"):
        is_pipeline = path.is_relative_to(ROOT / "pipelines")
        for function in functions(path):
            for node in ast.walk(function) if is_pipeline or function.name == "figures" else ():
                for key in node.keys if isinstance(node, ast.Dict) else ():
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and not is_standard_key(key.value):
                        faults.append(f"{path.relative_to(ROOT)}:{key.lineno}: {key.value!r} is not a standard term in snake case")
    assert not faults, "\n".join(faults)


def is_standard_key(key: str) -> bool:
    if key.startswith("{"):  # a placeholder of configs
        return True
    return re.fullmatch("[a-z][a-z0-9_-]*", key) is not None and not {*re.split("[_-]", key)} & (VAGUE_NAMES | VAGUE_KEYS)


def test_every_class_has_a_name_of_its_own() -> None:
    owners = defaultdict(list)
    for path in modules("miner", "pipelines"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                owners[node.name.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}


def test_tests_use_public_names_and_patch_no_constants() -> None:
    """Sizes that a test shrinks are parameters: no test patches a constant of the project or imports a private name."""
    faults = []
    for path in modules("tests"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("miner", "pipelines"):
                faults += [
                    f"{path.relative_to(ROOT)}:{node.lineno}: imports {alias.name}"
                    for alias in node.names
                    if re.match(r"_[^_]", alias.name)
                ]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr" and len(node.args) >= 2:
                name = node.args[1]
                if (
                    isinstance(name, ast.Constant)
                    and re.fullmatch(r"[A-Z][A-Z_0-9]*", str(name.value))
                    and "constants" not in ast.unparse(node.args[0])
                ):
                    faults.append(f"{path.relative_to(ROOT)}:{node.lineno}: patches {name.value}")
    assert not faults, "\n".join(faults)
