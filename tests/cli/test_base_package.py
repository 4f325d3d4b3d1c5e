"""The base package, without torch and transformers: what it does, and what it says where it needs them."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tiny
from command import output_of

ROOT = Path(__file__).parents[2]
LANGS = "--source-lang", "en", "--target-lang", "de"
WITHOUT = "import sys\nsys.modules.update(dict.fromkeys(['torch', 'transformers', 'accelerate', 'matplotlib', 'scipy', 'sklearn']))\n"


def run_base(code: str, *words: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process in which the packages of the extras are not installed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WITHOUT + code, *map(str, words)]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def miner_base(*words: object, folder: Path) -> str:
    done = run_base("from miner.cli.main import main\nmain()", *words, folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    sides = []
    for lang in ("en", "de"):
        sides.append((ROOT / "examples" / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:600])
        (folder / f"{lang}.txt").write_text("\n".join(sides[-1]), encoding="utf-8")
    (folder / "pairs.tsv").write_text("\n".join(map("\t".join, zip(*sides, strict=True))), encoding="utf-8")
    (folder / "tatoeba").mkdir()
    (folder / "tatoeba" / "tatoeba.deu-eng.tsv.gz").write_bytes(gzip.compress(b"Hallo Welt\tHello world\nGute Nacht\tGood night\n"))
    (folder / "sts.tsv").write_text("sentence1\tsentence2\tscore\nyes\tyes\t5\nred car\tgreen car\t3\nI sleep\tred car\t0\n")
    (folder / "run.yaml").write_text("output: run\ncorpora:\n  en: en.txt\n  de: de.txt\npairs: [en-de]\n")
    miner_base("mine", "en.txt", "de.txt", *LANGS, "--output", "mined", "--no-report", folder=folder)
    return folder


def test_pairs_are_those_of_an_environment_with_torch(folder: Path) -> None:
    output_of("mine", folder / "en.txt", folder / "de.txt", *LANGS, "--output", folder / "with-torch")
    pairs, expected = (pq.read_table(folder / name / "bitext.parquet") for name in ("mined", "with-torch"))
    columns = ["source_text", "target_text", "margin", "probability"]
    assert pairs.num_rows > 30
    assert pairs.select(columns).equals(expected.select(columns))


@pytest.mark.parametrize(
    "words",
    [
        ["score", "pairs.tsv", "--source-column", "1", "--target-column", "2", *LANGS, "--output", "scored.tsv"],
        ["run", "run.yaml", "--no-report"],
        ["export", "mined", "--output", "dataset"],
        ["eval", "retrieval", "en.txt", "de.txt", "--no-report"],
        ["eval", "tatoeba", "--data", "tatoeba"],
        ["eval", "bitext", "mined"],
        ["eval", "sts", "--data", "sts.tsv"],
    ],
)
def test_commands_need_no_torch(words: list[str], folder: Path) -> None:
    assert miner_base(*words, folder=folder)


def test_an_index_finds_the_pairs_of_exact_search(folder: Path) -> None:
    for lang in ("en", "de"):
        miner_base("embed", f"{lang}.txt", "--lang", lang, "--output", f"embedded-{lang}", folder=folder)
        miner_base(
            "index", f"embedded-{lang}", "--factory", "IVF8,Flat", "--target-recall", "1", "--output", f"index-{lang}", folder=folder
        )
    miner_base(
        "mine", "index-en", "index-de", "--engine", "faiss", "--target-recall", "1", "--output", "by-index", "--no-report", folder=folder
    )
    pairs, expected = (pq.read_table(folder / name / "bitext.parquet").to_pydict() for name in ("by-index", "mined"))
    assert (pairs["source_text"], pairs["target_text"]) == (expected["source_text"], expected["target_text"])


def test_python_needs_no_torch(folder: Path) -> None:
    code = "import miner\nfrom miner import *\nprint(len(miner.mine('en.txt', 'de.txt', source_lang='en', target_lang='de')))"
    done = run_base(code, folder=folder)
    assert (done.returncode, done.stdout.strip()) == (0, str(pq.read_table(folder / "mined" / "bitext.parquet").num_rows)), done.stderr


def test_many_vectors_are_searched_without_torch(folder: Path) -> None:
    code = """import numpy as np
from miner.mining.in_memory import search_vectors
vectors = np.random.default_rng(0).standard_normal((5000, 16))
vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
print([(neighbours.ids[:, 0] == np.arange(5000)).mean() for neighbours in search_vectors(vectors, vectors, 1)])"""
    done = run_base(code, folder=folder)
    assert done.stdout == "[np.float64(1.0), np.float64(1.0)]\n", done.stderr


TORCH = "torch is not installed; pip install 'bitext-miner[transformers]'"
ACCELERATE = "accelerate is not installed; pip install 'bitext-miner[train]'"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mine", "en.txt", "de.txt", *LANGS, "--encoder", "ENCODER", "--output", "none"], TORCH),
        (["mine", "en.txt", "de.txt", *LANGS, "--device", "cuda", "--output", "none"], TORCH),
        (["embed", "en.txt", "--lang", "en", "--encoder", "ENCODER", "--output", "none"], TORCH),
        (["eval", "retrieval", "en.txt", "de.txt", "--encoder", "ENCODER"], TORCH),
        (["calibrate", "ENCODER"], TORCH),
        (["plan", "run.yaml"], TORCH),
        (["train", "run.yaml", "--output", "none"], ACCELERATE),
        (["loop", "run.yaml", "--output", "none"], ACCELERATE),
    ],
)
def test_one_sentence_names_the_extra(words: list[str], message: str, folder: Path, tmp_path: Path) -> None:
    words = [str(tiny.save_transformer(tmp_path / "model")) if word == "ENCODER" else word for word in words]
    done = run_base("from miner.cli.main import main\nmain()", *words, folder=folder)
    assert (done.returncode, done.stderr) == (1, f"miner: error: {message}\n")
    assert not (folder / "none").exists()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("train({}, 'none')", ACCELERATE),
        ("embed(['yes'], lang='en', encoder=ENCODER)", TORCH),
        ("mine(['yes'], ['ja'], source_lang='en', target_lang='de', device='cuda')", TORCH),
    ],
)
def test_python_names_the_extra(call: str, message: str, folder: Path, tmp_path: Path) -> None:
    call = call.replace("ENCODER", repr(str(tiny.save_transformer(tmp_path / "model"))))
    code = f"import miner\nfrom miner.errors import ConfigError\ntry:\n    miner.{call}\nexcept ConfigError as error:\n    print(error)"
    done = run_base(code, folder=folder)
    assert (done.returncode, done.stdout) == (0, f"{message}\n"), done.stderr
