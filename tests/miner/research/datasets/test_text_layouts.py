"""Readers of labelled texts and monolingual corpora: exact rows of small releases with the traps of the real ones."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from public_data import RowsCase, WrongCase, check_rows, check_wrong, read_rows

ARTICLE = (
    "\n_START_ARTICLE_\n山田橋\n_START_SECTION_\n概要\n_START_PARAGRAPH_\n橋である。長い橋。_NEWLINE_川の上。\n_START_SECTION_\n歴史"
    "\n_START_PARAGRAPH_\n古い"
)

CASES = [
    RowsCase(
        "mtop",
        {
            "mtop/de/eval.txt": '31\tIN:CREATE_ALARM\t0:4:SL:DATE_TIME\theute "wecken\talarm\tde_XX\t[IN:..]\t{"tokens":["heute"]}\n'
            '32\tIN:GET_WEATHER\t\tregnet es\tweather\tde_XX\t[IN:..]\t{"tokens":["regnet"]}\n',
            "mtop/en/eval.txt": "31\tIN:CREATE_ALARM\t\twake me\talarm\ten_XX\t[IN:..]\t{}\n",
            "mtop/en/test.txt": "not read",
        },
        [
            ('heute "wecken', "alarm", "de", "31"),
            ("regnet es", "weather", "de", "32"),
            ("wake me", "alarm", "en", "31"),
        ],
        split="dev",
    ),
    RowsCase(
        "mtop",
        {"mtop_domain/th/validation.jsonl": '{"id": 5, "text": "ปลุกฉัน", "label": 0, "label_text": "alarm"}\n'},
        [("ปลุกฉัน", "alarm", "th", "5")],
        title="of MTEB",
    ),
    RowsCase(
        "tnews",
        {
            "dev.json": '{"label": "109", "label_desc": "news_tech", "sentence": "新手机，\\n明天发布", "keywords": "手机"}\n\n'
            '{"label": "", "label_desc": "", "sentence": "没有标签", "keywords": ""}\n',
            "test.json": "not read",
            "labels.json": "not read",
        },
        [("新手机， 明天发布", "109", "zh", "1")],
        {"blank": 1, "no label": 1},
        split="dev",
    ),
    RowsCase(
        "tnews",
        {"test.json": '{"id": 0, "sentence": "新手机", "keywords": ""}\n'},
        [("新手机", "", "zh", "1")],
        title="test, which has no labels",
    ),
    RowsCase(
        "cc-100",
        {"de.txt.xz": "Erster Absatz.\nZweiter.\n\nNeues Dokument.\n", "hi_rom.txt.xz": "not read"},
        [("Erster Absatz.", "de"), ("Zweiter.", "de"), ("Neues Dokument.", "de")],
        {"blank": 1},
        languages=("de",),
    ),
    RowsCase(
        "cc-100",
        {"hi.txt.xz": "नमस्ते।\n", "hi_rom.txt.xz": "namaste\n"},
        [("namaste", "hi_rom")],
        languages=("hi-Latn",),
        title="romanised",
    ),
    RowsCase(
        "oscar",
        {"de_part_1.txt.gz": "Eins.\n\nZwei.\n", "de_part_2.txt.gz": "Drei.\n"},
        [("Eins.", "de"), ("Zwei.", "de"), ("Drei.", "de")],
        {"blank": 1},
    ),
    RowsCase(
        "oscar",
        {"mine.jsonl": json.dumps({"content": "Eins.\nZwei.", "warc_headers": {}, "metadata": {}}) + "\n"},
        [("Eins.", "de"), ("Zwei.", "de")],
        languages=("de",),
        path="mine.jsonl",
        title="22.01, whose language the user says",
    ),
    RowsCase(
        "oscar",
        {"de_meta/de_meta_part_1.jsonl.gz": json.dumps({"content": "Eins.", "warc_headers": {}, "metadata": {}}) + "\n"},
        [("Eins.", "de")],
        languages=("de",),
        title="22.01, as it names its files",
    ),
    RowsCase(
        "mc4",
        {
            "c4-iw.tfrecord-00000-of-00002.json.gz": '{"text": "שלום.\\n\\nכן.", "timestamp": "t", "url": "u"}\n',
            "c4-iw-validation.tfrecord-00000-of-00001.json.gz": "not read",
            "c4-ru-Latn.tfrecord-00000-of-00001.json.gz": "not read",
        },
        [("שלום.", "iw"), ("כן.", "iw")],
        {"blank": 1},
        languages=("he",),
        split="train",
    ),
    RowsCase(
        "newscrawl",
        {"news.2019.de.shuffled.deduped.gz": 'Ein "Satz.\n', "news.2020.de.shuffled.deduped.gz": "Noch einer.\n"},
        [('Ein "Satz.', "de"), ("Noch einer.", "de")],
    ),
]

WRONG = [
    WrongCase("mtop", {"de/test.txt": "text\tlabel\n"}, "{}/de/test.txt:1: expected 8 tab-separated cells, found 2 cells"),
    WrongCase(
        "tnews",
        {"train.json": '[\n{"sentence": "a"}]\n'},
        "{}/train.json:1: expected one JSON object per line, with the keys sentence, label, found '[' (not JSON)",
    ),
    WrongCase("cc-100", {"de.txt.xz": b"plain text"}, "{}/de.txt.xz: truncated or not .xz"),
    WrongCase("oscar", {"de_part_1.txt": ""}, "{}/de_part_1.txt: no rows; expected one text per line; download the file again"),
    WrongCase(
        "mc4",
        {"c4-de.tfrecord-00000-of-00001.json.gz": '{"content": "Text."}\n'},
        "{}/c4-de.tfrecord-00000-of-00001.json.gz:1: expected one JSON object per line, with the keys text, found no key 'text'",
    ),
    WrongCase(
        "newscrawl",
        {"news.2019.de.shuffled.deduped.gz": "Ein Satz.\n"},
        "{}/news.2019.de.shuffled.deduped.gz: no language 'fr'; there are de",
        languages=("fr",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(case: RowsCase, tmp_path: Path) -> None:
    check_rows(case, tmp_path)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_wrong_layout(case: WrongCase, tmp_path: Path) -> None:
    check_wrong(case, tmp_path)


def test_wiki_40b_keeps_paragraphs_and_cuts_them(tmp_path: Path) -> None:
    for code, texts in (("ja", [ARTICLE, "_START_ARTICLE_\n題\n"]), ("en", [b"_START_PARAGRAPH_\nA bridge. It is long."])):
        folder = tmp_path / code
        folder.mkdir()
        table = pa.table({"wikidata_id": ["Q1"] * len(texts), "text": texts, "version_id": ["1"] * len(texts)})
        pq.write_table(table, folder / "train-00000-of-00001.parquet")
        pq.write_table(table, folder / "validation-00000-of-00001.parquet")
    columns, rows, dropped = read_rows("wiki-40b", tmp_path, split="train")
    assert columns == ("text", "lang")
    assert rows == [("A bridge. It is long.", "en"), ("橋である。", "ja"), ("長い橋。", "ja"), ("川の上。", "ja"), ("古い", "ja")]
    assert dropped == {"no paragraph": 1}


def test_wiki_40b_names_the_columns_that_are_missing(tmp_path: Path) -> None:
    (tmp_path / "ja").mkdir()
    pq.write_table(pa.table({"content": ["x"]}), tmp_path / "ja" / "test-00000-of-00001.parquet")
    check_wrong(
        WrongCase("wiki-40b", {}, "{}/ja/test-00000-of-00001.parquet: expected Parquet columns text, found content; check that"), tmp_path
    )
