"""Readers of translations: exact rows of small releases with the traps of the real ones, and wrong layouts."""

import json
import zipfile
from pathlib import Path

import pytest
from public_data import RowsCase, WrongCase, check_rows, check_wrong, read_rows

BUCC_TEXTS: dict[str, str | bytes] = {
    "bucc2018/de-en/de-en.sample.de": "de-000000001\tDer Zug kommt.\nde-000000002\tEin\tTab.\nde-000000003\tDer Zug kommt.\n",
    "bucc2018/de-en/de-en.sample.en": "en-000000001\tNot a pair.\nen-000000002\tA tab.\nen-000000003\tThe train is coming.\n",
}
TMX = """<?xml version="1.0" encoding="UTF-8" ?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en" datatype="PlainText"/><body>
<tu><tuv xml:lang="EN-US"><seg>Tom &amp; Eva</seg></tuv><tuv xml:lang="de"><seg>Tom <hi>und</hi><bpt i="1">&lt;b&gt;</bpt>
Eva</seg></tuv></tu>
<tu><tuv lang="en-US"><seg>Yes.</seg></tuv><tuv lang="DE"><seg>Ja.</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>Alone.</seg></tuv></tu>
</body></tmx>
"""

CASES = [
    RowsCase(
        "tatoeba",
        {
            "v1/tatoeba.deu-eng.deu": 'Das Fenster ist offen.\nEr sagt "Hallo.\n\ufeffJa\u200b.\n',
            "v1/tatoeba.deu-eng.eng": "The window is open.\nHe says hello.\nYes.",
            "v1/tatoeba.swh-eng.swh": "Ndiyo.\n",
            "v1/tatoeba.swh-eng.eng": "Yes.\n",
            "v1/README.md": "not read",
        },
        [
            ("Das Fenster ist offen.", "The window is open.", "deu", "eng"),
            ('Er sagt "Hallo.', "He says hello.", "deu", "eng"),
            ("Ja.", "Yes.", "deu", "eng"),
            ("Ndiyo.", "Yes.", "swh", "eng"),
        ],
    ),
    RowsCase(
        "tatoeba",
        {
            "tatoeba/de-en.de": "Das Fenster ist offen.\nJa.\nEine Tür.\n",
            "tatoeba/de-en.en": "A door.\nThe window is open.\nYes.\n",
            "tatoeba/test-de.tsv": "1\n2\n0\n",
        },
        [
            ("Das Fenster ist offen.", "The window is open.", "de", "en"),
            ("Ja.", "Yes.", "de", "en"),
            ("Eine Tür.", "A door.", "de", "en"),
        ],
        title="of XTREME, whose English is sorted",
    ),
    RowsCase(
        "bucc",
        {
            **BUCC_TEXTS,
            "bucc2018/de-en/de-en.sample.gold": "de-000000003\ten-000000003\nde-000000002\ten-000000002\nde-000000001\ten-000000009\n",
        },
        [("Der Zug kommt.", "The train is coming.", "de", "en"), ("Ein Tab.", "A tab.", "de", "en")],
        {"id without a sentence": 1},
    ),
    RowsCase(
        "bucc",
        {
            "de-en.test.de": "de-000000001\tJa.\n",
            "de-en.test.en": "en-000000001\tYes.\n",
            "test-de.tsv": "de-000000001\ten-000000001\n",
            "de-en.dev.de": "not read",
        },
        [("Ja.", "Yes.", "de", "en")],
        split="test",
        title="of XTREME with labels",
    ),
    RowsCase(
        "bucc",
        {"de-en/test.json.gz": json.dumps({"sentence1": ["Nein.", "Ja."], "sentence2": ["Yes.", "No."], "gold": [[2, 1], [1, 2], [3, 1]]})},
        [("Ja.", "Yes.", "de", "en"), ("Nein.", "No.", "de", "en")],
        {"id without a sentence": 1},
        title="of MTEB, which counts from 1",
    ),
    RowsCase(
        "bucc-sentences",
        {"de-en.test.de": "de-000000001\tJa.\nde-000000002\t\n", "de-en.test.en": "en-000000001\tYes.\n"},
        [("Ja.", "de", "de-000000001"), ("Yes.", "en", "en-000000001")],
        {"blank": 1},
        title="of test, which has no gold",
    ),
    RowsCase(
        "opus-moses",
        {
            "Tatoeba.cmn-en.cmn": "你好。\n\n是。\n",
            "Tatoeba.cmn-en.en": 'Hello "you.\nNo Chinese.\nYes.\n',
            "README": "not read",
            "Tatoeba.cmn-en.ids": "not read",
        },
        [("你好。", 'Hello "you.', "cmn", "en"), ("是。", "Yes.", "cmn", "en")],
        {"blank": 1},
        languages=("zh",),
    ),
    RowsCase(
        "opus-tmx",
        {"de-en.tmx.gz": "\ufeff" + TMX},
        [("Tom und Eva", "Tom & Eva", "de", "en-us"), ("Ja.", "Yes.", "de", "en-us")],
        {"no translation": 1},
        title="in the order of the name",
    ),
    RowsCase(
        "opus-tmx",
        {"memory.tmx": TMX},
        [("Tom & Eva", "Tom und Eva", "en-us", "de"), ("Yes.", "Ja.", "en-us", "de")],
        {"no translation": 1},
        title="in the order of the first unit",
    ),
    RowsCase(
        "wikimatrix",
        {
            "WikiMatrix.de-en.tsv.gz": '1.25\tEin "Haus.\tA house.\n1.04\tEin Weg.\n',
            "WikiMatrix.v1.de-fr.langid.tsv": "1.1\tJa.\tOui.\tde\tfr\n",
        },
        [('Ein "Haus.', "A house.", "de", "en", "1.25"), ("Ja.", "Oui.", "de", "fr", "1.1")],
        {"wrong number of cells": 1},
    ),
    RowsCase(
        "ccmatrix",
        {
            "bitext/de-en/de.txt": "3\t1.1\tJa.\n5\t1.2\tNein.\nbroken\n9\t1.3\tEin Haus.\n",
            "bitext/de-en/en.txt": "2\t1.0\tAlone.\n3\t1.1\tYes.\n9\t1.3\tA house.\n12\t1.3\tToo.\n",
        },
        [("Ja.", "Yes.", "de", "en", "1.1"), ("Ein Haus.", "A house.", "de", "en", "1.3")],
        {"no translation": 3, "wrong number of cells": 1},
    ),
    RowsCase(
        "nllb",
        {"deu_Latn-eng_Latn.gz": 'Ein "Haus.\tA house.\t1.07\t1\t0.9\tcc\thttp://a.example\tcc\t_\n'},
        [('Ein "Haus.', "A house.", "deu_Latn", "eng_Latn", "1.07")],
    ),
    RowsCase(
        "paracrawl",
        {"en-de.bicleaner07.txt.gz": 'Opening "hours\tÖffnungszeiten\nToo\tmany\tcells\nClosed\t\n'},
        [('Opening "hours', "Öffnungszeiten", "en", "de")],
        {"wrong number of cells": 1, "blank": 1},
    ),
    RowsCase(
        "un",
        {"en-zh/UNv1.0.en-zh.en": "Article 1\nArticle 2\n", "en-zh/UNv1.0.en-zh.zh": "第一条\n第二条\n"},
        [("Article 1", "第一条", "en", "zh"), ("Article 2", "第二条", "en", "zh")],
    ),
    RowsCase(
        "un-6way",
        {
            **{
                f"6way/UNv1.0.6way.{code}": f"First {code}\n{'' if code == 'ru' else 'Second ' + code}\n"
                for code in ("ar", "en", "ru", "zh")
            },
            "6way/UNv1.0.6way.ids": "not read\n",
        },
        [("First ar", "First en", "First ru", "First zh")],
        {"blank": 1},
        columns=("ar", "en", "ru", "zh"),
    ),
    RowsCase(
        "un-6way",
        {f"6way/UNv1.0.6way.{code}": f"First {code}\n" for code in ("ar", "en", "ru", "zh")},
        [("First zh", "First en")],
        languages=("zho", "en"),
        columns=("zho", "en"),
        title="two languages under the codes requested",
    ),
    RowsCase(
        "news-commentary",
        {"news-commentary-v15.en-zh.tsv.gz": 'Peace "now\t和平\n\t\nHalf\t\n\nWar\t战争\n'},
        [('Peace "now', "和平", "en", "zh"), ("War", "战争", "en", "zh")],
        {"blank": 3},
    ),
    RowsCase(
        "news-commentary",
        {"training/news-commentary-v12.zh-en.zh": "和平\n", "training/news-commentary-v12.zh-en.en": "Peace\n"},
        [("和平", "Peace", "zh", "en")],
        title="of WMT 12",
    ),
    RowsCase(
        "cwmt",
        {
            "casia2015/casia2015_en.txt": "One.\n",
            "casia2015/casia2015_ch.txt": "一。\n",
            "neu2017/NEU_en.txt": "Two.\n",
            "neu2017/NEU_cn.txt": "二。\n",
        },
        [("Two.", "二。", "en", "zh"), ("One.", "一。", "en", "zh")],
        languages=("en", "zho_Hans"),
    ),
    RowsCase(
        "muse",
        {
            "en-de.txt": "not read",
            "en-de.0-5000.txt": "house\thaus\nhouse gebäude\ntom tom\nnew york new york\n",
            "en-de.5000-6500.txt": "not read",
        },
        [("house", "haus", "en", "de"), ("house", "gebäude", "en", "de"), ("tom", "tom", "en", "de")],
        {"wrong number of cells": 1},
        split="train",
    ),
    RowsCase(
        "flores-200",
        {
            "flores200_dataset/dev/deu_Latn.dev": 'Ein "Satz.\nZwei.\n',
            "flores200_dataset/dev/kor_Hang.dev": "하나.\n둘.\n",
            "flores200_dataset/dev/zho_Hant.dev": "一。\n二。\n",
            "flores200_dataset/dev/zho_Hans.dev": "一个。\n两个。\n",
            "flores200_dataset/devtest/deu_Latn.devtest": "not read",
            "flores200_dataset/metadata_dev.tsv": "not read",
        },
        [('Ein "Satz.', "一个。", "하나."), ("Zwei.", "两个。", "둘.")],
        languages=("de", "zh", "ko"),
        split="dev",
        columns=("de", "zh", "ko"),
    ),
    RowsCase(
        "ntrex",
        {
            "NTREX-128/newstest2019-src.eng.txt": "One.\r\nTwo.\r\n",
            "NTREX-128/newstest2019-ref.eng-GB.txt": "One, British.\r\nTwo, British.\r\n",
            "NTREX-128/newstest2019-ref.spa.txt": "Uno.\r\nDos.\r\n",
            "NTREX-128/newstest2019-ref-2.spa.txt": "not read",
            "NTREX-128/newstest2019-ref.zho-TW.txt": "一。\r\n二。\r\n",
            "NTREX-128/DOCUMENT_IDS.tsv": "not read",
        },
        [("One.", "Uno.", "一。"), ("Two.", "Dos.", "二。")],
        languages=("en", "es", "zh-TW"),
        columns=("en", "es", "zh-TW"),
    ),
]

WRONG = [
    WrongCase(
        "tatoeba",
        {"tatoeba.deu-eng.deu": "Ja.\nNein.\n", "tatoeba.deu-eng.eng": "Yes.\n"},
        "{}/tatoeba.deu-eng.deu:2: more lines than {}/tatoeba.deu-eng.eng, which has 1; line i of one must belong to line i of the other",
    ),
    WrongCase(
        "tatoeba",
        {"de-en.de": "Ja.\n", "de-en.en": "Yes.\n"},
        "{}/de-en.de: XTREME sorts the English file, so the lines are not aligned; put the gold test-de.tsv beside it, or read",
    ),
    WrongCase(
        "bucc",
        {"de-en.test.de": "de-000000001\tJa.\n", "de-en.test.en": "en-000000001\tYes.\n"},
        "{}/de-en.test.de: no gold beside it, so no pairs are known; read the sentences with bucc-sentences, or choose another split",
    ),
    WrongCase(
        "bucc",
        {**BUCC_TEXTS, "bucc2018/de-en/de-en.sample.gold": "1\t2\n"},
        "{}/bucc2018/de-en/de-en.sample.de:1: expected two tab-separated ids per line in the gold, id and sentence in the texts,",
    ),
    WrongCase(
        "bucc-sentences",
        {"de-en.dev.de": "Ja.\n", "de-en.dev.en": "Yes.\n"},
        "{}/de-en.dev.de:1: expected id and sentence, tab-separated, ids like de-000000001, found 'Ja.' (no id)",
    ),
    WrongCase("opus-moses", {"News.de-en.de": "Ja.\n"}, "{}/News.de-en.de: the file for 'en' is missing beside it; expected files like"),
    WrongCase(
        "opus-tmx",
        {"de-en.tmx": "<tmx>\n<body>"},
        "{}/de-en.tmx:2: not TMX after 0 units (no element found: line 2, column 6); correct the file",
    ),
    WrongCase(
        "wikimatrix",
        {"WikiMatrix.de-en.tsv": "Ja.\tYes.\t1.1\n"},
        "{}/WikiMatrix.de-en.tsv:1: expected at least 3 tab-separated cells, found score 'Ja.' (score is no number); check that",
    ),
    WrongCase(
        "ccmatrix",
        {"de-en/de.txt": "1.1\tJa.\tYes.\n", "de-en/en.txt": "1.1\tJa.\tYes.\n"},
        "{}/de-en/de.txt:1: expected line number, score and text, tab-separated, ascending by number, found a line that is not",
    ),
    WrongCase("nllb", {"deu_Latn-eng_Latn.gz": "A.\tB.\n"}, "{}/deu_Latn-eng_Latn.gz:1: expected 9 tab-separated cells, found 2 cells"),
    WrongCase("paracrawl", {"en-de.txt.gz": "Only one\n"}, "{}/en-de.txt.gz:1: expected 2 tab-separated cells, found 1 cell"),
    WrongCase("un", {"UNv1.0.6way.en": "A.\n"}, "{}: no file like UNv1.0.en-zh.en; download UNv1.0.xx-yy.tar.gz.00 and so on"),
    WrongCase(
        "un-6way",
        {"UNv1.0.6way.en": "A.\n", "UNv1.0.6way.fr": "A.\nB.\n"},
        "{}/UNv1.0.6way.fr:2: more lines than {}/UNv1.0.6way.en, which has 1",
    ),
    WrongCase(
        "news-commentary",
        {"news-commentary-v15.en-zh.tsv": "\nA.\n"},
        "{}/news-commentary-v15.en-zh.tsv:2: expected 2 tab-separated cells, found 1 cell",
    ),
    WrongCase("cwmt", {"casia2015_en.txt": "A.\n"}, "{}/casia2015_en.txt: the file for 'zh' is missing beside it"),
    WrongCase("muse", {"en-de.txt": "new york new york\n"}, "{}/en-de.txt:1: expected 2 space-separated cells, found 4 cells"),
    WrongCase(
        "flores-200",
        {"dev/deu_Latn.dev": "A.\n", "devtest/deu_Latn.devtest": "A.\n"},
        "{}/dev/deu_Latn.dev: flores-200 has the splits dev, devtest here; choose one as split, or all",
    ),
    WrongCase(
        "ntrex",
        {"newstest2019-src.eng.txt": "A.\n", "newstest2019-ref.deu.txt": "A.\n"},
        "{}/newstest2019-ref.deu.txt: no language 'fr'; there are deu, eng",
        languages=("fr",),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(case: RowsCase, tmp_path: Path) -> None:
    check_rows(case, tmp_path)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_wrong_layout(case: WrongCase, tmp_path: Path) -> None:
    check_wrong(case, tmp_path)


def test_moses_zips_in_a_folder_are_read_as_downloaded(tmp_path: Path) -> None:
    for pair, texts in (("de-en", ("Ja.\n", "Yes.\n")), ("en-fr", ("Yes.\n", "Oui.\n"))):
        with zipfile.ZipFile(tmp_path / f"{pair}.txt.zip", "w") as archive:
            for code, text in zip(pair.split("-"), texts, strict=True):
                archive.writestr(f"Books.{pair}.{code}", text)
            archive.writestr(f"__MACOSX/._Books.{pair}.de", "not read")
            archive.writestr("README", "not read")
    assert read_rows("opus-moses", tmp_path)[1] == [("Ja.", "Yes.", "de", "en"), ("Yes.", "Oui.", "en", "fr")]
    assert read_rows("opus-moses", tmp_path / "en-fr.txt.zip")[1] == [("Yes.", "Oui.", "en", "fr")]
    assert read_rows("opus-moses", tmp_path, ("fra",))[1] == [("Yes.", "Oui.", "en", "fr")]


def test_ccmatrix_must_be_sorted_by_number(tmp_path: Path) -> None:
    check_wrong(
        WrongCase(
            "ccmatrix",
            {"de-en/de.txt": "2\t1.0\tA.\n1\t1.0\tB.\n", "de-en/en.txt": "1\t1.0\tA.\n2\t1.0\tB.\n"},
            "{}/de-en/de.txt:2: number 1 after 2; sort the file by number (sort -nk1)",
        ),
        tmp_path,
    )
