"""The training data of the built-in encoder: languages with enough texts, lexicons for these only, nothing from evaluations."""

import gzip
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script


@pytest.fixture
def builtin_data() -> ModuleType:
    return load_script("builtin_data")


def write_rows(path: Path, rows: list[tuple[str, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)


def test_languages_and_texts_that_are_kept(builtin_data: ModuleType, tmp_path: Path) -> None:
    pairs = [("lang", "en", "xx"), ("de", "A house.", "Ein Haus."), ("de", "A mouse.", "Eine Maus."), ("br", "A house.", "Un ti.")]
    write_rows(tmp_path / "train/pairs.tsv.gz", [*pairs, ("ps", "A day.", "one"), ("pbt_Arab", "A night.", "two")])
    write_rows(tmp_path / "lexicons/words.tsv.gz", [("lang", "en", "xx"), ("de", "mouse", "Maus"), ("br", "mouse", "logodenn")])
    sources = ("train/pairs.tsv.gz", "lexicons/words.tsv.gz")
    languages = builtin_data.find_languages(tmp_path, sources, min_texts=2)
    table, counts = builtin_data.collect_groups(tmp_path, {builtin_data.match_key("eine maus")}, sources, languages)
    rows = {(row["lang"], row["text"]) for row in table.to_pylist()}
    pashto = {("eng_Latn", "A day."), ("pus_Arab", "one"), ("eng_Latn", "A night."), ("pus_Arab", "two")}  # ps and pbt are one language
    german = {("eng_Latn", "A house."), ("deu_Latn", "Ein Haus."), ("eng_Latn", "mouse"), ("deu_Latn", "Maus")}
    assert rows == german | pashto  # Breton has one text besides the lexicon
    assert counts["dropped: language"] == 2
    assert counts["dropped: in an evaluation file or the demo"] == 1


def test_groups_with_numbers(builtin_data: ModuleType, tmp_path: Path) -> None:
    rows = [("id", "lang", "text"), ("1", "en", "dog"), ("1", "de", "Hund"), ("1", "br", "ki"), ("2", "en", "cat")]
    write_rows(tmp_path / "packages/words.tsv.gz", rows)
    table, counts = builtin_data.collect_groups(tmp_path, set(), ["packages/words.tsv.gz"], {"eng_Latn", "deu_Latn"})
    assert [(row["group"], row["lang"], row["text"]) for row in table.to_pylist()] == [(0, "eng_Latn", "dog"), (0, "deu_Latn", "Hund")]
    assert counts["dropped: language"] == 1
    assert counts["dropped: no translation left"] == 1


def test_languages_of_flores_are_kept_and_development_lines_are_not(builtin_data: ModuleType, tmp_path: Path) -> None:
    for lang in ("eng_Latn", "nus_Latn", "bre_Latn"):
        write_rows(tmp_path / f"train/nllb_seed/{lang}.tsv.gz", [("s5592", f"{lang} kept"), ("s5593", f"{lang} not kept")])
    table, counts = builtin_data.collect_groups(tmp_path, set(), ["train/nllb_seed"], {"eng_Latn"})
    assert table["text"].to_pylist() == ["eng_Latn kept", "nus_Latn kept"]
    assert counts["dropped: language"] == 1
    assert builtin_data.language_of("no-such-code") == "und"
