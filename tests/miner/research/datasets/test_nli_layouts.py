"""Readers of inference and paraphrase data: exact rows of small releases with the traps of the real ones, and wrong layouts."""

import json
from pathlib import Path

import pytest
from public_data import RowsCase, WrongCase, check_rows, check_wrong

SNLI_HEADER = (
    "gold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tcaptionID\tpairID"
    "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\n"
)
XNLI_HEADER = (
    "language\tgold_label\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2\tpromptID"
    "\tpairID\tgenre\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tsentence1_tokenized\tsentence2_tokenized\tmatch\n"
)


def xnli(lang: str, label: str, premise: str, hypothesis: str, pair: str) -> str:
    cells = [lang, label, "", "", "", "", premise, hypothesis, pair, pair, "letters", *["neutral"] * 5, "x .", "y .", "True"]
    return "\t".join(cells) + "\n"


def snli_json(label: str, premise: str, hypothesis: str, pair: str) -> str:
    return (
        json.dumps({"annotator_labels": [label], "gold_label": label, "sentence1": premise, "sentence2": hypothesis, "pairID": pair}) + "\n"
    )


CASES = [
    RowsCase(
        "simcse-nli",
        {
            "nli_for_simcse.csv": "\ufeffsent0,sent1,hard_neg\r\n"
            '"A man, in red, cooks.",A person prepares food.,Nobody is cooking.\r\n'
            '"She said ""stop"".","Two\nlines here.",Silence.\r\n'
            "A cat sleeps.,,A dog runs.\r\n"
        },
        [
            ("A man, in red, cooks.", "A person prepares food.", "Nobody is cooking."),
            ('She said "stop".', "Two lines here.", "Silence."),
        ],
        {"blank": 1},
    ),
    RowsCase(
        "msimcse-nli",
        {
            "nli_merged_all.csv": "sent0,sent1,hard_neg\n"
            "Der Hund schläft,Le chien dort,El perro corre\n"
            '"A man, in red, cooks.",A person prepares food.,Nobody is cooking.\n'
            '"This quoted cell is\n'
            'broken by the shuffle",one,two\n'
            "Eine Katze,,Un chat\n"
            "sent0,sent1,hard_neg\n"
        },
        [
            ("Der Hund schläft", "Le chien dort", "El perro corre"),
            ("A man, in red, cooks.", "A person prepares food.", "Nobody is cooking."),
        ],
        {"broken quotes": 2, "blank": 1, "header again": 1},
        title="of lines that are shuffled",
    ),
    RowsCase(
        "wiki1m",
        {"wiki1m_for_simcse.txt": 'The river is "long\n\nIt has\u2028two\x85parts .\r\nLast line without an end'},
        [('The river is "long', "en"), ("It has two parts .", "en"), ("Last line without an end", "en")],
        {"blank": 1},
    ),
    RowsCase("wiki1m", {"my.txt": "One line.\n"}, [("One line.", "en")], path="my.txt", title="under another name"),
    RowsCase(
        "snli",
        {
            "snli_1.0/snli_1.0_dev.txt": SNLI_HEADER
            + 'neutral\t( x )\t( y )\t(R x)\t(R y)\t"Two cats sleep.\tCats dream of fish.\t77.jpg#1\t77.jpg#1r1n\tneutral\t\t\t\t\n'
            + "-\t( x )\t( y )\t(R x)\t(R y)\tA dog.\tA cat.\t78.jpg#1\t78.jpg#1r1c\tneutral\tentailment\t\t\t\n"
            + "entailment\t( x )\t( y )\t(R x)\t(R y)\tA dog runs.\tAn animal moves.\t79.jpg#1\t79.jpg#1r1e\tentailment\n",
        },
        [
            ('"Two cats sleep.', "Cats dream of fish.", "neutral", "en", "77.jpg#1r1n"),
            ("A dog runs.", "An animal moves.", "entailment", "en", "79.jpg#1r1e"),
        ],
        {"no label": 1},
        title="as text",
    ),
    RowsCase(
        "snli",
        {
            "snli_1.0/snli_1.0_dev.jsonl": snli_json("contradiction", "A dog runs.", "A dog sleeps.", "1c")
            + snli_json("-", "A dog runs.", "A dog barks.", "1n"),
            "snli_1.0/snli_1.0_dev.txt": "the same rows once more",
        },
        [("A dog runs.", "A dog sleeps.", "contradiction", "en", "1c")],
        {"no label": 1},
        title="as JSON lines, which are preferred",
    ),
    RowsCase(
        "snli",
        {"s1.dev.gz": "Two cats sleep .\nA dog .\n", "s2.dev.gz": "Cats dream .\nA cat .\n", "labels.dev.gz": "neutral\nentailment\n"},
        [("Two cats sleep .", "Cats dream .", "neutral", "en", "1"), ("A dog .", "A cat .", "entailment", "en", "2")],
        title="of SentEval",
    ),
    RowsCase(
        "multinli",
        {
            "multinli_1.0/multinli_1.0_dev_matched.txt": SNLI_HEADER.replace("captionID", "promptID").replace("pairID", "pairID\tgenre")
            + "-\t\t\t\t\tYou know.\tI do.\t1\t1n\tletters\tneutral\n"
            + "entailment\t\t\t\t\tHe left.\tHe is gone.\t2\t2e\tletters\tentailment\tentailment\n",
            "multinli_1.0/multinli_1.0_dev_mismatched.txt": "not read",
        },
        [("He left.", "He is gone.", "entailment", "en", "2e")],
        {"no label": 1},
        split="dev_matched",
    ),
    RowsCase(
        "xnli",
        {
            "XNLI-1.0/xnli.dev.tsv": XNLI_HEADER
            + xnli("fr", "neutral", "Il part tôt.", 'Il prend "le bus.', "12")
            + xnli("de", "neutral", "Er geht früh.", "Er nimmt den Bus.", "12")
            + xnli("en", "neutral", "He leaves early.", "He takes the bus.", "12")
            + xnli("fr", "entailment", "", "Elle dort.", "13")
            + xnli("de", "entailment", "Sie schläft tief.", "Sie schläft.", "13")
        },
        [
            ("Il part tôt.", 'Il prend "le bus.', "neutral", "fr", "12"),
            ("Er geht früh.", "Er nimmt den Bus.", "neutral", "de", "12"),
        ],
        {"blank": 1, "dropped in another language": 1},
        languages=("deu", "fra_Latn"),
    ),
    RowsCase(
        "xnli-mt",
        {
            "XNLI-MT-1.0/multinli/multinli.train.de.tsv": "premise\thypo\tlabel\n"
            'Er kam spät nach Hause .\tEr war " müde " .\tcontradictory\n'
            "Ja , das stimmt .\tNein .\tneutral\n",
            "XNLI-MT-1.0/multinli/multinli.train.fr.tsv": "premise\thypo\tlabel\n"
            "Il l&apos; a vu .\tIl était fatigué .\tcontradictory\n\tNon .\tneutral\n",
            "XNLI-MT-1.0/multinli/multinli.train.zh.tsv": "premise\thypo\tlabel\n"
            "他 很 晚 回家 。\t他 累 了 。\tcontradictory\n对 ， 是 。\t不 。\tneutral\n",
        },
        [
            ("Er kam spät nach Hause.", 'Er war "müde".', "contradiction", "de", "1"),
            ("Il l'a vu.", "Il était fatigué.", "contradiction", "fr", "1"),
            ("他很晚回家。", "他累了。", "contradiction", "zh", "1"),
        ],
        {"blank": 1, "dropped in another language": 2},
        path="XNLI-MT-1.0/multinli",
    ),
    RowsCase(
        "xtreme-xnli",
        {"xnli/dev-de.tsv": 'Er sagt "ja.\tEr nickt.\tentailment\n"Sie sagt ""nein"", leise."\tSie schweigt.\tcontradictory\n'},
        [
            ('Er sagt "ja.', "Er nickt.", "entailment", "de", "1"),
            ('Sie sagt "nein", leise.', "Sie schweigt.", "contradiction", "de", "2"),
        ],
    ),
    RowsCase(
        "xtreme-xnli",
        {"xnli/test-de.tsv": "Er geht.\tEr läuft.\n", "xnli/train-en.tsv": "He goes.\tHe runs.\tneutral\n"},
        [("Er geht.", "Er läuft.", "", "de", "1")],
        split="test",
        title="test, which has no labels",
    ),
    RowsCase(
        "xtreme-pawsx",
        {
            "pawsx/dev-fr.tsv": "Un fleuve.\tLe fleuve.\t1\nUne rue.\tUn pont.\t0\nUne rue.\tUne place.\t\n",
            "pawsx/dev-de.tsv": "Ein Fluss.\tDer Fluss.\t1\nNS\tEine Brücke.\t0\nEine Straße.\tEin Platz.\t1\n",
        },
        [("Ein Fluss.", "Der Fluss.", "1", "de", "1"), ("Un fleuve.", "Le fleuve.", "1", "fr", "1")],
        {"no label": 1, "cell is NS": 1, "dropped in another language": 2},
    ),
    RowsCase(
        "xtreme-xnli-translate-train",
        {
            "XNLI/translate-train/en-de-translated.tsv": "The bridge is new.\tIt is old."
            "\tDie Brücke ist neu.\tSie ist alt.\tcontradictory\n",
            "XNLI/translate-train/en-fr-translated.tsv": "The bridge is new.\tIt is old."
            "\tLe pont est neuf.\tIl est vieux.\tcontradictory\n",
        },
        [
            ("Die Brücke ist neu.", "Sie ist alt.", "contradiction", "de", "1"),
            ("The bridge is new.", "It is old.", "contradiction", "en", "1"),
            ("Le pont est neuf.", "Il est vieux.", "contradiction", "fr", "1"),
        ],
    ),
    RowsCase(
        "xtreme-pawsx-translate-train",
        {"PAWSX/translate-train/en-de-translated.tsv": 'A "b.\tB a.\tEin "B.\tB ein.\t1\nC.\tD.\tEin C.\tEin D.\tEin\n'},
        [('Ein "B.', "B ein.", "1", "de", "1")],
        {"unknown label": 1},
        languages=("de",),
    ),
    RowsCase(
        "xnli-15way",
        {
            "XNLI-15way/xnli.15way.orig.tsv": 'ar\tde\ten\nأ\tEin "Haus\tA house\nب\t\tA tree\nت\tEin Weg\tA way\n',
            "XNLI-15way/xnli.15way.tok.tsv": "not read",
        },
        [("A house", 'Ein "Haus'), ("A way", "Ein Weg")],
        {"blank": 1},
        languages=("eng", "de"),
        columns=("eng", "de"),
    ),
    RowsCase(
        "jsnli",
        {"jsnli_1.1/train_w_filtering.tsv": "neutral\t駅 に 人 が いる 。\t雨　が ﾌﾙ 。\nentailment\t犬 が いる 。\t動物 が いる 。"},
        [("駅に人がいる。", "雨がフル。", "neutral", "ja", "1"), ("犬がいる。", "動物がいる。", "entailment", "ja", "2")],
    ),
    RowsCase(
        "kornli",
        {
            "KorNLI/multinli.train.ko.tsv": "sentence1\tsentence2\tgold_label\n"
            '"비가 온다.\t날씨가 맑다.\tcontradiction\n비가 온다.\tcontradiction\n',
            "KorNLI/snli_1.0_train.ko.tsv": "sentence1\tsentence2\tgold_label\n개가 있다.\t동물이 있다.\tentailment\n",
            "KorNLI/xnli.dev.ko.tsv": "not read",
        },
        [
            ('"비가 온다.', "날씨가 맑다.", "contradiction", "ko", "1"),
            ("개가 있다.", "동물이 있다.", "entailment", "ko", "1"),
        ],
        {"wrong number of cells": 1},
        split="train",
    ),
    RowsCase(
        "paws-x",
        {
            "x-final/en/dev_2k.tsv": "id\tsentence1\tsentence2\tlabel\n"
            "1\tHe lives in Delphos .\tIn Delphos he lives .\t1\n2\tA b .\tB a .\t0\n3\tC d .\tD c .\t1\n"
            "4\tE f .\tF e .\t0\n5\tG .\tH .\t1\n",
            "x-final/de/dev_2k.tsv": "id\tsentence1\tsentence2\tlabel\r\n"
            '1\tEr lebt in "Delphos.\tIn Delphos lebt er.\t1\r\n2\tNS\tB a.\t0\r\n3\t\t\t0\r\n4\tE f.\tF e.\t\r\n5\tG.\tH.\t1\r\n',
            "x-final/fr/dev_2k.tsv": "not read",
        },
        [
            ('Er lebt in "Delphos.', "In Delphos lebt er.", "1", "de", "1"),
            ("G.", "H.", "1", "de", "5"),
            ("He lives in Delphos .", "In Delphos he lives .", "1", "en", "1"),
            ("G .", "H .", "1", "en", "5"),
        ],
        {"cell is NS": 1, "blank": 1, "no label": 1, "dropped in another language": 3},
        languages=("de", "en"),
    ),
    RowsCase(
        "paws-x",
        {
            "x-final/en/train.tsv": "id\tsentence1\tsentence2\tlabel\n7\tA .\tB .\t0\n",
            "x-final/de/translated_train.tsv": "id\tsentence1\tsentence2\tlabel\n7\tEin A.\tEin B.\t0\n",
        },
        [("Ein A.", "Ein B.", "0", "de", "7"), ("A .", "B .", "0", "en", "7")],
        split="train",
        title="train, which has another name in English",
    ),
    RowsCase(
        "paws-wiki",
        {"final/test.tsv": "id\tsentence1\tsentence2\tlabel\n1\tA b .\tB a .\t0\n2\tC d .\tD c .\t1\n"},
        [("A b .", "B a .", "0", "en", "1"), ("C d .", "D c .", "1", "en", "2")],
        path="final/test.tsv",
    ),
]

WRONG = [
    WrongCase(
        "simcse-nli",
        {"nli_for_simcse.csv": "a,b,c\n1,2,3\n"},
        "{}/nli_for_simcse.csv:1: expected a header with 'sent0' (comma-separated columns sent0, sent1, hard_neg), found a, b, c; check",
    ),
    WrongCase(
        "msimcse-nli",
        {"nli_merged_all.csv": "sent0\tsent1\thard_neg\n"},
        "{}/nli_merged_all.csv:1: expected a header with 'sent0' (comma-separated columns sent0, sent1, hard_neg), found sent0",
    ),
    WrongCase("wiki1m", {"wiki1m_for_simcse.txt": b"one\ntwo \xff\n"}, "{}/wiki1m_for_simcse.txt:2: not UTF-8; download"),
    WrongCase(
        "snli",
        {"snli_1.0_dev.txt": "premise\thypothesis\tlabel\nA.\tB.\tneutral\n"},
        "{}/snli_1.0_dev.txt:1: expected a header with 'sentence1' (tab-separated columns sentence1, sentence2, gold_label, pairID), found"
        " premise, hypothesis, label; check the file",
    ),
    WrongCase(
        "multinli",
        {"multinli_1.0_train.jsonl": '{"premise": "A.", "hypothesis": "B."}\n'},
        "{}/multinli_1.0_train.jsonl:1: expected one JSON object per line, with the keys sentence1, sentence2, gold_label, pairID,"
        " found no key 'sentence1' among premise, hypothesis (missing key); check that it is MultiNLI 1.0 as published, see",
    ),
    WrongCase("xnli", {"xnli.dev.tsv": "lang\tpremise\n"}, "{}/xnli.dev.tsv:1: expected a header with 'sentence1'"),
    WrongCase(
        "xnli-mt",
        {
            "multinli.train.de.tsv": "premise\thypo\tlabel\nA\tB\tneutral\nA\tC\tneutral\n",
            "multinli.train.fr.tsv": "premise\thypo\tlabel\nA\tB\tneutral\n",
        },
        "{}/multinli.train.fr.tsv: 1 rows, but {}/multinli.train.de.tsv has 2; row i must be the same example in every language",
    ),
    WrongCase(
        "xtreme-xnli",
        {"xnli/dev-de.tsv": "\nA.\tB.\t0\nA.\tC.\t1\n"},
        "{}/xnli/dev-de.tsv:2: expected 2 or 3 tab-separated cells, found label '0' (unknown label); check that it is XNLI",
    ),
    WrongCase(
        "xtreme-pawsx",
        {"pawsx/dev-de.tsv": "1\tA.\tB.\t0\n"},
        "{}/pawsx/dev-de.tsv:1: expected 2 or 3 tab-separated cells, found 4 cells (wrong number of cells)",
    ),
    WrongCase(
        "xtreme-xnli-translate-train",
        {"XNLI/translate-train/en-de-translated.tsv": "A.\tB.\tneutral\n"},
        "{}/XNLI/translate-train/en-de-translated.tsv:1: expected 5 tab-separated cells, found 3 cells",
    ),
    WrongCase(
        "xtreme-pawsx-translate-train",
        {"PAWSX/translate-train/en-de-translated.tsv": "A.\tB.\tC.\tD.\tneutral\n"},
        "{}/PAWSX/translate-train/en-de-translated.tsv:1: expected 5 tab-separated cells, found label 'neutral'",
    ),
    WrongCase(
        "xnli-15way",
        {"xnli.15way.orig.tsv": "Ein ganzer Satz steht hier.\tA whole sentence is here.\n"},
        "{}/xnli.15way.orig.tsv:1: expected a header of language codes",
    ),
    WrongCase("jsnli", {"dev.tsv": "駅\t雨\tneutral\n"}, "{}/dev.tsv:1: expected 3 tab-separated cells, found label '駅' (unknown label)"),
    WrongCase("kornli", {"xnli.dev.ko.tsv": "a\tb\n"}, "{}/xnli.dev.ko.tsv:1: expected a header with 'sentence1'"),
    WrongCase(
        "paws-x",
        {"dev_2k.tsv": "id\tsentence1\tsentence2\tlabel\n"},
        "{}: no file like x-final/de/dev_2k.tsv; download x-final.tar.gz, keep its file names, and name the file or its folder",
    ),
    WrongCase("paws-wiki", {"final/dev.tsv": "id\tsentence1\tlabel\n"}, "{}/final/dev.tsv:1: expected a header with 'sentence2'"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(case: RowsCase, tmp_path: Path) -> None:
    check_rows(case, tmp_path)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_wrong_layout(case: WrongCase, tmp_path: Path) -> None:
    check_wrong(case, tmp_path)
