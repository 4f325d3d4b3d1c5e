"""MTEB runs our encoders, and its scores on the same files equal ours."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miner.encoders import load_encoder
from miner.evaluation.retrieval import RetrievalTask
from miner.research.tasks.probe import ClassificationTask
from miner.research.tasks.sts import StsTask

mteb = pytest.importorskip("mteb")

from datasets import Dataset, DatasetDict  # noqa: E402  # with mteb
from mteb.abstasks import AbsTask, AbsTaskBitextMining, AbsTaskClassification, AbsTaskSTS  # noqa: E402
from mteb.abstasks.task_metadata import TaskMetadata  # noqa: E402

from miner.research.tasks.mteb_adapter import MtebEncoder  # noqa: E402

EXAMPLES = Path(__file__).parents[4] / "examples"
TOLERANCE = 1e-4


def metadata(name: str, kind: str, score: str) -> TaskMetadata:
    dataset = {"path": "local", "revision": "local"}
    return TaskMetadata(
        dataset=dataset, name=name, description=name, type=kind, eval_langs=["eng-Latn"], main_score=score, eval_splits=["test"]
    )


class LocalBitext(AbsTaskBitextMining):
    metadata = metadata("LocalBitext", "BitextMining", "f1")

    def load_data(self, **_: Any) -> None:
        self.data_loaded = True


class LocalSts(AbsTaskSTS):
    metadata = metadata("LocalSts", "STS", "cosine_spearman")
    load_data = LocalBitext.load_data


class LocalClassification(AbsTaskClassification):
    metadata = metadata("LocalClassification", "Classification", "accuracy")
    load_data = LocalBitext.load_data


def run(task: AbsTask, columns: dict[str, list[Any]], **splits: dict[str, list[Any]]) -> dict[str, float]:
    task.dataset = DatasetDict({name: Dataset.from_dict(values) for name, values in {"test": columns, **splits}.items()})
    results = mteb.evaluate(
        MtebEncoder(load_encoder("builtin"), "test/builtin"), task, cache=None, co2_tracker=False, show_progress_bar=False
    )
    (result,) = results.task_results
    return result.scores["test"][0]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    """Return English sentences and their German translations."""
    english, german = ((EXAMPLES / name).read_text(encoding="utf-8").splitlines() for name in ("en.txt", "de.txt"))
    lines = [line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text(encoding="utf-8").splitlines()]
    return [(english[int(source) - 1], german[int(target) - 1]) for source, target in lines]


@pytest.mark.slow
def test_f1_of_bitext_mining_equals_mteb(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    source, target = ([pair[side] for pair in pairs] for side in (0, 1))
    theirs = run(LocalBitext(), {"sentence1": source, "sentence2": target})
    for name, lines in (("source", source), ("target", target)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    task = RetrievalTask(source=str(tmp_path / "source"), target=str(tmp_path / "target"))
    ours = task.evaluate(load_encoder("builtin")).figures
    assert ours["f1"]["cosine"]["forward"] == pytest.approx(theirs["f1"], abs=TOLERANCE)
    assert ours["accuracy"]["cosine"]["forward"] == pytest.approx(theirs["accuracy"], abs=TOLERANCE)
    assert 0.5 < ours["f1"]["cosine"]["forward"] < ours["accuracy"]["cosine"]["forward"] < 1


def test_sts_equals_mteb(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [(first, pairs[(row + shift) % len(pairs)][1], 5.0 * (not shift)) for row, (first, _) in enumerate(pairs) for shift in (0, 1)]
    rows = [(first, second, round(min(5, max(0, score + rng.normal())), 1)) for first, second, score in rows]
    firsts, seconds, scores = (list(column) for column in zip(*rows, strict=True))
    theirs = run(LocalSts(), {"sentence1": firsts, "sentence2": seconds, "score": scores})
    lines = ["sentence1\tsentence2\tscore", *("\t".join(map(str, row)) for row in rows)]
    (tmp_path / "sts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ours = StsTask(data=str(tmp_path / "sts.tsv")).evaluate(load_encoder("builtin")).figures["all"]
    assert ours["spearman"] == pytest.approx(theirs["cosine_spearman"], abs=TOLERANCE)
    assert ours["pearson"] == pytest.approx(theirs["cosine_pearson"], abs=TOLERANCE)
    assert ours["spearman"] > 0.5


def test_classification_from_samples_equals_mteb(pairs: list[tuple[str, str]], tmp_path: Path) -> None:
    """Ten experiments of eight texts per label: by language, labels that are a little harder than chance."""
    labels = [str(len(english) % 3) for english, _ in pairs]
    half = len(pairs) // 2
    lines, theirs = [["lang", "split", "label", "text"]], {}
    for side, lang in enumerate(("en", "de")):
        texts = [pair[side] for pair in pairs]
        splits = {
            name: {"text": texts[rows], "label": labels[rows]} for name, rows in (("train", slice(half)), ("test", slice(half, None)))
        }
        theirs[lang] = run(LocalClassification(), splits["test"], train=splits["train"])
        lines += [[lang, name, *row] for name, split in splits.items() for row in zip(split["label"], split["text"], strict=True)]
    table = tmp_path / "rows.tsv"
    table.write_text("".join("\t".join(cells) + "\n" for cells in lines), encoding="utf-8")
    columns = {"split_column": "split", "lang_column": "lang"}
    ours = ClassificationTask(train=str(table), test=str(table), samples_per_label=8, **columns).evaluate(load_encoder("builtin")).figures
    assert ours["trained_on"] == 2 * 3 * 8
    for lang, scores in theirs.items():
        assert ours["languages"][lang]["accuracy"] == pytest.approx(scores["accuracy"], abs=TOLERANCE)
        assert ours["languages"][lang]["macro_f1"] == pytest.approx(scores["f1"], abs=TOLERANCE)


def test_results_are_filed_under_the_fingerprint() -> None:
    encoder = load_encoder("builtin")
    meta = MtebEncoder(encoder, "test/builtin").mteb_model_meta
    assert (meta.name, meta.revision, meta.embed_dim) == ("test/builtin", encoder.fingerprint, encoder.dim)
