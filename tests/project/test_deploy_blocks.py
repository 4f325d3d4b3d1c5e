"""The blocks of deploy/README.md that need neither Docker, a cloud nor SLURM, run as they are typed.

Hosts, ports and paths are replaced by those of this machine.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from job_servers import free_port
from scripts import load_script

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

clusters = load_script("clusters", ROOT / "deploy" / "clusters")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def blocks_of(section: str) -> list[str]:
    """Return the shell blocks of a section of the page."""
    page = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```bash\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory that has what a clone has, as far as the blocks read it, and a config of small corpora."""
    for name in ("deploy", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    corpora = {}
    for lang in ("en", "de"):
        corpora[lang] = f"{lang}.txt"
        lines = (ROOT / "examples" / corpora[lang]).read_text(encoding="utf-8").splitlines()[:150]
        (tmp_path / corpora[lang]).write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({"output": "mined", "corpora": corpora}))
    return tmp_path


def run_block(block: str, folder: Path) -> str:
    """Run a block in bash, and end what it starts in the background; return what it prints."""
    script = f"set -euo pipefail; trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n{block.replace('.venv/bin/', '')}"
    environment = {**os.environ, "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=1100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dask_with_certificates(folder: Path) -> None:
    (block,) = (block for block in blocks_of("Dask") if "openssl" in block)
    block = re.sub("^pip .*\n", "", block, flags=re.MULTILINE).replace("scheduler:8786", "127.0.0.1:8786").replace("8786", str(free_port()))
    block = re.sub(r"^(dask \w+ [^#\n]*).*$", r"\1 &> /dev/null &", block, flags=re.MULTILINE)  # each in a terminal of its own
    assert block.count("&> /dev/null &") == 2
    run_block(block, folder)
    assert (folder / "mined" / "pairs" / "en-de" / "bitext.tsv.gz").exists()
    run_block("miner verify mined", folder)


@pytest.mark.parametrize("name", ["flink"])
def test_a_cluster_without_docker(name: str, folder: Path) -> None:
    if not clusters.is_fetched(name, clusters.FOLDER) or shutil.which("java") is None:
        pytest.skip("Java is not installed, or the packages are not fetched; `make clusters` does it")
    packages = folder / "build" / "clusters"
    packages.mkdir(parents=True)
    for part in (name, f"{name}-job-server"):
        (packages / part).symlink_to(clusters.FOLDER / part)
    (block,) = (block for block in blocks_of("Flink, Spark and S3 without Docker") if "start" in block)
    block = block.replace("make venv\n", "").replace("$PWD/examples/", "$PWD/")
    try:
        assert "--flink_rest=" in run_block(block, folder)
    finally:
        clusters.stop(name, packages)
    assert (folder / "build" / name / "bitext.tsv.gz").exists()


def test_the_configs_of_the_night_are_copied_and_read(folder: Path) -> None:
    (block,) = blocks_of("Every night")
    (folder / "etc").mkdir()
    lines = [line.replace("/etc/miner", "etc").partition("#")[0] for line in block.splitlines()[:2]]  # the others need root
    config = (ROOT / "deploy/schedule/nightly.yaml").read_text(encoding="utf-8")
    for lang in ("en", "de", "fr"):
        (folder / "data/crawl" / lang).mkdir(parents=True)
        shutil.copy(ROOT / "examples" / "en.txt", folder / "data/crawl" / lang / "1.txt")
        subprocess.run(["gzip", "1.txt"], cwd=folder / "data/crawl" / lang, check=True)
    run_block(lines[0], folder)
    assert (folder / "etc/nightly.yaml").read_text(encoding="utf-8") == config
    (folder / "etc/nightly.yaml").write_text(config.replace("/data/", f"{folder}/data/"), encoding="utf-8")
    printed = run_block(lines[1], folder)
    assert "pairs/en-de" in printed
    assert "pairs/en-fr" in printed
