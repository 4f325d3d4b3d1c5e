"""The commands and Python snippets of the documentation run, in the order of the page, and the site builds."""

import ast
import gzip
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import command
import pyarrow.parquet as pq
import pytest
from documents import ROOT, code_blocks, command_lines

EXAMPLES = ROOT / "examples"
RUN_PAGES = ["README.md", "docs/quickstart.md", "docs/low-resource.md", "docs/python.md"]
OTHER_PAGES = sorted({f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - set(RUN_PAGES))
NUM_KNOWN, NUM_DEV = 450, 100  # pairs that are not in the texts; those of the dev set among them


def write_small_language(folder: Path, pairs: list[str]) -> None:
    """Write the files of docs/low-resource.md: German in the place of a language that the encoder does not know."""
    (folder / "data").mkdir()
    for lang, name in (("en", "en"), ("de", "br")):
        (folder / "data" / f"{name}.txt").write_bytes((folder / f"{lang}.txt").read_bytes())
    for name, rows in (("dev", pairs[:NUM_DEV]), ("pairs", pairs[NUM_DEV:]), ("dictionary", ["house\tHaus\n", "water\tWasser\n"])):
        (folder / "data" / f"{name}.tsv").write_text("".join(["en\tbr\n", *rows]), encoding="utf-8")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files that the pages name. The planted pairs are in neither of the texts."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    gold = [tuple(map(int, line.split("\t"))) for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines()][:NUM_KNOWN]
    for side, lang in enumerate(("en", "de")):
        lines = (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()
        known = {pair[side] for pair in gold}
        news = "".join(f"{line}\n" for number, line in enumerate(lines, start=1) if number not in known)
        (tmp_path / f"{lang}.txt").write_text(news, encoding="utf-8")
        (tmp_path / "news" / lang).mkdir(parents=True)
        (tmp_path / "news" / lang / "1.gz").write_bytes(gzip.compress(news.encode()))
    texts = [(EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de")]
    known_pairs = "".join(f"{texts[0][source - 1]}\t{texts[1][target - 1]}\n" for source, target in gold)
    (tmp_path / "known.tsv").write_text(known_pairs, encoding="utf-8")
    write_small_language(tmp_path, known_pairs.splitlines(keepends=True))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_marks(bitext: Path, marks: Path) -> None:
    """Mark all mined pairs of the examples, as a person does in the report."""
    texts = [
        [" ".join(line.split()) for line in (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()] for lang in ("en", "de")
    ]
    lines = (tuple(map(int, line.split("\t"))) for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines())
    gold = {(texts[0][source - 1], texts[1][target - 1]) for source, target in lines}
    pairs = pq.read_table(bitext, columns=["source_text", "target_text"]).to_pylist()
    rows = ("\t".join(["right" if tuple(pair.values()) in gold else "wrong", *pair.values()]) for pair in pairs)
    marks.write_text("\n".join(["mark\tsource\ttarget", *rows]), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_PAGES)
def test_every_command_and_snippet_of_a_page_runs(page: str, workspace: Path) -> None:
    namespace: dict[str, object] = {}
    for language, text in code_blocks(page, "python", "bash", "console"):
        if language == "python":
            exec(compile(text, f"{page} in {workspace}", "exec"), namespace)
        else:
            for words in command_lines(text):
                words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
                if "marks.tsv" in words:
                    write_marks(workspace / "mined" / "bitext.parquet", workspace / "marks.tsv")
                result = command.miner(*words)
                if target is not None:  # a config, of which the test takes fewer steps
                    Path(target).write_text(result.stdout.replace("steps: 50", "steps: 12"), encoding="utf-8")
                is_too_small = "--planted" in words and "no threshold has a precision of" in result.output  # of these small texts
                assert result.exit_code == 0 or is_too_small, (words, result.output)


@pytest.mark.parametrize("page", OTHER_PAGES)
def test_snippets_of_other_pages_are_valid(page: str) -> None:
    """They need data that the tests do not have: their syntax is right, and the names that they import from here exist."""
    for _, text in code_blocks(page, "python"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("miner"):
                module = importlib.import_module(str(node.module))
                assert all(hasattr(module, alias.name) for alias in node.names), ast.unparse(node)


def run_cell(source: str, namespace: dict[str, object]) -> object:
    """Run a cell as a notebook does, and return the value of its last expression."""
    *statements, last = ast.parse(source).body
    exec(compile(ast.Module(statements, []), "notebook", "exec"), namespace)
    if isinstance(last, ast.Expr):
        return eval(compile(ast.Expression(last.value), "notebook", "eval"), namespace)
    exec(compile(ast.Module([last], []), "notebook", "exec"), namespace)
    return None


@pytest.mark.slow
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    cells = json.loads((EXAMPLES / "python.ipynb").read_text(encoding="utf-8"))["cells"]
    namespace: dict[str, object] = {}
    values = [run_cell("".join(cell["source"]), namespace) for cell in cells if cell["cell_type"] == "code"]
    assert values[0] == (3017, 2341)
    assert "'pairs': 768, 'precision': 0.99348" in str(values[3])


@pytest.mark.slow
def test_the_site_builds_with_the_reference(tmp_path: Path) -> None:
    mkdocs = Path(sys.executable).parent / "mkdocs"
    words = [mkdocs, "build", "--quiet", "--strict", "--config-file", ROOT / "mkdocs.yaml", "--site-dir", tmp_path / "site"]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "site" / "reference" / "index.html").read_text(encoding="utf-8")
    for name in ("load_encoder", "embed", "mine", "score", "train", "evaluate", "Bitext.to_dataset"):
        assert f'id="miner.{name}"' in reference, name
    assert "github.com/bitext-miner" in (tmp_path / "site" / "search" / "index.html").read_text(encoding="utf-8")
