"""Releases of public datasets in the language of numbers, with the file names under which the tables of papers read them."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import tiny
from public_data import write_release

WORDS_OF = {"en": "eng_Latn", "eng": "eng_Latn", "ru": "rus_Cyrl", "rus": "rus_Cyrl", "zh": "rus_Cyrl", "cmn": "rus_Cyrl"}


def texts(lang: str, rows: int, seed: int) -> list[str]:
    """Return sentences of numbers, the same numbers in every language; those without words of their own use German ones."""
    return [tiny.sentence(WORDS_OF.get(lang, "deu_Latn"), digits) for digits in tiny.numbers(rows, seed)]


def lines(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def table(*columns: Sequence[object]) -> str:
    return lines(["\t".join(map(str, cells)) for cells in zip(*columns, strict=True)])


def write_archive(path: Path, files: Mapping[str, str]) -> None:
    """Write a zip or tar.gz archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content.encode())
            tar.addfile(member, io.BytesIO(content.encode()))


def write_paws_x(data: Path, langs: Sequence[str] = ("en", "de"), rows: int = 48) -> None:
    files = {}
    for lang in langs:
        for name, seed in (("train" if lang == "en" else "translated_train", 1), ("dev_2k", 3), ("test_2k", 5)):
            labels = [row % 2 for row in range(rows)]
            body = table(range(1, rows + 1), texts(lang, rows, seed), texts(lang, rows, seed + 1), labels)
            files[f"x-final/{lang}/{name}.tsv"] = "id\tsentence1\tsentence2\tlabel\n" + body
    write_archive(data / "x-final.tar.gz", files)


def write_flores(data: Path, rows: int = 24) -> None:
    codes = {"eng_Latn": "en", "fra_Latn": "fr", "zho_Hans": "zh"}
    write_release(data, {f"flores200_dataset/dev/{code}.dev": lines(texts(lang, rows, 7)) for code, lang in codes.items()})


def write_bucc(data: Path, folder: str = "bucc2018", langs: Sequence[str] = ("de",), rows: int = 30) -> None:
    """Write BUCC; the last third of the sentences of each side has no translation."""
    files: dict[str, str | bytes] = {}
    for lang in langs:
        for split, seed in (("sample", 11), ("training", 12)):
            sides = {
                lang: texts(lang, rows, seed),
                "en": [*texts("en", rows, seed)[: 2 * rows // 3], *texts("en", rows, seed + 50)[2 * rows // 3 :]],
            }
            ids = {code: [f"{code}-{row:09}" for row in range(1, rows + 1)] for code in sides}
            stem = f"{folder}/{lang}-en/{lang}-en.{split}"
            files |= {f"{stem}.{code}": table(ids[code], sides[code]) for code in sides}
            files[f"{stem}.gold"] = table(ids[lang][: 2 * rows // 3], ids["en"][: 2 * rows // 3])
    write_release(data, files)


def write_tatoeba(data: Path, langs: Sequence[str], rows: int = 20) -> None:
    files: dict[str, str | bytes] = {}
    for number, lang in enumerate(langs):
        for code in (lang, "eng"):
            files[f"tatoeba/v1/tatoeba.{lang}-eng.{code}"] = lines(texts(code, rows, 20 + number))
    write_release(data, files)


LABELS = ("entailment", "neutral", "contradiction")
ENTAILED_ROWS = 10
XNLI_LANGS = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")


def write_nli(data: Path) -> None:
    """Write SNLI, MultiNLI and XNLI-MT: three rows per premise, one with each label."""
    rows = 3 * ENTAILED_ROWS

    def triples(lang: str, seed: int) -> list[tuple[str, str, str]]:
        premises, hypotheses = texts(lang, ENTAILED_ROWS, seed), texts(lang, rows, seed + 1)
        return [(premises[row // 3], hypotheses[row], LABELS[row % 3]) for row in range(rows)]

    for name, seed in (("snli", 60), ("multinli", 62)):
        keys = ("sentence1", "sentence2", "gold_label", "pairID")
        records = [json.dumps(dict(zip(keys, (*row, f"{number}"), strict=True))) for number, row in enumerate(triples("en", seed))]
        write_archive(data / f"{name}_1.0.zip", {f"{name}_1.0/{name}_1.0_train.jsonl": lines(records)})
    for lang in XNLI_LANGS:
        body = lines(["\t".join(row).replace("contradiction", "contradictory") for row in triples(lang, 64)])
        write_release(data, {f"XNLI-MT-1.0/multinli/multinli.train.{lang}.tsv": "premise\thypo\tlabel\n" + body})


def write_sts_benchmark(data: Path, rows: int = 24) -> None:
    """Write the dev and test part: the same numbers have a score of 5, others of 0."""
    files = {}
    for split, seed in (("dev", 70), ("test", 72)):
        first, other = texts("en", rows, seed), texts("en", rows, seed + 1)
        second = [same if row % 2 else different for row, (same, different) in enumerate(zip(first, other, strict=True))]
        scores = [5.0 if row % 2 else 0.0 for row in range(rows)]
        files[f"stsbenchmark/sts-{split}.csv"] = table(
            ["news"] * rows, ["file"] * rows, ["2012"] * rows, range(rows), scores, first, second
        )
    write_archive(data / "Stsbenchmark.tar.gz", files)


def write_opus(data: Path, *pairs: str, rows: int = 40) -> None:
    for number, pair in enumerate(pairs):
        write_archive(
            data / f"{pair}.txt.zip", {f"ParaCrawl.{pair}.{lang}": lines(texts(lang, rows, 80 + number)) for lang in pair.split("-")}
        )
