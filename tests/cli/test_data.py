"""`miner data`: what it lists, shows and writes."""

import gzip
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import error_of, miner, output_of
from public_data import write_release

from miner.research.datasets.registry import LAYOUTS

FILES: dict[str, str | bytes] = {
    "x-final/en/dev_2k.tsv": "id\tsentence1\tsentence2\tlabel\n1\tA b .\tB a .\t1\n2\tC d .\tD c .\t0\n",
    "x-final/de/dev_2k.tsv": 'id\tsentence1\tsentence2\tlabel\n1\tEin "A.\tA ein.\t1\n2\tNS\tD c.\t0\n',
}
SCORES: dict[str, str | bytes] = {"STS2017-extended/STS.en-de.txt": "A girl reads.\tEin Mädchen liest.\t4.50\n"}


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return write_release(tmp_path / "release", FILES)


def test_list_names_every_layout(tmp_path: Path) -> None:
    stdout = output_of("data", "list", "--json", tmp_path / "layouts.json")
    head, *lines = stdout.splitlines()
    assert head.split() == ["name", "kind", "what", "it", "is", "licence"]
    assert [line.split()[0] for line in lines] == sorted(LAYOUTS)
    assert next(line for line in lines if line.startswith("jsts")).split("  ")[-1].strip() == "CC BY-SA 4.0"
    layouts = json.loads((tmp_path / "layouts.json").read_text())
    assert layouts["muse"]["columns"] == ["source", "target", "source_lang", "target_lang"]
    assert layouts["muse"]["licence"] == "CC BY-NC 4.0"


def test_show_prints_files_rows_languages_and_drops(release: Path, tmp_path: Path) -> None:
    result = miner("data", "show", "paws-x", release, "--json", tmp_path / "figures.json")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].split() == ["files", "split", "languages", "rows", "kept", "dropped"]
    assert lines[1].split(maxsplit=5) == [f"{release}/x-final/de/dev_2k.tsv", "dev", "de", "2", "1", "1 dropped: cell is NS"]
    assert lines[2].split(maxsplit=5)[3:] == ["2", "1", "1 dropped: dropped in another language"]
    assert lines[4:] == [
        "columns: sentence1, sentence2, label, lang, id",
        "rows by language: de 1, en 1",
        "4 rows read, 2 kept; 1 dropped: cell is NS, 1 dropped: dropped in another language",
        "",
        "row 1",
        '  sentence1: Ein "A.',
        "  sentence2: A ein.",
        "  label: 1",
        "  lang: de",
        "  id: 1",
        "",
        "row 2",
        "  sentence1: A b .",
        "  sentence2: B a .",
        "  label: 1",
        "  lang: en",
        "  id: 1",
    ]
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {name: figures[name] for name in ("rows", "kept", "dropped", "languages")} == {
        "rows": 4,
        "kept": 2,
        "dropped": {"cell is NS": 1, "dropped in another language": 1},
        "languages": {"de": 1, "en": 1},
    }
    assert figures["files"][0] == {
        "files": [f"{release}/x-final/de/dev_2k.tsv"],
        "split": "dev",
        "languages": ["de"],
        "rows": 2,
        "kept": 1,
        "dropped": {"cell is NS": 1},
    }


def test_show_one_language(release: Path) -> None:
    result = miner("data", "show", "paws-x", release, "--language", "eng")
    assert "2 rows read, 2 kept; none dropped" in result.stdout


def test_convert_writes_tsv(release: Path, tmp_path: Path) -> None:
    output = tmp_path / "out" / "rows.tsv.gz"
    result = miner("data", "convert", "paws-x", release, "--output", output)
    assert result.stdout == (
        f"2 rows (sentence1, sentence2, label, lang, id) in {output}; 1 dropped: cell is NS, 1 dropped: dropped in another language\n"
    )
    assert gzip.decompress(output.read_bytes()).decode() == (
        'sentence1\tsentence2\tlabel\tlang\tid\nEin "A.\tA ein.\t1\tde\t1\nA b .\tB a .\t1\ten\t1\n'
    )
    before = output.read_bytes()
    miner("data", "convert", "paws-x", release, "--output", output)
    assert output.read_bytes() == before


def test_convert_writes_scores_as_numbers(tmp_path: Path) -> None:
    release = write_release(tmp_path, SCORES)
    assert miner("data", "convert", "sts17", release, "--output", tmp_path / "rows.jsonl").exit_code == 0
    row = {
        "sentence1": "A girl reads.",
        "sentence2": "Ein Mädchen liest.",
        "score": 4.5,
        "lang1": "en",
        "lang2": "de",
        "track": "en-de",
    }
    assert (tmp_path / "rows.jsonl").read_text(encoding="utf-8") == json.dumps(row, ensure_ascii=False) + "\n"
    assert miner("data", "convert", "sts17", release, "--output", tmp_path / "rows.parquet").exit_code == 0
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [row]


def test_convert_leaves_no_file_where_a_row_cannot_be_read(tmp_path: Path) -> None:
    release = write_release(tmp_path, {"wiki1m_for_simcse.txt": b"One.\n" * 500_000 + b"\xff\n"})
    output = tmp_path / "rows.tsv"
    assert error_of("data", "convert", "wiki1m", release, "--output", output) == (
        f"{release}/wiki1m_for_simcse.txt:500001: not UTF-8; download the file again, or convert it"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["wiki1m_for_simcse.txt"]


def test_convert_refuses_other_extensions(release: Path, tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.parquet.gz", "rows"):
        message = error_of("data", "convert", "paws-x", release, "--output", tmp_path / name)
        assert message.startswith(f"{tmp_path / name}: unknown kind of file; name one that ends in .tsv, .jsonl")


def test_convert_needs_a_split_where_there_are_several(tmp_path: Path) -> None:
    release = write_release(tmp_path, {"SICK_train.txt": "x\n", "SICK_trial.txt": "x\n"})
    assert error_of("data", "convert", "sick", release, "--output", tmp_path / "rows.tsv") == (
        f"{release}/SICK_trial.txt: sick has the splits dev, train here; choose one as split, or all"
    )


def test_unknown_dataset(tmp_path: Path) -> None:
    assert error_of("data", "show", "xnli2", tmp_path).startswith("unknown dataset 'xnli2'; one of bucc, bucc-sentences, cc-100")


@pytest.mark.parametrize("command", ["list", "show", "convert"])
def test_help_has_an_example(command: str) -> None:
    assert f"miner data {command}" in miner("data", command, "--help").stdout.partition("Example:")[2]


def test_every_layout_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \|", page, flags=re.MULTILINE) == list(LAYOUTS)
