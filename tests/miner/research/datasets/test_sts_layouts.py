"""Readers of semantic textual similarity: exact rows of small releases with the traps of the real ones, and wrong layouts."""

import json
from pathlib import Path

import pytest
from public_data import RowsCase, WrongCase, check_rows, check_wrong, read_rows, write_release

STS22_HEADER = "url1_lang,url2_lang,pair_id,link1,link2,ia_link1,ia_link2,GEO,ENT,TIME,NAR,Overall,STYLE,TONE\n"
KORSTS_HEADER = "genre\tfilename\tyear\tid\tscore\tsentence1\tsentence2\n"
SICK_HEADER = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
JSICK_HEADER = (
    "pair_ID\tdata\tsentence_A_En\tsentence_B_En\tentailment_label_En\trelatedness_score_En\tcorr_entailment_labelAB_En"
    "\tcorr_entailment_labelBA_En\tsentence_A_Ja\tsentence_B_Ja\tentailment_label_Ja\trelatedness_score_Ja\timage_ID\toriginal_caption"
    "\tsemtag_short\tsemtag_long\n"
)


def jsick(pair: str, data: str, english: tuple[str, str, str], japanese: tuple[str, str, str]) -> str:
    cells = [pair, data, english[0], english[1], "neutral", english[2], "", ""]
    return "\t".join([*cells, japanese[0], japanese[1], "neutral", japanese[2], "i", "c", "s", "l"]) + "\n"


def json_lines(*records: dict[str, object]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def year(name: str, folder: str, track: str, other_track: str) -> RowsCase:
    """A pair with a score, one without, and files of other years beside."""
    return RowsCase(
        name,
        {
            f"{folder}/STS.input.{track}.txt": 'A "dog runs.\tA dog walks.\r\nA cat.\tA cow.\r\n\tA hen.\r\nA boy .\tA girl .\r\n',
            f"{folder}/STS.gs.{track}.txt": "3.5\n\n1\n0",
            f"{folder}/STS.input.{other_track}.txt": "One.\tTwo.\n",
            f"{folder}/STS.gs.{other_track}.txt": "5\n",
            f"{folder}/STS.gs.ALL.txt": "not read",
            f"{folder}/STS.gs.SMT.txt": "not read",
            "other-year/STS.input.headlines.txt": "not read",
        },
        [
            ('A "dog runs.', "A dog walks.", "3.5", "en", "en", track),
            ("A boy .", "A girl .", "0", "en", "en", track),
            ("One.", "Two.", "5", "en", "en", other_track),
        ],
        {"no score": 1, "blank": 1},
    )


CASES = [
    year("sts12", "STS12-en-test", "MSRpar", "surprise.OnWN"),
    year("sts13", "STS13-en-test", "FNWN", "OnWN"),
    year("sts14", "sts-en-test-gs-2014", "deft-forum", "tweet-news"),
    year("sts15", "STS15-en-test", "answers-forums", "images"),
    RowsCase(
        "sts16",
        {
            "sts2016-english-with-gs-v1.0/STS2016.input.plagiarism.txt": "A dog.\tA cat.\tsource one\tsource two\nA hen.\tA cow.\tx\ty\n",
            "sts2016-english-with-gs-v1.0/STS2016.gs.plagiarism.txt": "\n4\n",
        },
        [("A hen.", "A cow.", "4", "en", "en", "plagiarism")],
        {"no score": 1},
        title="with its notes on sources",
    ),
    RowsCase(
        "stsb",
        {
            "stsbenchmark/sts-dev.csv": 'main-captions\tMSRvid\t2012test\t0991\t3.400\t"A boy kicks.\tA child, plays.\n'
            "main-news\tx\t2013\t1\t5.000\tOne.\tTwo.\tlicence one\tlicence two\n"
            "main-news\tx\t2013\t2\t1.0\tThree.\n",
        },
        [('"A boy kicks.', "A child, plays.", "3.400", "en", "en", ""), ("One.", "Two.", "5.000", "en", "en", "")],
        {"wrong number of cells": 1},
    ),
    RowsCase(
        "stsb",
        {
            "stsbenchmark.tsv.gz": "split\tgenre\tdataset\tyear\tsid\tscore\tsentence1\tsentence2\n"
            'train\tg\td\t2012\t1\t4.2\tA "b.\tB a.\n'
            "dev\tg\td\t2012\t2\t1.5\tC.\tD.\n"
        },
        [("C.", "D.", "1.5", "en", "en", "")],
        split="dev",
        title="in one file",
    ),
    RowsCase(
        "sts17",
        {
            "STS2017.eval.v1.1/STS.input.track2.ar-en.txt": "A girl reads.\tبنت تقرأ.\n",
            "STS2017.gs/STS.gs.track2.ar-en.txt": "4.6\n",
            "STS2017.eval.v1.1/STS.input.track4b.es-en.txt": "A boat.\tUn barco.\n",
            "STS2017.gs/STS.gs.track4b.es-en.txt": "5\n",
        },
        [
            ("A girl reads.", "بنت تقرأ.", "4.6", "en", "ar", "track2.ar-en"),
            ("A boat.", "Un barco.", "5", "en", "es", "track4b.es-en"),
        ],
        title="whose names have languages the other way round",
    ),
    RowsCase(
        "sts17",
        {
            "STS2017-extended/STS.en-de.txt": 'A "girl reads.\tEin Mädchen liest.\t4.5\n',
            "STS2017-extended/STS.fr-en.txt": "Un bateau.\tA boat.\t5\n",
        },
        [("Un bateau.", "A boat.", "5", "fr", "en", "fr-en")],
        languages=("fr",),
        title="extended",
    ),
    RowsCase(
        "sts17",
        {"test/ko-ko.jsonl.gz": json_lines({"sentence1": "개가 있다.", "sentence2": "개가 없다.", "score": 2.5})},
        [("개가 있다.", "개가 없다.", "2.5", "ko", "ko", "ko-ko")],
        title="of MTEB",
    ),
    RowsCase(
        "sts22",
        {
            "de/test.jsonl": json_lines({"id": "1", "score": 3.5, "sentence1": "Ein Text.\nZweiter Absatz.", "sentence2": "Noch einer."}),
            "de-en/test.jsonl": json_lines(
                {"id": "2", "score": 1, "sentence1": "Ein Text.", "sentence2": "A text."},
                {"id": "3", "score": 1, "sentence1": "", "sentence2": "A text."},
            ),
        },
        [
            ("Ein Text.", "A text.", "1", "de", "en", "de-en"),
            ("Ein Text. Zweiter Absatz.", "Noch einer.", "3.5", "de", "de", "de"),
        ],
        {"blank": 1},
    ),
    RowsCase(
        "sts22-links",
        {
            "final_evaluation_data.csv": STS22_HEADER
            + 'de,en,11_12,"http://a.example/?a=1,2",http://b.example,ia1,ia2,1,1,1,1,1.0,1,1\n'
            + "de,de,13_14,http://c.example,http://d.example,ia1,ia2,1,1,1,1,3.5,1,1\n"
        },
        [
            ("http://a.example/?a=1,2", "http://b.example", "4", "de", "en", "11_12"),
            ("http://c.example", "http://d.example", "1.5", "de", "de", "13_14"),
        ],
    ),
    RowsCase(
        "korsts",
        {
            "KorSTS/sts-dev.tsv": KORSTS_HEADER
            + 'main-news\tx\t2015\t1\t4\t"비가 온다.\t날씨가 맑다.\n'
            + "main-news\tx\t2015\t2\t3.8\t개가 있다.\t개가 없다."
        },
        [('"비가 온다.', "날씨가 맑다.", "4", "ko", "ko", ""), ("개가 있다.", "개가 없다.", "3.8", "ko", "ko", "")],
    ),
    RowsCase(
        "klue-sts",
        {
            "klue-sts-v1.1/klue-sts-v1.1_dev.json": json.dumps(
                [
                    {
                        "guid": "klue-sts-v1_dev_00001",
                        "source": "policy",
                        "sentence1": "비가 온다.",
                        "sentence2": "날씨가\n맑다.",
                        "labels": {"label": 3.7, "real-label": 3.71, "binary-label": 1},
                        "annotations": {"agreement": "0:0", "annotators": [], "annotations": []},
                    }
                ],
                ensure_ascii=False,
                indent=4,
            )
        },
        [("비가 온다.", "날씨가 맑다.", "3.7", "ko", "ko", "")],
    ),
    RowsCase(
        "jsts",
        {
            "jsts-v1.3/valid-v1.3.json": json_lines(
                {"sentence_pair_id": "9", "yjcaptions_id": "1-2-3", "sentence1": "犬が走る。", "sentence2": "犬がいる。", "label": 3.2},
                {"sentence_pair_id": "10", "yjcaptions_id": "1-2-4", "sentence1": "猫。", "sentence2": "犬。", "label": None},
            ),
            "jsts-v1.3/train-v1.3.json": "not read",
            "jnli-v1.3/valid-v1.3.json": "another task, not read",
        },
        [("犬が走る。", "犬がいる。", "3.2", "ja", "ja", "")],
        {"no score": 1},
        split="dev",
    ),
    RowsCase(
        "sick",
        {
            "SICK_trial.txt": SICK_HEADER + "4\tA dog runs\tA dog walks\t3.3\tNEUTRAL\r\n9\tA cat\tA cow\t1\tCONTRADICTION",
            "SICK_test_annotated.txt": "not read",
        },
        [("A dog runs", "A dog walks", "3.3", "en", "en", ""), ("A cat", "A cow", "1", "en", "en", "")],
        split="trial",
    ),
    RowsCase(
        "jsick",
        {
            "jsick/jsick.tsv": JSICK_HEADER
            + jsick("1", "train", ("A dog", "A cat", "2.5"), ("犬", "猫", "2.1"))
            + jsick("2", "trial", ("A hen", "A cow", "1.5"), ("鳥", "牛", "1.1"))
            + jsick("3", "test", ("A boy", "A girl", "3.5"), ("男", "女", "3.1")),
            "jsick/test.tsv": JSICK_HEADER + jsick("3", "test", ("A boy", "A girl", "3.5"), ("男", "女", "3.1")),
            "jsick/train.tsv": "not read, as it has no scores",
            "jsick-stress/del_ga_o/test.tsv": "not read",
        },
        [("A dog", "A cat", "2.5", "en", "en", "en"), ("犬", "猫", "2.1", "ja", "ja", "ja")],
        split="train",
    ),
    RowsCase(
        "jsick",
        {"jsick/test.tsv": JSICK_HEADER + jsick("3", "test", ("A boy", "A girl", "3.5"), ('"男', "女", "3.1"))},
        [('"男', "女", "3.1", "ja", "ja", "ja")],
        languages=("ja",),
        title="test in Japanese",
    ),
]

WRONG = [
    WrongCase(
        "sts12",
        {"STS12-en-test/STS.input.MSRpar.txt": "A.\tB.\n"},
        "{}/STS12-en-test/STS.input.MSRpar.txt: the file for 'gs' is missing beside it; expected files like STS.input.MSRpar.txt",
    ),
    WrongCase(
        "sts13",
        {"STS.input.FNWN.txt": "A.\tB.\nC.\tD.\n", "STS.gs.FNWN.txt": "1\n"},
        "{}/STS.input.FNWN.txt:2: more lines than {}/STS.gs.FNWN.txt, which has 1; line i of one must belong to line i of the other",
    ),
    WrongCase(
        "sts14",
        {"STS.input.images.txt": "A.\nB.\n", "STS.gs.images.txt": "1\n2\n"},
        "{}/STS.gs.images.txt:1: expected two tab-separated sentences per line in the input, one score per line in the gs file,",
    ),
    WrongCase(
        "sts15",
        {"STS.input.belief.txt": "A.\tB.\n", "STS.gs.belief.txt": "high\n"},
        "{}/STS.gs.belief.txt:1: expected two tab-separated sentences per line in the input, one score per line in the gs file,",
    ),
    WrongCase("sts16", {"STS.input.images.txt": ""}, "{}: no file like STS.input.answer-answer.txt"),
    WrongCase(
        "stsb",
        {"sts-dev.csv": "sentence1,sentence2,score\nA.,B.,1\n"},
        "{}/sts-dev.csv:1: expected 7 or 9 tab-separated cells, found 1 cell (wrong number of cells); check that it is STS Benchmark",
    ),
    WrongCase(
        "sts17",
        {"STS.input.track5.en-en.txt": "A.\tB.\nC.\tD.\n", "STS.gs.track5.en-en.txt": "1\n"},
        "{}/STS.input.track5.en-en.txt:2: more lines than {}/STS.gs.track5.en-en.txt, which has 1",
    ),
    WrongCase(
        "sts22", {"de/test.jsonl": '{"text": "A."}\n'}, "{}/de/test.jsonl:1: expected one JSON object per line, with the keys sentence1,"
    ),
    WrongCase(
        "sts22-links",
        {"final_evaluation_data.csv": STS22_HEADER.replace(",", "\t")},
        "{}/final_evaluation_data.csv:1: expected a header with 'link1' (comma-separated columns link1, link2, url1_lang, url2_lang",
    ),
    WrongCase("korsts", {"sts-dev.tsv": "sentence1\tsentence2\tlabel\n"}, "{}/sts-dev.tsv:1: expected a header with 'score'"),
    WrongCase(
        "klue-sts",
        {"klue-sts-v1.1_dev.json": '{"sentence1": "A."}'},
        "{}/klue-sts-v1.1_dev.json:1: expected one JSON array of objects with the keys sentence1, sentence2, labels.label, found an object",
    ),
    WrongCase(
        "jsts",
        {"valid-v1.3.json": '[\n{"sentence1": "犬。"}\n]\n'},
        "{}/valid-v1.3.json:1: expected one JSON object per line, with the keys sentence1, sentence2, label, found '[' (not JSON)",
    ),
    WrongCase("sick", {"SICK_train.txt": "pair_ID\tsentence_A\n"}, "{}/SICK_train.txt:1: expected a header with 'sentence_B'"),
    WrongCase("jsick", {"jsick.tsv": SICK_HEADER}, "{}/jsick.tsv:1: expected a header with 'sentence_A_En'", split="train"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(case: RowsCase, tmp_path: Path) -> None:
    check_rows(case, tmp_path)


@pytest.mark.parametrize("case", WRONG, ids=str)
def test_wrong_layout(case: WrongCase, tmp_path: Path) -> None:
    check_wrong(case, tmp_path)


def test_sts17_track_6_has_500_inputs_for_250_scores(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "STS.input.track6.tr-en.txt": "".join(f"Line {number}.\tSatır {number}.\n" for number in range(1, 501)),
        "STS.gs.track6.tr-en.txt": "".join(f"{number / 50}\n" for number in range(1, 251)),
    }
    _, rows, dropped = read_rows("sts17", write_release(tmp_path, files))
    assert rows == [(f"Line {number}.", f"Satır {number}.", str(number / 50), "en", "tr", "track6.tr-en") for number in range(1, 251)]
    assert dropped == {}


def test_all_years_below_one_folder_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for number in ("13", "14", "15", "16"):
        files[f"STS/STS{number}-en-test/STS.input.headlines.txt"] = f"Headline of {number}.\tAnother.\n"
        files[f"STS/STS{number}-en-test/STS.gs.headlines.txt"] = "2\n"
    folder = write_release(tmp_path, files)
    for number in ("13", "14", "15", "16"):
        assert read_rows(f"sts{number}", folder)[1] == [(f"Headline of {number}.", "Another.", "2", "en", "en", "headlines")]
