"""The parts of the project that are no program agree with the program."""

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from miner.errors import EXTRAS

ROOT = Path(__file__).parents[2]
MAX_ASSET_BYTES = 60_000_000
MAX_ASSETS_BYTES = 66_000_000  # every version stays in the history and in each full clone


def distribution(requirement: str) -> str:
    """`Apache_Beam[gcp]>=2.60` -> `apache-beam`."""
    match = re.match(r"[\w.-]+", requirement)
    assert match, requirement
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def constraints() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_constraint_is_one_exact_public_version() -> None:
    for line in constraints():
        assert re.fullmatch(r"[\w.-]+==\d[\w.]*", line), line


def test_every_dependency_has_a_constraint() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(name for extra in project["optional-dependencies"].values() for name in extra)]
    pinned = {distribution(line) for line in constraints()}
    assert {distribution(requirement) for requirement in wanted} <= pinned


def test_the_readme_renders_on_an_index() -> None:
    """Its links are absolute and lead to files of the repository."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    for link in links:
        match = re.fullmatch(re.escape(project["urls"]["Homepage"]) + r"/(blob|tree)/main/([^#]+)(#.*)?", link)
        assert match, link
        path = ROOT / match[2]
        assert path.is_dir() if match[1] == "tree" else path.is_file(), link


def test_optional_packages_are_in_their_extras() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    # package -> distribution, where the names differ; apitools comes with Beam's extra
    packages = {"apitools": "apache-beam", "faiss": "faiss-cpu", "fasttext": "fasttext-community", "sklearn": "scikit-learn"}
    dev = {distribution(requirement) for extra in ("cpu", "dev") for requirement in extras[extra]}
    for package, extra in EXTRAS.items():
        name = packages.get(package, package)
        assert name in {distribution(requirement) for requirement in extras[extra]}
        assert name in dev or extra == "gcp"


def test_assets_are_small() -> None:
    folders = [ROOT / "miner" / "encoders" / "assets", ROOT / "examples"]
    sizes = {path: path.stat().st_size for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert sum(sizes.values()) <= MAX_ASSETS_BYTES
    assert max(sizes.values()) <= MAX_ASSET_BYTES


@pytest.mark.slow
def test_a_wheel_has_the_recipes(tmp_path: Path) -> None:
    for name in ("miner", "pipelines", "configs"):
        shutil.copytree(ROOT / name, tmp_path / "source" / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, tmp_path / "source"], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    files = [name.partition("miner/recipes/")[2] for name in zipfile.ZipFile(wheel).namelist()]
    recipes = {path.relative_to(ROOT / "configs").as_posix() for path in (ROOT / "configs").rglob("*.yaml")}
    assert {name for name in files if name.endswith(".yaml")} == recipes
