"""Commands that only read or select load neither torch nor Beam, and small runs neither these nor FAISS, so they start fast."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import output_of

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def mined(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mined")
    (folder / "en").write_text("one two\nthree four\n")
    (folder / "fr").write_text("un deux\ntrois quatre\n")
    output_of("mine", folder / "en", folder / "fr", "--encoder", toy_encoder, "--output", folder / "out")
    return folder / "out"


def run_and_print_loaded(*words: str | Path) -> str:
    """Run a command. Return the last line of its output: which of the large packages it has loaded."""
    large = {"torch", "apache_beam", "scipy", "transformers", "faiss", "matplotlib", "pandas"}
    code = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print(*sorted({large} & set(sys.modules)), 'loaded'))\n"
        "from miner.cli.main import main\n"
        "main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("words", [["status"], ["verify"], ["mine", "--threshold", "1.1", "--no-report", "--from-candidates"]])
def test_reading_and_selecting_load_neither_torch_nor_beam(words: list[str], mined: Path, tmp_path: Path) -> None:
    output = ["--output", str(tmp_path / "again")] if words[0] == "mine" else []
    assert run_and_print_loaded(*words, mined, *output) == "loaded"
    if output:
        assert (tmp_path / "again" / "bitext.parquet").read_bytes() == (mined / "bitext.parquet").read_bytes()


@pytest.mark.parametrize("words", [["eval", "--help"], ["eval", "retrieval", "--help"], ["eval", "sts", "--help"], ["reproduce", "--list"]])
def test_settings_of_tasks_load_without_torch(words: list[str]) -> None:
    assert run_and_print_loaded(*words) == "loaded"


def test_static_encoders_embed_without_torch(mined: Path, toy_encoder: Path, tmp_path: Path) -> None:
    loaded = run_and_print_loaded("embed", mined.parent / "en", "--lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "again")
    assert loaded == "loaded"


def test_pandas_is_imported_when_a_data_frame_is_needed() -> None:
    pytest.importorskip("pandas")
    code = (
        "import sys, numpy as np\n"
        "from miner.io.defer_pandas import defer_pandas\n"
        "defer_pandas()\n"
        "import pyarrow as pa\n"
        "table = pa.table({'a': pa.array(np.arange(3)), 'b': pa.array(['x', None, 'y'])})\n"
        "assert table['a'].to_numpy().tolist() == [0, 1, 2] and 'pandas' not in sys.modules\n"
        "frame = table.to_pandas()\n"
        "assert frame['b'].tolist()[::2] == ['x', 'y'] and pa.Table.from_pandas(frame)['a'].to_pylist() == [0, 1, 2]\n"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)


def test_a_small_run_loads_neither_torch_nor_beam_nor_faiss(mined: Path, toy_encoder: Path, tmp_path: Path) -> None:
    sides = mined.parent / "en", mined.parent / "fr"
    loaded = run_and_print_loaded("mine", *sides, "--encoder", toy_encoder, "--output", tmp_path / "again")
    assert loaded == "matplotlib loaded"
    for name in ("bitext.parquet", "bitext.tsv.gz", "manifest.json"):
        assert (tmp_path / "again" / name).read_bytes() == (mined / name).read_bytes()


@pytest.mark.parametrize("words", [["score"], ["eval", "retrieval"]])
def test_scoring_and_evaluating_few_lines_load_neither_torch_nor_beam_nor_faiss(
    words: list[str], mined: Path, toy_encoder: Path, tmp_path: Path
) -> None:
    output = ["--output", str(tmp_path / "out.tsv")] if words == ["score"] else []
    loaded = run_and_print_loaded(*words, mined.parent / "en", mined.parent / "fr", "--encoder", toy_encoder, *output)
    assert loaded == ("matplotlib loaded" if words == ["score"] else "loaded")


def test_export_loads_neither_torch_nor_beam_nor_faiss(mined: Path, tmp_path: Path) -> None:
    loaded = run_and_print_loaded("export", mined, "--output", tmp_path / "out", "--format", "jsonl")
    assert loaded == "loaded"
