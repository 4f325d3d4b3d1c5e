"""`--split`: documents become sentences with the line of their paragraph, in the stage's settings and in its counts."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from command import error_of, miner, output_of

from miner.errors import ConfigError
from miner.text.splitting import load_splitter, paragraph_share, split_texts

EXAMPLES = Path(__file__).parents[3] / "examples"
PARAGRAPHS = [
    "Dr. Smith lives in Washington, D.C. with a cat. She pays $4.50 a day! Does he?",
    "",
    "One sentence only",
    "Does he?  It ends here. ",
]
SENTENCES = [
    ("Does he?", 2, "news.txt", 1),
    ("Dr. Smith lives in Washington, D.C. with a cat.", 1, "news.txt", 1),
    ("It ends here.", 1, "news.txt", 4),
    ("One sentence only", 1, "news.txt", 3),
    ("She pays $4.50 a day!", 1, "news.txt", 1),
]
COUNTS = {"lines": 4, "kept": 6, "empty": 1, "invalid": 0, "too_long": 0, "few_letters": 0, "split": 3, "duplicate": 1}


@pytest.fixture
def news(tmp_path: Path) -> Path:
    path = tmp_path / "news.txt"
    path.write_text("".join(f"{line}\n" for line in PARAGRAPHS), encoding="utf-8")
    return path


def rows(folder: Path) -> list[tuple[str, int, str, int]]:
    """Return the sentences: text, count, file name, line."""
    tables = [pq.read_table(path) for path in sorted((folder / "sentences").glob("part-*.parquet"))]
    table = pa.concat_tables([table.set_column(3, "source", table["source"].cast(pa.string())) for table in tables])
    return sorted((row["text"], row["count"], Path(row["source"]).name, row["line"]) for row in table.to_pylist())


def counts(folder: Path) -> dict[str, int]:
    details: dict[str, dict[str, int]] = json.loads((folder / "sentences" / "manifest.json").read_text())["details"]
    return details["counts"]


@pytest.mark.parametrize("shards", [1, 3])
def test_sentences_have_the_lines_of_their_paragraphs(news: Path, toy_encoder: Path, tmp_path: Path, shards: int) -> None:
    words = ("embed", news, "--output", tmp_path / "out", "--encoder", toy_encoder, "--lang", "en", "--split", "--shards", shards)
    summary = output_of(*words)
    assert summary.startswith("4 lines, split into 7: 6 kept, 1 empty, 1 duplicate\n5 unique sentences")
    assert rows(tmp_path / "out") == SENTENCES
    assert counts(tmp_path / "out") == COUNTS
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("part-*")}
    output_of(*words)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("part-*")} == files


def test_another_setting_is_an_error(news: Path, toy_encoder: Path, tmp_path: Path) -> None:
    words = ["embed", news, "--output", tmp_path / "out", "--encoder", toy_encoder, "--lang", "en"]
    output_of(*words, "--split")
    assert "split" in error_of(*words)
    output_of(*words[:3], tmp_path / "whole", *words[4:])
    assert "split" in error_of(*words[:3], tmp_path / "whole", *words[4:], "--split")


def test_line_breaks_end_sentences_and_the_limit_is_that_of_a_sentence(toy_encoder: Path, tmp_path: Path) -> None:
    documents = [{"text": "A title\n\nThe first one. The second one."}, {"text": "Fourteen chars. This sentence is longer than that."}]
    (tmp_path / "pages.jsonl").write_text("".join(f"{json.dumps(document)}\n" for document in documents))
    options = ("--text-column", "text", "--lang", "en", "--split", "--max-chars", 15)
    output_of("embed", tmp_path / "pages.jsonl", "--output", tmp_path / "out", "--encoder", toy_encoder, *options)
    assert rows(tmp_path / "out") == [
        ("A title", 1, "pages.jsonl", 1),
        ("Fourteen chars.", 1, "pages.jsonl", 2),
        ("The first one.", 1, "pages.jsonl", 1),
        ("The second one.", 1, "pages.jsonl", 1),
    ]
    assert counts(tmp_path / "out") == {
        "lines": 2,
        "kept": 4,
        "empty": 0,
        "invalid": 0,
        "too_long": 1,
        "few_letters": 0,
        "split": 3,
        "duplicate": 0,
    }


@pytest.mark.parametrize(
    ("lang", "text", "sentences"),
    [
        ("deu_Latn", "Am 5. Mai kam Dr. Müller z. B. nach Berlin. Er blieb.", ["Am 5. Mai kam Dr. Müller z. B. nach Berlin.", "Er blieb."]),
        ("hin_Deva", "यह एक वाक्य है। यह दूसरा वाक्य है।", ["यह एक वाक्य है।", "यह दूसरा वाक्य है।"]),
        ("zho_Hans", "今天天气很好。我们去公园吧！", ["今天天气很好。", "我们去公园吧！"]),
        ("eus_Latn", "Kaixo. Zer moduz?", ["Kaixo.", "Zer moduz?"]),  # without rules of its own
        ("tha_Thai", "วันนี้อากาศดี ฉันไปตลาด", ["วันนี้อากาศดี ฉันไปตลาด"]),  # without an end mark, a line stays whole
    ],
)
def test_the_language_chooses_the_rules(lang: str, text: str, sentences: list[str]) -> None:
    split_sentences, numbers = split_texts([text, " \n "], load_splitter(lang))
    assert split_sentences == [*sentences, ""]
    assert numbers.tolist() == [len(sentences), 1]


def test_the_language_is_needed_before_anything_is_written(news: Path, toy_encoder: Path, tmp_path: Path) -> None:
    message = "--split needs the language of the text; give it, such as --lang de or --source-lang de"
    out = tmp_path / "out"
    assert error_of("embed", news, "--output", out, "--encoder", toy_encoder, "--split") == message
    assert error_of("mine", news, news, "--source-lang", "en", "--output", out, "--encoder", toy_encoder, "--split") == message
    assert not out.exists()


def test_without_the_library_the_error_has_the_command(
    news: Path, toy_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    words = ("embed", news, "--output", tmp_path / "out", "--encoder", toy_encoder, "--lang", "en", "--split")
    assert error_of(*words) == "sentencex is not installed; pip install 'bitext-miner[split]'"
    with pytest.raises(ConfigError, match="sentencex"):
        load_splitter("eng_Latn")


def test_paragraphs_are_hinted_at(news: Path, toy_encoder: Path, tmp_path: Path) -> None:
    words = ("--output", tmp_path / "out", "--encoder", toy_encoder, "--lang", "en")
    hint = f"miner: {news}: 33% of the lines have several sentences; --split splits them\n"
    assert miner("embed", news, *words).stderr == hint
    assert miner("embed", news, *words).stderr == ""  # nothing to do
    for lang in ("en", "de", "ru", "hi"):
        assert paragraph_share((EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()) < 0.1
    assert paragraph_share(["今天天气很好。我们去公园吧！你觉得呢？", "今天。"]) == 0.5
    assert paragraph_share([]) == 0


def test_gold_lines_cannot_be_compared_with_sentences(news: Path, toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "gold.tsv").write_text("1\t1\n")
    words = ("mine", news, news, "--source-lang", "en", "--target-lang", "en", "--encoder", toy_encoder, "--output", tmp_path / "out")
    folder = tmp_path / "out" / "source"
    assert error_of(*words, "--split", "--gold", tmp_path / "gold.tsv") == (
        f"{tmp_path / 'gold.tsv'}: gold refers to lines, which --split has split in {folder}; embed without --split to compare"
    )


@pytest.mark.slow
def test_documents_are_mined_by_sentence(tmp_path: Path) -> None:
    """Each sentence finds its translation, in another order and other paragraphs."""
    (tmp_path / "en.txt").write_text("The cat sleeps on the sofa. Dr. Brown bought three apples. It rains in London.\nI like old books.\n")
    (tmp_path / "de.txt").write_text(
        "Ich mag alte Bücher. Es regnet in London.\nDie Katze schläft auf dem Sofa.\nDr. Brown kaufte drei Äpfel.\n"
    )
    config = {"output": str(tmp_path / "run"), "corpora": {lang: str(tmp_path / f"{lang}.txt") for lang in ("en", "de")}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**config, "split": True, "threshold": 0, "k": 2}, sort_keys=False))
    output_of("run", tmp_path / "run.yaml")
    options = ("--source-lang", "en", "--target-lang", "de", "--split", "--k", 2, "--threshold", 0)
    output_of("mine", tmp_path / "en.txt", tmp_path / "de.txt", "--output", tmp_path / "out", *options)
    for bitext in (tmp_path / "out", tmp_path / "run" / "pairs" / "en-de"):
        pairs = {(pair["source_text"], pair["source_line"], pair["target_text"], pair["target_line"]) for pair in read_pairs(bitext)}
        assert pairs == {
            ("The cat sleeps on the sofa.", 1, "Die Katze schläft auf dem Sofa.", 2),
            ("Dr. Brown bought three apples.", 1, "Dr. Brown kaufte drei Äpfel.", 3),
            ("It rains in London.", 1, "Es regnet in London.", 1),
            ("I like old books.", 2, "Ich mag alte Bücher.", 1),
        }


def read_pairs(folder: Path) -> list[dict[str, object]]:
    pairs: list[dict[str, object]] = pq.read_table(folder / "bitext.parquet").to_pylist()
    return pairs
