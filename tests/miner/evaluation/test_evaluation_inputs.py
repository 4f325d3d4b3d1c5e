"""Inputs of evaluations: tables in every format, and malformed ones, which every task reports in one line."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import error_of, miner, output_of

from miner.encoders import load_encoder, static
from miner.evaluation.task_base import BarChart
from miner.report.scores import find_chart, groups
from miner.research.datasets.columns import load_columns

HEAD = ("sentence1", "sentence2", "score", "text", "label", "lang", "id")
WORDS = ("one", "two", "three", "four", "five", "seven", "eight", "nine")
ROWS = [
    (first, second, number % 4, f"{first} {second}", number % 2, lang, number)
    for lang in ("en", "fr")
    for number, (first, second) in enumerate(zip(WORDS, reversed(WORDS), strict=True))
]
TABLE = "\n".join("\t".join(map(str, row)) for row in (HEAD, *ROWS)) + "\n"

TASKS: dict[str, Callable[[str], list[str]]] = {
    "sts": lambda data: ["sts", "--data", data],
    "clustering": lambda data: ["clustering", "--data", data],
    "classification": lambda data: ["classification", "--train", data, "--test", data],
    "pair-classification": lambda data: ["pair-classification", "--train", data, "--test", data],
    "language-probe": lambda data: ["language-probe", "--data", data],
    "map": lambda data: ["map", "--data", data],
    "retrieval": lambda data: ["retrieval", data, data, "--source-column", "sentence1", "--target-column", "sentence2"],
    "alignment": lambda data: ["alignment", data, data, "--source-column", "sentence1", "--target-column", "sentence2"],
}
MALFORMED = {
    "missing.tsv": None,
    "empty.tsv": b"",
    "header.tsv": TABLE.partition("\n")[0].encode() + b"\n",
    "columns.tsv": b"a\tb\n1\t2\n",
    "latin.tsv": TABLE.encode() + "caf\xe9".encode("latin-1") + b"\tb\t1\tc\t0\ten\t9\n",
    "short.tsv": TABLE.encode() + b"one cell\n",
    "cut.tsv.gz": gzip.compress(TABLE.encode())[:80],
    "plain.tsv.gz": TABLE.encode(),
    "table.csv": b"text,label\na,b\n",
    "broken.jsonl": b'{"text": "a"',
    "half.jsonl": json.dumps(dict.fromkeys(HEAD, "\ud800")).encode(),
    "nested.jsonl": json.dumps({name: ["a"] for name in HEAD}).encode(),
    "broken.parquet": b"PAR1",
}


@pytest.mark.parametrize("task", TASKS)
def test_malformed_tables_are_errors_that_name_the_file(task: str, toy_encoder: Path, tmp_path: Path) -> None:
    for name, data in MALFORMED.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
        command = ["eval", *TASKS[task](str(tmp_path / name)), "--encoder", str(toy_encoder), "--json", str(tmp_path / "out" / "f.json")]
        result = miner(*command)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), (name, result.output)
        assert name in result.stderr
        assert not (tmp_path / "out").exists()


def write(folder: Path, kind: str) -> str:
    path = folder / f"table.{kind}"
    if kind == "parquet":
        columns = zip(*ROWS, strict=True)
        pq.write_table(pa.table({name: pa.array(column) for name, column in zip(HEAD, columns, strict=True)}), path)
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(dict(zip(HEAD, row, strict=True))) + "\n" for row in ROWS))
    else:
        ends = "\r\n" if kind == "crlf.tsv" else "\n"
        data = ("\ufeff" + TABLE + "\n\n").replace("\n", ends).encode()  # as editors write it
        path.write_bytes(gzip.compress(data) if kind.endswith(".gz") else data)
    return str(path)


@pytest.mark.parametrize("task", ["sts", "clustering", "classification"])
def test_every_format_gives_the_same_figures(task: str, toy_encoder: Path, tmp_path: Path) -> None:
    """In JSONL and Parquet, numbers are not strings."""
    by_format: list[dict[str, Any]] = []
    for kind in ("tsv", "crlf.tsv", "tsv.gz", "jsonl", "parquet"):
        figures = tmp_path / f"{kind}.json"
        output_of("eval", *TASKS[task](write(tmp_path, kind)), "--encoder", toy_encoder, "--json", figures)
        by_format.append(json.loads(figures.read_text()))
    assert all(of_format == by_format[0] for of_format in by_format)


@pytest.mark.parametrize("task", TASKS)
def test_figures_have_what_their_chart_shows(task: str, toy_encoder: Path, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    output_of("eval", *TASKS[task](write(tmp_path, "tsv")), "--encoder", toy_encoder, "--json", path)
    figures = json.loads(path.read_text())
    assert figures["task"] == task
    chart = find_chart(task)
    if isinstance(chart, BarChart):
        assert groups(chart, figures)
    else:
        assert figures.keys() >= {keys[0] for keys in chart.values.values()}


def test_columns_are_named_or_numbered(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("x\ty\n1\ta b\n\n2\tc\n")
    assert load_columns(str(tmp_path / "a.tsv"), "y", None, "x", "y") == [["a b", "c"], ["all", "all"], ["1", "2"], ["a b", "c"]]
    assert load_columns(str(tmp_path / "a.tsv"), "2") == [["y", "a b", "c"]]


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize("task", ["retrieval", "sts"])
def test_vectors_with_nan_or_infinity_are_an_error(task: str, number: float, toy_encoder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(toy_encoder))
    assert isinstance(encoder, static.StaticEncoder)
    vectors = encoder.vectors.copy()
    vectors[encoder.pieces.piece_to_id("▁two")] = number
    static.save(tmp_path / "broken", vectors, (toy_encoder / "sentencepiece.model").read_bytes())
    command = ["eval", *TASKS[task](write(tmp_path, "tsv")), "--encoder", str(tmp_path / "broken")]
    assert "NaN or infinite" in error_of(*command)
