"""Ten languages and all 45 pairs of them in one run: each corpus is embedded once, and every pair has its translations."""

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path

import pytest
import yaml
from command import output_of

LANGUAGES = ("cs", "da", "de", "en", "es", "fi", "fr", "hu", "it", "sv")
ENGLISH = ("one", "two", "three", "four", "five", "seven", "eight", "nine")
FRENCH = ("un", "deux", "trois", "quatre", "cinq", "sept", "huit", "neuf")


def sentences(number: int) -> list[str]:
    """Return the sentences of a language: English words if its number is even, else French; each language lacks some meanings."""
    words = (ENGLISH, FRENCH)[number % 2]
    meanings = [pair for pair in itertools.combinations(range(len(words)), 2) if sum(pair) % len(LANGUAGES) != number]
    return [" ".join(words[index] for index in meaning) for meaning in meanings]


def meaning(sentence: str) -> tuple[int, ...]:
    return tuple((ENGLISH if word in ENGLISH else FRENCH).index(word) for word in sentence.split())


@pytest.mark.slow
def test_each_corpus_is_embedded_once_and_all_pairs_are_mined(toy_encoder: Path, tmp_path: Path) -> None:
    for number, lang in enumerate(LANGUAGES):
        (tmp_path / f"{lang}.txt").write_text("".join(f"{line}\n" for line in sentences(number)))
    corpora = {lang: str(tmp_path / f"{lang}.txt") for lang in LANGUAGES}
    settings = {"output": str(tmp_path / "out"), "corpora": corpora, "encoder": str(toy_encoder), "engine": "exact", "threshold": 1.0}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump({**settings, "shards": 2, "pair_filters": "none"}))
    output_of("run", tmp_path / "run.yaml", "--no-report")
    summary = json.loads((tmp_path / "out/run.json").read_text())
    runs = Counter((record["stage"], record["folder"]) for record in summary["stages"])
    assert [count for (stage, _), count in runs.items() if stage == "embeddings"] == [1] * len(LANGUAGES)
    assert summary["counters"]["embeddings"]["sentences"] == sum(len(sentences(number)) for number in range(len(LANGUAGES)))
    assert list(summary["pairs"]) == ["-".join(pair) for pair in itertools.combinations(LANGUAGES, 2)]
    assert len(summary["pairs"]) == 45
    for source, target in itertools.combinations(range(len(LANGUAGES)), 2):
        folder = tmp_path / "out/pairs" / f"{LANGUAGES[source]}-{LANGUAGES[target]}"
        lines = gzip.decompress((folder / "bitext.tsv.gz").read_bytes()).decode().splitlines()
        pairs = [tuple(map(meaning, line.split("\t")[1:])) for line in lines]
        common = {meaning(text) for text in sentences(source)} & {meaning(text) for text in sentences(target)}
        assert {first for first, second in pairs if first == second} == common, folder.name
