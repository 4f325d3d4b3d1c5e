"""Public datasets as files of evaluation tasks: the same results as from tables of the same rows."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import xxhash
from command import error_of, output_of
from public_data import write_release

from miner.config.datasets import DatasetFiles
from miner.encoders import Encoder, load_encoder
from miner.errors import ConfigError, DataError
from miner.evaluation import suite
from miner.evaluation.alignment import AlignmentTask
from miner.evaluation.inputs import read_aligned
from miner.evaluation.retrieval import RetrievalTask
from miner.evaluation.suite import SuiteConfig
from miner.evaluation.tatoeba import TatoebaTask
from miner.research.datasets.columns import read_texts
from miner.research.tasks.language_map import MapTask
from miner.research.tasks.probe import ClassificationTask, read_rows
from miner.research.tasks.sts import StsTask

PAIRS = [("one two", "un deux"), ("three", "trois"), ("four five", "quatre cinq")]
FLORES: dict[str, str | bytes] = {
    "flores200_dataset/dev/eng_Latn.dev": "".join(f"{english}\n" for english, _ in PAIRS),
    "flores200_dataset/dev/fra_Latn.dev": "".join(f"{french}\n" for _, french in PAIRS),
}


@pytest.fixture
def encoder(toy_encoder: Path) -> Encoder:
    return load_encoder(str(toy_encoder))


def test_retrieval_reads_two_columns_of_one_dataset(encoder: Encoder, tmp_path: Path) -> None:
    write_release(
        tmp_path, {**FLORES, "en.txt": FLORES["flores200_dataset/dev/eng_Latn.dev"], "fr.txt": FLORES["flores200_dataset/dev/fra_Latn.dev"]}
    )
    source = {"dataset": "flores-200", "path": str(tmp_path), "languages": ["en", "fr"], "split": "dev"}
    task = RetrievalTask.check(source=source, source_column="en", target_column="fr")
    assert read_aligned(task) == ([english for english, _ in PAIRS], [french for _, french in PAIRS])
    plain = RetrievalTask(source=str(tmp_path / "en.txt"), target=str(tmp_path / "fr.txt"))
    assert task.evaluate(encoder).figures == plain.evaluate(encoder).figures


def test_a_row_that_is_dropped_is_dropped_on_both_sides(tmp_path: Path) -> None:
    write_release(tmp_path, {"Books.en-fr.en": "one\n\nthree\n", "Books.en-fr.fr": "un\ndeux\ntrois\n"})
    task = RetrievalTask.check(source={"dataset": "opus-moses", "path": str(tmp_path)})
    assert read_aligned(task) == (["one", "three"], ["un", "trois"])


def test_source_and_target_must_be_of_one_dataset() -> None:
    source = {"dataset": "flores-200", "path": "x"}
    for target in ("fr.txt", {**source, "path": "y"}):
        with pytest.raises(ConfigError, match="source and target must be columns of one dataset; leave target out"):
            RetrievalTask.check(source=source, target=target)


def test_sts_reads_a_dataset_by_track(encoder: Encoder, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "STS2017-extended/STS.fr-en.txt": "un deux\tone two\t5\ntrois\tone\t0\nquatre\tfour five\t3\n",
        "STS2017-extended/STS.en-en.txt": "one\tone\t5\nthree\tone\t0\n",
        "table.tsv": "sentence1\tsentence2\tscore\ttrack\n"
        "one\tone\t5\ten-en\nthree\tone\t0\ten-en\nun deux\tone two\t5\tfr-en\ntrois\tone\t0\tfr-en\nquatre\tfour five\t3\tfr-en\n",
    }
    write_release(tmp_path, files)
    data = {"dataset": "sts17", "path": str(tmp_path / "STS2017-extended")}
    task = StsTask.check(data=data)  # by track without being asked
    plain = StsTask(data=str(tmp_path / "table.tsv"), track_columns=("track",))
    assert task.evaluate(encoder).figures == plain.evaluate(encoder).figures


def test_alignment_and_map_read_pairs_of_one_language(encoder: Encoder, tmp_path: Path) -> None:
    pairs = [("one two", "two one", 4.6), ("three", "four five", 1.0), ("seven", "nine", 0.5), ("one", "one five", 4.2)]
    lines = [f"news\tfile\t2012\t{row:04}\t{score}\t{first}\t{second}\n" for row, (first, second, score) in enumerate(pairs)]
    rows = [
        {"guid": "dev", "source": "x", "sentence1": first, "sentence2": second, "labels": {"label": score}}
        for first, second, score in pairs
    ]
    write_release(
        tmp_path,
        {
            "sts-dev.csv": "".join(lines),
            "klue-sts-v1.1_dev.json": json.dumps(rows),
            "table.tsv": "sentence1\tsentence2\tscore\n" + "".join(f"{first}\t{second}\t{score}\n" for first, second, score in pairs),
        },
    )
    plain = AlignmentTask(data=str(tmp_path / "table.tsv")).evaluate(encoder).figures
    task = AlignmentTask.check(data={"dataset": "stsb", "path": str(tmp_path), "split": "dev"})
    assert task.evaluate(encoder).figures == plain
    assert plain["n"] == 2
    columns = {"text_column": "sentence1", "pair_column": "sentence2"}
    klue = MapTask.check(data={"dataset": "klue-sts", "path": str(tmp_path), "split": "dev"}, **columns)
    assert klue.evaluate(encoder).figures == MapTask(data=str(tmp_path / "table.tsv"), **columns).evaluate(encoder).figures


def test_alignment_reads_two_columns_of_one_dataset(encoder: Encoder, tmp_path: Path) -> None:
    write_release(tmp_path, FLORES)
    source = {"dataset": "flores-200", "path": str(tmp_path), "languages": ["en", "fr"], "split": "dev"}
    figures = AlignmentTask.check(source=source, source_column="en", target_column="fr").evaluate(encoder).figures
    assert (figures["n"], figures["alignment"]) == (3, pytest.approx(0, abs=1e-12))


@pytest.mark.parametrize("copy", ["laser", "xtreme"])
def test_tatoeba_reads_either_release(copy: str, encoder: Encoder, tmp_path: Path) -> None:
    pairs = "".join(f"{french}\t{english}\n" for english, french in PAIRS)
    releases: dict[str, dict[str, str | bytes]] = {
        "laser": {
            "tatoeba.fra-eng.fra": FLORES["flores200_dataset/dev/fra_Latn.dev"],
            "tatoeba.fra-eng.eng": FLORES["flores200_dataset/dev/eng_Latn.dev"],
        },
        "xtreme": {
            "fr-en.fr": FLORES["flores200_dataset/dev/fra_Latn.dev"],
            "fr-en.en": "four five\none two\nthree\n",
            "test-fr.tsv": "1\n2\n0\n",
        },
    }
    write_release(tmp_path / "release", releases[copy])
    write_release(tmp_path / "tables", {"tatoeba.fra-eng.tsv.gz": pairs})
    task = TatoebaTask.check(data={"dataset": "tatoeba", "path": str(tmp_path / "release")})
    assert task.evaluate(encoder).figures == TatoebaTask(data=str(tmp_path / "tables")).evaluate(encoder).figures


def test_classification_reads_splits_of_a_dataset(tmp_path: Path) -> None:
    def line(number: int, text: str, label: str) -> str:
        return f"{number}\tIN:X\t\t{text}\t{label}\ten_XX\t[]\t{{}}\n"

    write_release(
        tmp_path,
        {"en/train.txt": line(1, "wake me", "alarm") + line(2, "rain", "weather"), "en/test.txt": line(3, "sun", "weather")},
    )
    data = {"dataset": "mtop", "path": str(tmp_path)}
    task = ClassificationTask.check(train={**data, "split": "train"}, test={**data, "split": "test"}, lang_column="lang")
    train, test = read_rows(task, "text")
    assert (train.texts, train.labels, train.langs) == ([["wake me", "rain"]], ["alarm", "weather"], ["en", "en"])
    assert (test.texts, test.labels) == ([["sun"]], ["weather"])


def test_a_suite_checks_datasets_before_it_encodes(toy_encoder: Path, tmp_path: Path) -> None:
    write_release(tmp_path, FLORES)
    source = {"dataset": "flores-200", "path": "flores200_dataset", "languages": ["en", "fr"], "split": "dev"}
    task = {"task": "retrieval", "source": source, "source_column": "en", "target_column": "fr"}
    config = SuiteConfig.check(data=str(tmp_path), tasks=[task])
    result = suite.run({"toy": lambda: load_encoder(str(toy_encoder))}, config)
    assert result.figures["encoders"]["toy"]["retrieval"]["accuracy"]["cosine"]["mean"] == 1
    wrong = SuiteConfig.check(data=str(tmp_path), tasks=[{**task, "source": {**source, "languages": ["en", "de"]}}])

    def never() -> Encoder:
        raise AssertionError("nothing is loaded")

    with pytest.raises(DataError, match="no language 'de'; there are eng_Latn, fra_Latn"):
        suite.run({"toy": never}, wrong)


def test_the_loop_excludes_the_texts_of_a_dataset(tmp_path: Path) -> None:
    write_release(tmp_path, FLORES)
    files = DatasetFiles(dataset="flores-200", path=str(tmp_path), languages=("fr",), split="dev")
    assert list(read_texts(files)) == [french for _, french in PAIRS]


def run_task(name: str, encoder: Path, output: Path, *options: object) -> dict[str, Any]:
    """Run a command of `miner eval`; return its figures."""
    output_of("eval", name, *options, "--encoder", encoder, "--json", output)
    return json.loads(output.read_text())


def test_commands_take_datasets_as_suites_do(toy_encoder: Path, tmp_path: Path) -> None:
    write_release(tmp_path, {**FLORES, "STS2017-extended/STS.fr-en.txt": "un deux\tone two\t5\ntrois\tone\t0\nquatre\tfour five\t3\n"})
    english, french = (tmp_path / "flores200_dataset" / "dev" / f"{code}.dev" for code in ("eng_Latn", "fra_Latn"))
    for lang, path in (("en", english), ("fr", french)):
        (tmp_path / f"{lang}.txt").write_bytes(path.read_bytes())
    aligned = f"{{dataset: flores-200, path: {tmp_path}, languages: [en, fr], split: dev}}"
    columns = ["--source-column", "en", "--target-column", "fr"]
    for task in ("retrieval", "alignment"):
        plain = run_task(task, toy_encoder, tmp_path / "plain.json", tmp_path / "en.txt", tmp_path / "fr.txt")
        assert run_task(task, toy_encoder, tmp_path / "f.json", aligned, *columns) == plain
    sts = run_task("sts", toy_encoder, tmp_path / "f.json", "--data", f"{{dataset: sts17, path: {tmp_path / 'STS2017-extended'}}}")
    assert sts["all"]["spearman"] == pytest.approx(1.0)


def test_tatoeba_reads_a_release_by_its_path(toy_encoder: Path, tmp_path: Path) -> None:
    write_release(
        tmp_path / "v1",
        {
            "README.md": "Tatoeba",
            "tatoeba.fra-eng.fra": FLORES["flores200_dataset/dev/fra_Latn.dev"],
            "tatoeba.fra-eng.eng": FLORES["flores200_dataset/dev/eng_Latn.dev"],
        },
    )
    figures = run_task("tatoeba", toy_encoder, tmp_path / "f.json", "--data", tmp_path / "v1")
    assert figures["languages"]["fra"] == {"n": 3, "forward": 1.0, "backward": 1.0, "mean": 1.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sts", "--data", "{dataset: sts17"), "{dataset: sts17: not a public dataset; write it as '{dataset: sts17, path: STS2017}'"),
        (("sts", "--data", "{dataset: sts17}"), "--data path: missing, and required"),
        (("sts", "--data", "{dataset: sts71, path: x}"), "unknown dataset 'sts71'; one of "),
        (("sts", "--data", "{dataset: sts17, path: nowhere}"), "nowhere: no such file or folder"),
        (("retrieval", "only.txt"), "give TARGET too, or one file or public dataset with --source-column and --target-column"),
    ],
)
def test_wrong_datasets_are_one_line(toy_encoder: Path, arguments: tuple[str, ...], message: str) -> None:
    assert error_of("eval", *arguments, "--encoder", toy_encoder).startswith(message)


def test_results_name_the_checksum_of_an_archive(toy_encoder: Path, tmp_path: Path) -> None:
    write_release(tmp_path, {"STS2017-extended/STS.en-en.txt": "one\tone\t5\nthree\tone\t0\nfour five\tfour\t3\n"})
    archive = Path(shutil.make_archive(str(tmp_path / "STS2017-extended"), "zip", tmp_path, "STS2017-extended"))
    figures = run_task("sts", toy_encoder, tmp_path / "f.json", "--data", f"{{dataset: sts17, path: {archive}}}")
    assert figures["checksums"] == {str(archive): xxhash.xxh3_128_hexdigest(archive.read_bytes())}
