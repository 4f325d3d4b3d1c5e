"""`miner reproduce` on a small table: its figures are those of `miner train` and `miner eval`, and what is finished is kept."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import tiny
import yaml
from command import error_of, output_of

from miner.io import records
from miner.training.steps import checkpoints

pytestmark = pytest.mark.usefixtures("one_thread")

MODEL = "org/tiny-model"
FILES = {"files": ["data/pairs.tsv"], "columns": {"source": "en", "target": "de"}}
RECIPE = {
    "encoder": {"kind": "transformer", "model": MODEL, "pooling": "mean"},
    "data": [{"strategy": "parallel", **FILES}],
    "objective": [{"loss": "info_nce"}],
    "training": {"steps": 12, "batch_size": 32, "lr": 2e-3},
}
SIDES = {"source": "test.tsv", "target": "test.tsv", "source_column": "de", "target_column": "en"}
SUITE = {"tasks": [{"task": "retrieval", **SIDES}, {"task": "sts", "name": "STS", "data": "sts.tsv"}]}
ACCURACY = {"tasks": ["retrieval"], "figure": ["accuracy", "cosine", "mean"]}
TABLES: dict[str, Any] = {
    "paper": "A paper",
    "runs": {
        "first": {"recipe": "paper/recipe.yaml"},
        "second": {"recipe": "paper/recipe.yaml", "start": "paper/first", "changes": ["training.steps=4"]},
        "sizes": {"recipe": "paper/recipe.yaml", "grid": {"size": {"16": ["training.batch_size=16"], "32": []}}},
        "model": {"model": MODEL, "pooling": "layer:2"},
    },
    "tables": {
        "small": {
            "title": "A table",
            "suite": "paper/eval.yaml",
            "seeds": 2,
            "columns": {"accuracy": ACCURACY, "STS": {"tasks": ["STS"], "figure": ["mean", "spearman"], "note": "correlation"}},
            "rows": {
                "first": {"published": {"accuracy": 91.25}},
                "second": {"seeds": 1, "published": {"accuracy": 90}},
                "model": {"note": "without training"},
                "other": {"quoted": "a system of another paper", "published": {"STS": 70}},
            },
        },
        "grid": {"title": "A grid", "suite": "paper/eval.yaml", "columns": {"accuracy": ACCURACY}, "rows": {"sizes": {}}},
    },
}


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """A folder with configs, models and data; the data of the task STS is missing."""
    (tmp_path / "configs" / "paper").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for name, values in (("recipe", RECIPE), ("eval", SUITE), ("tables", TABLES)):
        (tmp_path / "configs" / "paper" / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    tiny.save_transformer(tmp_path / "models" / "tiny-model")
    tiny.write_pairs(tmp_path / "data" / "pairs.tsv")
    tiny.write_pairs(tmp_path / "data" / "test.tsv", rows=200, seed=9)
    return tmp_path


def words(paper: Path, table: str, *options: object, output: str = "out") -> list[object]:
    folders = ["--configs", paper / "configs", "--data", paper / "data", "--models", paper / "models", "--output", paper / output]
    return ["reproduce", table, *folders, *options]


def change_tables(folder: Path, **values: Any) -> None:
    """Replace settings at the top of the table file."""
    path = folder / "configs" / "paper" / "tables.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **values}, sort_keys=False))


def train_and_evaluate(paper: Path, name: str, model: Path, *changes: str) -> float:
    """Return the accuracy in percent by `miner train` and `miner eval`."""
    settings = [f"encoder.model={model}", f"data.0.files=[{paper / 'data' / 'pairs.tsv'}]", *changes]
    recipe = paper / "configs" / "paper" / "recipe.yaml"
    output_of("train", recipe, "--output", paper / name, *(word for setting in settings for word in ("--set", setting)))
    return evaluate(paper, paper / name / "encoder")


def evaluate(paper: Path, encoder: Path, *options: str) -> float:
    test = paper / "data" / "test.tsv"
    columns = ["--source-column", "de", "--target-column", "en"]
    output_of("eval", "retrieval", test, test, *columns, "--encoder", encoder, "--json", paper / "figures.json", *options)
    return 100 * float(json.loads((paper / "figures.json").read_text())["accuracy"]["cosine"]["mean"])


@pytest.mark.slow
def test_measured_figures_are_those_of_train_and_eval(paper: Path) -> None:
    printed = output_of(*words(paper, "small", "--json", paper / "small.json"))
    model = paper / "models" / "tiny-model"
    first = [train_and_evaluate(paper, f"first-{seed}", model, f"training.seed={seed}") for seed in (0, 1)]
    start = paper / "first-0" / "encoder"
    second = [train_and_evaluate(paper, "second-0", start, "training.seed=0", "training.steps=4")]
    expected = {"first": first, "second": second, "model": [evaluate(paper, model, "--pooling", "layer:2")], "other": []}
    figures = json.loads((paper / "small.json").read_text())
    assert {row: cells["accuracy"]["measured"] for row, cells in figures["rows"].items()} == expected
    assert figures["rows"]["first"]["accuracy"] == {
        "published": 91.25,
        "measured": first,
        "setting": "paper",
        "mean": pytest.approx(mean(first)),
        "std": pytest.approx(stdev(first)),
    }
    assert first[0] != first[1]
    assert first[0] > expected["model"][0]
    missing = f"no data: {paper / 'data' / 'sts.tsv'}"
    assert figures["rows"]["other"]["STS"]["reason"] == "a system of another paper"
    assert figures["rows"]["first"]["STS"]["reason"] == missing
    lines = printed.splitlines()
    assert lines[0] == "A table"
    assert lines[2].split() == ["accuracy", "measured", "STS", "measured"]
    assert lines[3].split() == ["first", "91.25", f"{mean(first):.1f}", "±", f"{stdev(first):.1f}", "-", "not", "run"]
    assert lines[6].split() == ["other", "-", "not", "run", "70.0", "not", "run"]
    assert lines[8:] == [
        "other, not run: a system of another paper",
        f"STS, not run: {missing}",
        "STS: correlation",
        "model: without training",
    ]
    assert records.read(str(paper / "out" / "small.json"), dict) == {name: figures[name] for name in figures.keys() - {"written_by"}}
    row = f"| first | 91.25 | {mean(first):.1f} ± {stdev(first):.1f} | - | not run |"
    assert (paper / "out" / "small.md").read_text().splitlines()[4] == row


def test_figures_are_marked_where_the_setting_is_not_that_of_the_paper(paper: Path) -> None:
    """The settings of a row and of a column together: ours before unknown, unknown before the paper's."""
    columns = {"a": ACCURACY, "b": {**ACCURACY, "setting": "unknown"}}
    rows = {"model": {}, "untrained": {"run": "model", "setting": "ours"}}
    change_tables(paper, tables={"marked": {"title": "A table", "suite": "paper/eval.yaml", "columns": columns, "rows": rows}})
    lines = output_of(*words(paper, "marked", "--json", paper / "marked.json")).splitlines()
    figure = f"{evaluate(paper, paper / 'models' / 'tiny-model', '--pooling', 'layer:2'):.1f}"
    assert lines[3].split() == ["model", "-", figure, "-", f"{figure}?"]
    assert lines[4].split() == ["untrained", "-", f"{figure}*", "-", f"{figure}*"]
    assert lines[-2:] == [
        "* with a setting of ours in place of the paper's",
        "? with a setting of ours, since the paper's is not known here",
    ]
    cells = json.loads((paper / "marked.json").read_text())["rows"]
    assert [[cells[row][column]["setting"] for column in columns] for row in rows] == [["paper", "unknown"], ["ours", "ours"]]
    listed = output_of("reproduce", "marked", "--list", "--configs", paper / "configs").splitlines()
    assert listed[-2:] == ["  ours     settings of untrained", "  unknown  settings of b"]


def test_a_column_measures_the_encoder_that_its_held_out_data_chose(paper: Path) -> None:
    """The recipe keeps two encoders: the one of column a is that of the first step, since its scores are all equal."""
    same = tiny.write_tsv(paper / "data" / "same.tsv", ["en", "de"], [["one", "one"]])  # each encoder scores 1
    dev = {"metric": "retrieval", "columns": {"source": "en", "target": "de"}}
    evaluation = {**dev, "files": ["data/pairs.tsv"], "every": 1, "best_by": {"first": {**dev, "files": [f"data/{same.name}"]}}}
    run = {"recipe": "paper/recipe.yaml", "changes": [f"evaluation={json.dumps(evaluation)}"]}
    columns = {"a": {**ACCURACY, "best_by": "first"}}
    table = {"title": "A table", "suite": "paper/eval.yaml", "columns": columns, "rows": {"both": {}, "model": {}}}
    change_tables(paper, runs={**TABLES["runs"], "both": run}, tables={"chosen": table})
    output_of(*words(paper, "chosen"))
    rows = json.loads((paper / "out" / "chosen.json").read_text())["rows"]
    folder = paper / "out" / "paper" / "both" / "seed-0"
    assert rows["both"]["a"]["measured"] == [evaluate(paper, folder / "encoder-first")] != [evaluate(paper, folder / "encoder")]
    assert len(rows["model"]["a"]["measured"]) == 1  # a model that is evaluated as it is has one encoder


def files_below(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Return the files of the runs: when they were written, and their bytes."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def test_finished_runs_are_kept_and_new_tasks_are_added(paper: Path) -> None:
    select = ("--rows", "first", "--seeds", 1)
    output_of(*words(paper, "small", *select))
    before = files_below(paper / "out" / "paper")
    (paper / "data" / "pairs.tsv").rename(paper / "data" / "removed.tsv")  # a finished run needs no training data
    output_of(*words(paper, "small", *select))
    assert files_below(paper / "out" / "paper") == before
    (paper / "data" / "sts.tsv").write_text("sentence1\tsentence2\tscore\none\teins\t5\none two\tdrei\t1\nnine\tzwei vier\t0\n")
    printed = output_of(*words(paper, "small", *select))
    after = files_below(paper / "out" / "paper")
    changed = {path.name for path in after if after[path] != before[path]}
    assert (changed, after.keys() - before.keys()) == ({"paper-eval.json"}, set())
    assert printed.splitlines()[3].split()[-1] != "run"


def test_rows_of_earlier_calls_stay_in_the_table(paper: Path) -> None:
    first = output_of(*words(paper, "small", "--rows", "fir*", "--seeds", 1)).splitlines()
    assert first[4].split() == ["second", "90.0", "not", "run", "-", "not", "run"]
    assert "second, not run: not selected" in first
    second = output_of(*words(paper, "small", "--rows", "second", "--seeds", 2)).splitlines()
    assert second[3].split() == first[3].split()
    assert "first, accuracy: 1 of 2 seeds" in second
    other_settings = output_of(*words(paper, "small", "--rows", "model", "--set", "training.lr=1e-4")).splitlines()
    assert other_settings[3].split() == ["first", "91.25", "not", "run", "-", "not", "run"]
    assert "not as published: training.lr=1e-4" in other_settings


def test_the_commands_of_a_dry_run_train_what_is_then_evaluated(paper: Path) -> None:
    lines = output_of(*words(paper, "small", "--rows", "second", "--seeds", 1, "--dry-run")).splitlines()
    assert [line for line in lines if not line.startswith("  miner train ")] == [
        "second:",
        "other: a system of another paper",
        "tasks:",
        "  retrieval",
        f"  STS, missing: {paper / 'data' / 'sts.tsv'}",
    ]
    assert not (paper / "out").exists()
    for line in lines[1:3]:
        output_of(*shlex.split(line)[1:])
    weights = paper / "out" / "paper" / "second" / "seed-0" / "encoder" / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert "±" not in output_of(*words(paper, "small", "--rows", "second", "--seeds", 1))
    assert weights.stat().st_mtime_ns == written


def test_a_grid_has_a_row_for_each_combination(paper: Path) -> None:
    output_of(*words(paper, "grid", "--set", "training.steps=1"))
    sizes = {
        path.parts[-3]: json.loads(path.read_text())["training"]["batch_size"] for path in (paper / "out" / "paper").glob("*/*/train.json")
    }
    assert sizes == {"sizes-16": 16, "sizes-32": 32}
    assert json.loads((paper / "out" / "grid.json").read_text())["order"] == ["sizes-16", "sizes-32"]


def test_missing_models_and_data_are_marked(paper: Path) -> None:
    tables = {**TABLES, "runs": {**TABLES["runs"], "second": {"recipe": "paper/recipe.yaml", "changes": ["encoder.model=./nowhere"]}}}
    tables["runs"]["first"] = {"recipe": "paper/recipe.yaml", "changes": ["data.0.files.0=data/more-*.tsv"]}
    change_tables(paper, **tables)
    lines = output_of(*words(paper, "small", "--seeds", 1)).splitlines()
    assert f"first, not run: no data: {paper / 'data' / 'more-*.tsv'}" in lines
    fault = "./nowhere: no such encoder folder; give `builtin`, a folder, a URI or a hub id such as sentence-transformers/LaBSE"
    assert f"second, not run: no model: {fault}" in lines
    assert lines[5].split()[2] != "not"  # the model that is evaluated as it is


def test_the_list_names_data_and_models(paper: Path) -> None:
    printed = output_of("reproduce", "--configs", paper / "configs", "--json", paper / "list.json")
    figures = json.loads((paper / "list.json").read_text())
    assert figures.keys() == {"small", "grid", "written_by"}
    assert figures["small"]["rows"] == ["first", "second", "model", "other"]
    assert (figures["small"]["data"], figures["small"]["models"]) == ({"pairs.tsv": [], "sts.tsv": [], "test.tsv": []}, [MODEL])
    assert printed.splitlines()[:7] == [
        "small: A table",
        "  paper    A paper",
        "  columns  accuracy, STS",
        "  rows     first, second, model, other, 2 seeds",
        "  data     pairs.tsv, sts.tsv, test.tsv",
        f"  models   {MODEL}",
        "",
    ]
    assert output_of("reproduce", "grid", "--list", "--configs", paper / "configs").splitlines()[3] == "  rows     sizes-16, sizes-32"


def test_wrong_choices_are_errors_of_one_line(paper: Path) -> None:
    assert error_of(*words(paper, "large")) == "unknown table 'large'; one of small, grid"
    assert error_of(*words(paper, "small", "--rows", "third")) == "--rows third: no such row; one of first, second, model, other"
    reason = f"no data: {paper / 'data' / 'pairs.tsv'}"
    (paper / "data" / "pairs.tsv").unlink()
    assert error_of(*words(paper, "grid")) == f"grid: no row can be run; sizes-16: {reason}; see --dry-run"
    missing = error_of("reproduce", "small", "--configs", paper / "configs", "--data", paper / "nowhere")
    assert missing == f"--data {paper / 'nowhere'}: no such folder; name the one with the public datasets as downloaded"
    assert error_of("reproduce", "--configs", paper / "data") == (
        f"{paper / 'data'}: no tables.yaml in its folders; give a folder of recipes by --configs"
    )
    unknown = error_of(*words(paper, "small", "--set", "training.speed=1"))
    assert unknown.endswith("recipe.yaml: unknown setting 'training.speed'; did you mean 'seed'?")


def test_a_wrong_layout_is_an_error_before_the_first_row_is_trained(paper: Path) -> None:
    (paper / "data" / "stsb").mkdir()
    (paper / "data" / "stsb" / "sts-dev.csv").write_text("one\ttwo\t5\n")
    evaluation = {"metric": "sts", "files": {"dataset": "stsb", "path": "data/stsb", "split": "dev"}}
    evaluation["columns"] = {"first": "sentence1", "second": "sentence2", "score": "score"}
    second = {"recipe": "paper/recipe.yaml", "changes": [f"evaluation={json.dumps(evaluation)}"]}
    change_tables(paper, runs={**TABLES["runs"], "second": second})
    error = error_of(*words(paper, "small"))
    assert error.startswith(f"{paper / 'data' / 'stsb' / 'sts-dev.csv'}:1: expected 7 or 9 tab-separated cells, found 3 cells")
    assert not (paper / "out" / "paper").exists()


def test_a_model_that_does_not_fit_is_an_error_before_the_first_row_is_trained(paper: Path) -> None:
    model = paper / "models" / "tiny-model"
    cases = {
        "second": (
            {"recipe": "paper/recipe.yaml", "changes": ["encoder.pooling=layer:9"]},
            f"encoder.pooling layer:9: {model} has layers 1 to 3",
        ),
        "model": ({"model": MODEL}, f"{model}: the folder specifies no pooling"),
    }
    for name, (run, message) in cases.items():
        change_tables(paper, runs={**TABLES["runs"], name: run})
        assert error_of(*words(paper, "small")).startswith(message)
        assert not (paper / "out" / "paper").exists()


SMALL, RUNS = TABLES["tables"]["small"], TABLES["runs"]
FAULTS = [
    ({"runs": {"first": {}}}, "runs.first: give either a recipe to train or a model to evaluate"),
    ({"runs": {"first": {"model": "x", "start": "paper/model"}}}, "runs.first: changes, start and grid belong to a recipe; remove them"),
    ({"runs": {**RUNS, "first": {"recipe": "paper/none.yaml"}}}, "run 'paper/first': no recipe paper/none.yaml"),
    (
        {"runs": {**RUNS, "first": {"recipe": "paper/recipe.yaml", "start": "paper/model"}}},
        "run 'paper/first' starts from 'paper/model', which is no run with a recipe; write PAPER/RUN",
    ),
    (
        {"runs": {**RUNS, "first": {"recipe": "paper/recipe.yaml", "start": "paper/second"}}},
        "run 'paper/first' starts from itself, by way of 'paper/second'; remove one start",
    ),
    (
        {"tables": {"small": {**SMALL, "rows": {"third": {}}}}},
        "tables.small.rows.third: no run 'third'; add it to runs, or say in `quoted` why there is none",
    ),
    (
        {"tables": {"small": {**SMALL, "rows": {"first": {"published": {"BUCC": 1}}}}}},
        "tables.small.rows.first: no column 'BUCC'; one of accuracy, STS",
    ),
    (
        {"tables": {"small": {**SMALL, "columns": {"a": {"tasks": ["BUCC"], "figure": ["x"]}}}}},
        "tables.small.columns.a: no task 'BUCC' in paper/eval.yaml; one of retrieval, STS",
    ),
    (
        {"tables": {"small": {**SMALL, "columns": {"a": {"tasks": ["STS"]}}}}},
        "tables.small.columns.a: give tasks and figure, or a note that says why there is no task",
    ),
    (
        {"tables": {"small": {**SMALL, "columns": {"a": ACCURACY, "b": {**ACCURACY, "best_by": "x"}}, "rows": {"first": {}}}}},
        "tables.small.columns.b: another column measures 'retrieval' with another best_by; give both the same",
    ),
    ({"tables": {"small": {**SMALL, "seed": 5}}}, "unknown setting 'tables.small.seed'; did you mean 'seeds'?"),
]


@pytest.mark.parametrize(("values", "message"), FAULTS, ids=[message for _, message in FAULTS])
def test_a_bad_table_is_an_error_of_one_line(paper: Path, values: dict[str, Any], message: str) -> None:
    change_tables(paper, **values)
    assert error_of(*words(paper, "small")) == f"{paper / 'configs' / 'paper' / 'tables.yaml'}: {message}"


@pytest.mark.slow
def test_a_killed_table_resumes_and_ends_as_one_that_was_not(paper: Path) -> None:
    arguments = [str(word) for word in words(paper, "small", "--rows", "second", "--seeds", 1, "--set", "training.checkpoint_every=1")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-m", "miner.cli.main", *arguments], stderr=subprocess.DEVNULL, env=environment)
    run = paper / "out" / "paper" / "second" / "seed-0"
    while process.poll() is None and checkpoints.latest(run / "checkpoints") is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run / "result.json").exists()
    start = (paper / "out" / "paper" / "first" / "seed-0" / "result.json").stat().st_mtime_ns
    stdout = output_of(*arguments)
    assert (paper / "out" / "paper" / "first" / "seed-0" / "result.json").stat().st_mtime_ns == start
    (paper / "out").rename(paper / "killed")
    assert output_of(*arguments) == stdout
    weights = [paper / name / "paper" / "second" / "seed-0" / "encoder" / "model.safetensors" for name in ("killed", "out")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
