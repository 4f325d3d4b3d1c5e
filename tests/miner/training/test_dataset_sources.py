"""Public datasets as sources of training data: the rows that are read, the key of the cache, and errors."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from command import error_of, output_of
from public_data import write_release

from miner.config.datasets import DatasetFiles
from miner.errors import ConfigError, DataError
from miner.research.datasets.columns import read_columns
from miner.training.data import datasets
from miner.training.data.datasets import SourceSettings
from miner.training.data.groups import MultiPositiveSettings
from miner.training.data.nli import CrossLingualNliSettings, NliSettings
from miner.training.data.strategies import MinedSettings, ParallelSettings, UnsupervisedSettings

XNLI_MT: dict[str, str | bytes] = {
    "multinli.train.de.tsv": "premise\thypo\tlabel\n"
    "Er kam spät .\tEr war müde .\tcontradictory\nEs regnet .\t\tneutral\nJa .\tNein .\tneutral\n",
    "multinli.train.fr.tsv": "premise\thypo\tlabel\n"
    "Il vint tard .\tIl dort .\tcontradictory\nIl pleut .\tOui .\tneutral\nOui .\tNon .\tneutral\n",
}
NLI_COLUMNS = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}


def read(settings: SourceSettings, folder: Path) -> tuple[list[str], dict[str, list[str]]]:
    """The texts of a source, row by row, and its other columns."""
    datasets.check_source(settings)
    datasets.read_source(settings, folder / "work")
    dataset = datasets.open_dataset(settings, folder / "work")
    texts = [text for chunk in dataset.texts.iter_chunks() for text in chunk]
    return texts, dataset.metadata.to_pydict()


def test_one_dataset_needs_no_list(tmp_path: Path) -> None:
    write_release(tmp_path, XNLI_MT)
    files = {"dataset": "xnli-mt", "path": str(tmp_path), "languages": ["de"]}
    settings = NliSettings.check(strategy="nli", files=files, columns=NLI_COLUMNS)
    assert settings.files == (DatasetFiles(dataset="xnli-mt", path=str(tmp_path), languages=("de",)),)
    assert read(settings, tmp_path) == (["Er kam spät.", "Er war müde.", "Ja.", "Nein."], {"label": ["contradiction", "neutral"]})


def test_datasets_and_files_are_one_source(tmp_path: Path) -> None:
    write_release(tmp_path, {**XNLI_MT, "more.tsv": "premise\thypothesis\tlabel\nOne.\tTwo.\tneutral\n"})
    files = [str(tmp_path / "more.tsv"), {"dataset": "xnli-mt", "path": str(tmp_path / "multinli.train.fr.tsv")}]
    texts, metadata = read(NliSettings.check(strategy="nli", files=files, columns=NLI_COLUMNS), tmp_path)
    assert texts[:4] == ["One.", "Two.", "Il vint tard.", "Il dort."]
    assert metadata == {"label": ["neutral", "contradiction", "neutral", "neutral"]}


def test_rows_of_all_languages_stay_parallel(tmp_path: Path) -> None:
    write_release(tmp_path, XNLI_MT)
    files = {"dataset": "xnli-mt", "path": str(tmp_path)}
    settings = CrossLingualNliSettings.check(strategy="cross_lingual_nli", files=files, columns={**NLI_COLUMNS, "lang": "lang"})
    texts, metadata = read(settings, tmp_path)
    assert texts == ["Er kam spät.", "Er war müde.", "Ja.", "Nein.", "Il vint tard.", "Il dort.", "Oui.", "Non."]
    assert metadata["lang"] == ["de", "de", "fr", "fr"]


def test_ids_are_groups_of_translations(tmp_path: Path) -> None:
    write_release(tmp_path, XNLI_MT)
    files = {"dataset": "xnli-mt", "path": str(tmp_path)}
    columns = {"group": "id", "lang": "lang", "text": "premise"}
    texts, metadata = read(MultiPositiveSettings.check(strategy="multi_positive", files=files, columns=columns), tmp_path)
    assert (texts, metadata["group"]) == (["Er kam spät.", "Ja.", "Il vint tard.", "Oui."], ["1", "3", "1", "3"])


def test_columns_of_aligned_text_are_languages(tmp_path: Path) -> None:
    write_release(tmp_path, {"dev/deu_Latn.dev": "Ja.\n\n", "dev/eng_Latn.dev": "Yes.\nNo.\n"})
    files = {"dataset": "flores-200", "path": str(tmp_path), "languages": ["de", "en"]}
    settings = ParallelSettings.check(strategy="parallel", files=files, columns={"source": "de", "target": "en"})
    assert read(settings, tmp_path)[0] == ["Ja.", "Yes."]


def test_without_columns_the_texts_of_a_dataset_are_read(tmp_path: Path) -> None:
    write_release(tmp_path, {"wiki1m_for_simcse.txt": "One.\n\nTwo.\n"})
    files = {"dataset": "wiki1m", "path": str(tmp_path)}
    assert read(UnsupervisedSettings.check(strategy="unsupervised", files=files), tmp_path)[0] == ["One.", "Two."]


def test_the_cache_key_follows_files_and_settings(tmp_path: Path) -> None:
    write_release(tmp_path, XNLI_MT)

    def key(**values: Any) -> str:
        files = {"dataset": "xnli-mt", "path": str(tmp_path), **values}
        return datasets.source_key(NliSettings.check(strategy="nli", files=files, columns=NLI_COLUMNS))

    german, french = key(languages=["de"]), key(languages=["fr"])
    assert german == key(languages=["de"]) != french
    (tmp_path / "multinli.train.fr.tsv").write_text("premise\thypo\tlabel\nA\tB\tneutral\n")
    assert (key(languages=["de"]) == german, key(languages=["fr"]) == french) == (True, False)


def test_a_column_that_a_dataset_lacks_is_named(tmp_path: Path) -> None:
    write_release(tmp_path, XNLI_MT)
    files = DatasetFiles(dataset="xnli-mt", path=str(tmp_path), languages=("de",))
    with pytest.raises(DataError) as error:
        next(read_columns(files, ["text"]))
    assert str(error.value) == f"xnli-mt in {tmp_path}: no column 'text' (premise, hypothesis, label, lang, id); name one of them"


def test_a_split_without_labels_is_an_error_where_labels_are_read(tmp_path: Path) -> None:
    write_release(tmp_path, {"test.json": '{"id": 0, "sentence": "新手机", "keywords": ""}\n'})
    files = DatasetFiles(dataset="tnews", path=str(tmp_path))
    assert list(read_columns(files, ["text"])) == [[["新手机"]]]
    with pytest.raises(DataError, match=r"^tnews in .*: no label in .*/test\.json; choose another split or column$"):
        next(read_columns(files, ["text", "label"]))


def test_errors_in_the_config_are_one_line() -> None:
    for files, message in (
        ({"dataset": "xnli-mt", "pat": "x"}, r"unknown setting 'files\.pat'"),
        ([], "files: .*at least 1 item"),
        (5, "files"),
    ):
        with pytest.raises(ConfigError, match=message):
            NliSettings.check(strategy="nli", files=files, columns=NLI_COLUMNS)
    with pytest.raises(ConfigError, match="mined pairs are output directories of `miner mine`"):
        MinedSettings.check(strategy="mined", files={"dataset": "muse", "path": "x"})


def test_miner_train_reads_a_dataset_and_validates_on_one(folder: Path) -> None:
    write_release(folder, {f"Books.de-en.{code}": "".join(f"{code} word{row}\n" for row in range(24)) for code in ("de", "en")})
    files = {"dataset": "opus-moses", "path": str(folder), "languages": ["de"]}
    columns = {"source": "source", "target": "target"}
    config = {
        "encoder": {"kind": "transformer", "model": str(folder / "model"), "max_tokens": 16},
        "data": [{"strategy": "parallel", "files": files, "columns": columns}],
        "objective": [{"loss": "info_nce"}],
        "training": {"steps": 2, "batch_size": 4, "device": "cpu"},
        "evaluation": {"files": files, "columns": columns, "every": 2},
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    output_of("train", folder / "train.yaml", "--output", folder / "out")
    assert (folder / "out" / "encoder").is_dir()
    config["data"] = [{"strategy": "parallel", "files": {**files, "dataset": "opus"}, "columns": columns}]
    (folder / "train.yaml").write_text(yaml.safe_dump(config))
    message = error_of("train", folder / "train.yaml", "--output", folder / "other")
    assert message.startswith("unknown dataset 'opus'; one of bucc")
