"""Releases of public datasets in the language of numbers, with the file names under which the tables of papers read them."""

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


def write_bucc(data: Path, langs: Sequence[str] = ("de",), rows: int = 30) -> None:
    """Write BUCC; the last third of the sentences of each side has no translation."""
    files: dict[str, str | bytes] = {}
    for lang in langs:
        for split, seed in (("sample", 11), ("training", 12)):
            sides = {
                lang: texts(lang, rows, seed),
                "en": [*texts("en", rows, seed)[: 2 * rows // 3], *texts("en", rows, seed + 50)[2 * rows // 3 :]],
            }
            ids = {code: [f"{code}-{row:09}" for row in range(1, rows + 1)] for code in sides}
            stem = f"bucc2018/{lang}-en/{lang}-en.{split}"
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
    """Write SNLI, MultiNLI and XNLI-MT."""
    for name, seed in (("snli", 60), ("multinli", 62)):
        keys = ("sentence1", "sentence2", "gold_label", "pairID")
        records = [json.dumps(dict(zip(keys, (*row, f"{number}"), strict=True))) for number, row in enumerate(nli_rows("en", seed))]
        write_archive(data / f"{name}_1.0.zip", {f"{name}_1.0/{name}_1.0_train.jsonl": lines(records)})
    for lang in XNLI_LANGS:
        body = lines(["\t".join(row).replace("contradiction", "contradictory") for row in nli_rows(lang, 64)])
        write_release(data, {f"XNLI-MT-1.0/multinli/multinli.train.{lang}.tsv": "premise\thypo\tlabel\n" + body})


def write_sts_benchmark(data: Path) -> None:
    files = {}
    for split, seed in (("dev", 70), ("test", 72)):
        rows = [
            f"news\tfile\t2012\t{row}\t{score}\t{first}\t{second}"
            for row, (first, second, score) in enumerate(sts_rows(("en", "en"), seed))
        ]
        files[f"stsbenchmark/sts-{split}.csv"] = lines(rows)
    write_archive(data / "Stsbenchmark.tar.gz", files)


def write_opus(data: Path, *pairs: str, rows: int = 40) -> None:
    for number, pair in enumerate(pairs):
        write_archive(
            data / f"{pair}.txt.zip", {f"ParaCrawl.{pair}.{lang}": lines(texts(lang, rows, 80 + number)) for lang in pair.split("-")}
        )


def sts_rows(langs: tuple[str, str], seed: int, rows: int = 24) -> list[tuple[str, str, float]]:
    """Return pairs of sentences: the same numbers have a score of 5, others of 1."""
    first, same, other = texts(langs[0], rows, seed), texts(langs[1], rows, seed), texts(langs[1], rows, seed + 1)
    return [(first[row], same[row] if row % 2 else other[row], 5.0 if row % 2 else 1.0) for row in range(rows)]


def json_lines(rows: Sequence[tuple[str, str, float]], score: str = "score") -> str:
    return lines([json.dumps(dict(zip(("sentence1", "sentence2", score), row, strict=True))) for row in rows])


def write_sts(data: Path) -> None:
    """Write the STS datasets of all papers."""
    write_sts_benchmark(data)
    files: dict[str, str | bytes] = {}
    for seed, (year, track) in enumerate({"12": "MSRpar", "13": "FNWN", "14": "images", "15": "belief", "16": "headlines"}.items(), 100):
        stem, rows = f"STS/STS{year}-en-test/STS", sts_rows(("en", "en"), seed)
        files[f"{stem}.input.{track}.txt"] = lines([f"{first}\t{second}" for first, second, _ in rows])
        files[f"{stem}.gs.{track}.txt"] = lines([str(score) for *_, score in rows])
    for seed, pair in enumerate(("ar-ar", "en-ar", "es-es", "es-en", "en-en", "en-tr"), 110):
        rows = sts_rows((pair[:2], pair[3:]), seed)
        files[f"STS2017/STS2017-extended/STS.{pair}.txt"] = lines(["\t".join(map(str, row)) for row in rows])
    for seed, track in enumerate(("de", "de-en"), 120):
        files[f"sts22-crosslingual-sts/{track}/test.jsonl"] = json_lines(sts_rows((track[:2], track[-2:]), seed))
    files["jsts-v1.3/valid-v1.3.json"] = json_lines(sts_rows(("ja", "ja"), 130), "label")
    klue = [{"sentence1": first, "sentence2": second, "labels": {"label": score}} for first, second, score in sts_rows(("ko", "ko"), 131)]
    files["klue-sts-v1.1/klue-sts-v1.1_dev.json"] = json.dumps(klue)
    for seed, split in enumerate(("dev", "test"), 132):
        rows = sts_rows(("ko", "ko"), seed)
        cells = [["news", "file", "2012", str(row), str(score), first, second] for row, (first, second, score) in enumerate(rows)]
        files[f"KorSTS/sts-{split}.tsv"] = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n" + lines(
            ["\t".join(row) for row in cells]
        )
    names = [f"{name}_{lang}" for lang in ("En", "Ja") for name in ("sentence_A", "sentence_B", "relatedness_score")]
    header = "\t".join(["pair_ID", "data", *names]) + "\n"
    for seed, (name, part) in enumerate({"jsick": "trial", "test": "test"}.items(), 134):
        pairs = zip(sts_rows(("en", "en"), seed), sts_rows(("ja", "ja"), seed), strict=True)
        files[f"jsick/{name}.tsv"] = header + lines(["\t".join(map(str, ["1", part, *english, *japanese])) for english, japanese in pairs])
    write_release(data, files)
    sick = [f"{row}\t{first}\t{second}\t{score}\tNEUTRAL" for row, (first, second, score) in enumerate(sts_rows(("en", "en"), 136))]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    write_archive(data / "SICK.zip", {"SICK_test_annotated.txt": header + lines(sick)})


def nli_rows(lang: str, seed: int) -> list[tuple[str, str, str]]:
    """Return premises, hypotheses and labels: three rows per premise, one with each label."""
    premises, hypotheses = texts(lang, ENTAILED_ROWS, seed), texts(lang, 3 * ENTAILED_ROWS, seed + 1)
    return [(premises[row // 3], hypothesis, LABELS[row % 3]) for row, hypothesis in enumerate(hypotheses)]


def write_translated_pairs(data: Path) -> None:
    """Write XTREME's translations of the training data of XNLI and PAWS-X, the test data of XNLI, and dictionaries."""
    files: dict[str, str | bytes] = {}
    for lang in ("de", "ru"):
        sides = [*zip(nli_rows("en", 140), nli_rows(lang, 140), strict=True)]
        files[f"XNLI/translate-train/en-{lang}-translated.tsv"] = lines(["\t".join((*english[:2], *row)) for english, row in sides])
        pairs = [(*english[:2], *row[:2], str(number % 2)) for number, (english, row) in enumerate(sides)]
        files[f"PAWSX/translate-train/en-{lang}-translated.tsv"] = lines(["\t".join(row) for row in pairs])
        files[f"lexicons/en-{lang}.txt"] = lines(
            [" ".join(row) for row in zip(tiny.NUMBERS["eng_Latn"], tiny.NUMBERS[WORDS_OF.get(lang, "deu_Latn")], strict=True)]
        )
    write_release(data, files)
    head = ("language", "gold_label", "sentence1", "sentence2", "pairID")
    xnli = {}
    for split, seed in (("dev", 142), ("test", 144)):
        rows = [
            (lang, label, first, second, f"{row}") for lang in XNLI_LANGS for row, (first, second, label) in enumerate(nli_rows(lang, seed))
        ]
        xnli[f"XNLI-1.0/xnli.{split}.tsv"] = lines(["\t".join(row) for row in (head, *rows)])
    write_archive(data / "XNLI-1.0.zip", xnli)


def write_asian_nli(data: Path) -> None:
    rows = nli_rows("ja", 150)
    write_archive(
        data / "jsnli_1.1.zip", {"jsnli_1.1/train_w_filtering.tsv": lines([f"{label}\t{first}\t{second}" for first, second, label in rows])}
    )
    body = "sentence1\tsentence2\tgold_label\n" + lines(["\t".join(row) for row in nli_rows("ko", 152)])
    write_release(data, {"KorNLI/multinli.train.ko.tsv": body})
    texts_of_articles = [f"\n_START_ARTICLE_\nx\n_START_PARAGRAPH_\n{text}。" for text in texts("ja", 40, 154)]
    (data / "wiki40b" / "ja").mkdir(parents=True)
    columns = {"wikidata_id": ["Q1"] * 40, "text": texts_of_articles, "version_id": ["1"] * 40}
    pq.write_table(pa.table(columns), data / "wiki40b" / "ja" / "train-00000-of-00001.parquet")


def write_topics(data: Path) -> None:
    """Write MTOP and TNEWS: the label is that of the first number."""
    files = {}
    for lang in ("en", "de"):
        for split, seed in (("train", 160), ("eval", 163), ("test", 161)):
            rows = texts(lang, 40, seed)
            body = [f"{row}\tIN:X\t\t{text}\t{('alarm', 'weather')[row % 2]}\t{lang}_XX\t[IN:..]\t{{}}" for row, text in enumerate(rows)]
            files[f"mtop/{lang}/{split}.txt"] = lines(body)
    write_archive(data / "mtop.zip", files)
    news = [json.dumps({"label": f"{100 + row % 3}", "sentence": text}) for row, text in enumerate(texts("zh", 40, 162))]
    write_archive(data / "tnews_public.zip", {"dev.json": lines(news)})


def write_english_chinese(data: Path, rows: int = 40) -> None:
    """Write the training data of dual momentum contrast."""
    un, news, casia, casict, neu = ([texts(lang, rows, seed) for lang in ("en", "zh")] for seed in (170, 171, 172, 174, 175))
    files: dict[str, str | bytes] = {"news-commentary-v15.en-zh.tsv.gz": table(*news)}
    for side, lang in enumerate(("en", "zh")):
        files[f"UNv1.0.en-zh/UNv1.0.en-zh.{lang}"] = lines(un[side])
        for name, sides in (("casia2015/casia2015", casia), ("casict2015/casict2015", casict), ("neu2017/NEU", neu)):
            files[f"cwmt/{name}_{('en', 'ch')[side]}.txt"] = lines(sides[side])
    write_release(data, files)
    write_archive(data / "cmn-en.txt.zip", {f"Tatoeba.cmn-en.{lang}": lines(texts(lang, rows, 173)) for lang in ("cmn", "en")})


def write_all(data: Path, tatoeba_langs: Sequence[str]) -> None:
    """Write the data of all tables of `miner reproduce`."""
    write_paws_x(data)
    write_flores(data)
    write_bucc(data, ("de", "zh"))
    write_tatoeba(data, tatoeba_langs, rows=8)
    write_nli(data)
    write_asian_nli(data)
    write_translated_pairs(data)
    write_sts(data)
    write_topics(data)
    write_opus(data, "en-fr", "en-sw")
    write_english_chinese(data)
    (data / "wiki1m_for_simcse.txt").write_text(lines(texts("en", 60, 40)))
