"""Decontamination: exact and near matches of evaluation sentences, and reading these from files of any columns."""

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miner.errors import ConfigError, DataError
from miner.research.datasets.columns import read_texts
from miner.text.decontaminate import EXACT, NEAR, NONE, EvaluationIndex


def ngram_similarity(left: str, right: str) -> float:
    """The definition: the Jaccard index of the 5-grams of letters and digits."""
    sets = []
    for text in (left, right):
        letters = "".join(filter(str.isalnum, text.lower()))
        sets.append({letters[start : start + 5] for start in range(max(1, len(letters) - 4))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_near_matches_equal_brute_force_jaccard() -> None:
    draws = random.Random(1)
    words = ["parliament", "vote", "on", "the", "new", "budget", "minister", "said", "today", "growth", "of", "two", "percent"]
    evaluation = [" ".join(draws.choices(words, k=draws.randint(1, 14))) for _ in range(150)]
    texts = list(evaluation[:20])
    for text in evaluation:
        changed = text.split()
        changed[draws.randrange(len(changed))] = draws.choice(words)
        texts.append(" ".join(changed))
    for near in (0.5, 0.7, 0.9):
        kinds = EvaluationIndex(evaluation, near).classify(texts)
        expected = [max(ngram_similarity(text, sentence) for sentence in evaluation) >= near for text in texts]
        assert (kinds > NONE).tolist() == expected
        assert 20 < sum(expected) < len(texts)


def test_exact_matches_ignore_case_punctuation_and_width() -> None:
    index = EvaluationIndex(["The vote was on Monday.", "2013年、東京で会議が開かれた。"], near=0.7)
    texts = ["the vote — was on Monday!", "２０１３年 東京で会議が開かれた", "The vote was on Monday night.", "Something else", "..."]
    assert index.classify(texts).tolist() == [EXACT, EXACT, NEAR, NONE, NONE]


def test_read_sentences_reads_every_format(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("One.\tEins.\n...\tZwei\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text(json.dumps({"x": "Drei", "deep": ["Vier", 5]}) + "\n")
    pq.write_table(pa.table({"n": [1, 2], "text": ["Fünf", None]}), tmp_path / "c.parquet")
    deep = {"coded": pa.array(["Sechs"]).dictionary_encode(), "bytes": [b"Sieben"], "both": [{"en": "Eight", "de": ["Acht"]}]}
    pq.write_table(pa.table(deep), tmp_path / "d.parquet")
    sentences = [list(read_texts(str(tmp_path / name))) for name in ("a.tsv", "b.jsonl", "c.parquet", "d.parquet")]
    assert sentences == [["One.", "Eins.", "Zwei"], ["Drei", "Vier"], ["Fünf"], ["Sechs", "Sieben", "Eight", "Acht"]]
    (tmp_path / "a.csv").write_text('1,"One, two."\n')
    (tmp_path / "a.json").write_text('{"spans": [{"label": "X"}], "text": "Drei\\tVier"}')
    (tmp_path / "a.tmx").write_text('<tmx><body><tu><tuv lang="en"><seg>Five.</seg></tuv></tu></body></tmx>')
    sentences = [list(read_texts(str(tmp_path / name))) for name in ("a.csv", "a.json", "a.tmx")]
    assert sentences == [["1", "One, two."], ["X", "Drei\tVier"], ["Five."]]
    (tmp_path / "a.zip").touch()
    with pytest.raises(ConfigError, match=r"a\.zip: \.zip files are not read; unpack it first"):
        list(read_texts(str(tmp_path / "a.zip")))
    pq.write_table(pa.table({"n": [1]}), tmp_path / "numbers.parquet")
    with pytest.raises(DataError, match="no sentences to exclude"):
        list(read_texts(str(tmp_path / "numbers.parquet")))
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    (tmp_path / "long.txt").write_bytes(b"fine\n" + b"x" * (2 << 20))
    pq.write_table(pa.table({"text": pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())}), tmp_path / "bad.parquet")
    for name, message in (
        ("bad.txt", r"bad\.txt:2: not UTF-8"),
        ("long.txt", "long.txt:2: longer"),
        ("bad.parquet", "bad.parquet:1: not UTF-8"),
    ):
        with pytest.raises(DataError, match=message):
            list(read_texts(str(tmp_path / name)))
