"""Layouts of semantic textual similarity: two sentences and a score."""

from collections.abc import Iterator
from dataclasses import dataclass

from miner.research.datasets.delimited import DelimitedRows
from miner.research.datasets.json_rows import JsonArray, JsonLines
from miner.research.datasets.layout import KINDS, DatasetForm, DatasetLayout, Dropped, FileGroup, FilePattern, Record, Request
from miner.research.datasets.line_aligned import PairsAndScores

SPLIT = "(?P<split>train|dev|test)"
ENGLISH = {"lang": "en"}
SENTENCES = {"sentence1": "sentence1", "sentence2": "sentence2", "score": "score"}
STS_ROLES = ("input", "gs")

# Year -> folders of SentEval and of SemEval, and names of the files with scores. STS.gs.SMT of 2013 has no input.
STS_YEARS = {
    "12": (("STS12-en-test", "test-gold"), ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")),
    "13": (("STS13-en-test", "test-gs"), ("FNWN", "headlines", "OnWN")),
    "14": (
        ("STS14-en-test", "sts-en-test-gs-2014"),
        ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    ),
    "15": (
        ("STS15-en-test", "test_evaluation_task2a"),
        ("answers-forums", "answers-students", "belief", "headlines", "images"),
    ),
    "16": (
        ("STS16-en-test", "sts2016-english-with-gs-v1.0"),
        ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
    ),
}

# Track -> languages of its first and second column, which the name of the file may have the other way round.
STS17_TRACKS = {
    "track1.ar-ar": ("ar", "ar"),
    "track2.ar-en": ("en", "ar"),
    "track3.es-es": ("es", "es"),
    "track4a.es-en": ("es", "en"),
    "track4b.es-en": ("en", "es"),
    "track5.en-en": ("en", "en"),
    "track6.tr-en": ("en", "tr"),
}
STS17_LIMITS = {"track6.tr-en": 250}  # its input has 500 lines
PAIR = "(?P<l1>[a-z]{2})-(?P<l2>[a-z]{2})"


@dataclass(frozen=True)
class Similarity:
    """Rows with a score from 1, the same, to 4, unrelated: 5 - score."""

    rows: DelimitedRows

    @property
    def expected(self) -> str:
        return self.rows.expected

    def __call__(self, group: FileGroup, request: Request) -> Iterator[Record]:
        for line, cells in self.rows(group, request):
            if not isinstance(cells, Dropped):
                try:
                    cells = {**cells, "score": f"{5 - float(cells['score']):g}"}
                except ValueError:
                    cells = Dropped("score is no number", f"Overall {cells['score']!r}")
            yield line, cells


def _sts_year(year: str) -> DatasetLayout:
    folders, names = STS_YEARS[year]
    tracks = "|".join(name.replace(".", r"\.") for name in names)
    file = rf"STS(?:20{year})?\.(?P<role>input|gs)\.(?P<track>{tracks})\.txt"
    prefixes = [*(folder.replace(".", r"\.") + "/" for folder in folders), ""]
    return DatasetLayout(
        f"sts{year}",
        f"STS 20{year}",
        KINDS["sts"],
        f"{folders[0]} of SentEval, or {folders[1]} of SemEval",
        tuple(
            DatasetForm(f"STS.input.{names[0]}.txt", (FilePattern(prefix + file, ENGLISH),), PairsAndScores(), roles=STS_ROLES)
            for prefix in prefixes
        ),
        notes="A pair without a score is dropped. `track` is the name of the file.",
    )


def _splits(regex: str, lang: str, splits: tuple[str, ...]) -> tuple[FilePattern, ...]:
    """One file that has all splits, which a column says."""
    return tuple(FilePattern(regex, {"split": split, "lang": lang}) for split in splits)


JSICK_COLUMNS = {
    code: {"sentence1": f"sentence_A_{name}", "sentence2": f"sentence_B_{name}", "score": f"relatedness_score_{name}"}
    for code, name in (("en", "En"), ("ja", "Ja"))
}

LAYOUTS = (
    *(_sts_year(year) for year in STS_YEARS),
    DatasetLayout(
        "stsb",
        "STS Benchmark",
        KINDS["sts"],
        "Stsbenchmark.tar.gz, SentEval's copy, or stsbenchmark.tsv.gz",
        (
            DatasetForm(
                "sts-train.csv",
                (FilePattern(rf"sts-{SPLIT}\.csv", ENGLISH),),
                DelimitedRows({"score": 4, "sentence1": 5, "sentence2": 6}, cells=(7, 9)),
            ),
            DatasetForm(
                "stsbenchmark.tsv.gz",
                _splits(r"stsbenchmark\.tsv", "en", ("train", "dev", "test")),
                DelimitedRows(SENTENCES, header=True, where=("split", {"train": "train", "dev": "dev", "test": "test"})),
            ),
        ),
        licence="scores CC BY-SA 4.0, texts by source",
        notes="sts-train.csv is tab-separated without quoting, whatever its name says.",
    ),
    DatasetLayout(
        "sts17",
        "STS 2017, 7 tracks of SemEval, or the 11 pairs of later copies",
        KINDS["sts"],
        "STS2017.eval.v1.1 and STS2017.gs, STS2017-extended.zip, or mteb/sts17-crosslingual-sts",
        (
            DatasetForm(
                "STS.input.track5.en-en.txt",
                tuple(
                    FilePattern(rf"STS\.(?P<role>input|gs)\.(?P<track>{track.replace('.', '[.]')})\.txt", {"l1": first, "l2": second})
                    for track, (first, second) in STS17_TRACKS.items()
                ),
                PairsAndScores(STS17_LIMITS),
                roles=STS_ROLES,
            ),
            DatasetForm(
                "STS2017-extended/STS.en-de.txt",
                (FilePattern(rf"STS\.(?P<track>{PAIR})\.txt"),),
                DelimitedRows({"sentence1": 0, "sentence2": 1, "score": 2}, cells=(3,)),
            ),
            DatasetForm(
                "test/en-de.jsonl.gz",
                (FilePattern(rf"test/(?P<track>{PAIR})\.jsonl"), FilePattern(rf"(?P<track>{PAIR})/test\.jsonl")),
                JsonLines(SENTENCES),
            ),
        ),
        licence="CC BY-SA 4.0",
        notes="lang1 and lang2 are the languages of the columns in SemEval's files, whose names have some pairs the other way round."
        " Track 6 has 500 inputs for 250 scores: the first 250 are read.",
    ),
    DatasetLayout(
        "sts22",
        "STS 2022 with texts, as MTEB publishes it",
        KINDS["sts"],
        "the folders of mteb/sts22-crosslingual-sts",
        (
            DatasetForm(
                "de/test.jsonl",
                (
                    FilePattern(r"(?P<track>(?P<lang>[a-z]{2}))/(?P<split>train|test)\.jsonl"),
                    FilePattern(rf"(?P<track>{PAIR})/(?P<split>train|test)\.jsonl"),
                ),
                JsonLines(SENTENCES),
            ),
        ),
        notes="Scores are 5 - Overall already: the higher, the more similar.",
    ),
    DatasetLayout(
        "sts22-links",
        "STS 2022 as SemEval publishes it: links to articles, no texts",
        KINDS["scored links"],
        "semeval-2022_task8_train-data_batch*.csv, final_evaluation_data.csv",
        (
            DatasetForm(
                "final_evaluation_data.csv",
                (
                    FilePattern(r"semeval-2022_task8_train-data_batch(?P<part>[^/]*)\.csv", {"split": "train"}),
                    FilePattern(r"final_evaluation_data\.csv", {"split": "test"}),
                ),
                Similarity(
                    DelimitedRows(
                        {
                            "link1": "link1",
                            "link2": "link2",
                            "lang1": "url1_lang",
                            "lang2": "url2_lang",
                            "id": "pair_id",
                            "score": "Overall",
                        },
                        header=True,
                        delimiter=",",
                        quoted=True,
                    )
                ),
            ),
        ),
        notes="The articles must be fetched. The score is 5 - Overall, as MTEB has it: the higher, the more similar.",
    ),
    DatasetLayout(
        "korsts",
        "KorSTS, STS in Korean",
        KINDS["sts"],
        "KorSTS/ of kakaobrain/KorNLUDatasets",
        (
            DatasetForm(
                "sts-train.tsv",
                (FilePattern(rf"sts-{SPLIT}\.tsv", {"lang": "ko"}),),
                DelimitedRows(SENTENCES, header=True, cells=(7,)),
            ),
        ),
        licence="CC BY-SA 4.0",
    ),
    DatasetLayout(
        "klue-sts",
        "KLUE-STS 1.1, STS in Korean",
        KINDS["sts"],
        "klue_benchmark/klue-sts-v1.1 of KLUE-benchmark/KLUE",
        (
            DatasetForm(
                "klue-sts-v1.1_dev.json",
                (FilePattern(r"klue-sts-v1(?:\.1)?_(?P<split>train|dev)\.json", {"lang": "ko"}),),
                JsonArray({"sentence1": "sentence1", "sentence2": "sentence2", "score": "labels.label"}),
            ),
        ),
        licence="CC BY-SA 4.0",
    ),
    DatasetLayout(
        "jsts",
        "JSTS of JGLUE, STS in Japanese",
        KINDS["sts"],
        "datasets/jsts-v1.3 of yahoojapan/JGLUE",
        tuple(  # other tasks of JGLUE have files of the same names
            DatasetForm(
                "valid-v1.3.json",
                (FilePattern(rf"{prefix}(?P<split>train|valid|test)-v1\.[13]\.json", {"lang": "ja"}),),
                JsonLines({**SENTENCES, "score": "label"}),
            )
            for prefix in (r"jsts-v1\.[13]/", "")
        ),
        splits={"valid": "dev"},
        licence="CC BY-SA 4.0",
    ),
    DatasetLayout(
        "sick",
        "SICK, relatedness of English sentences",
        KINDS["sts"],
        "SICK_train.txt, SICK_trial.txt, SICK_test_annotated.txt",
        (
            DatasetForm(
                "SICK_trial.txt",
                (FilePattern(r"SICK_(?P<split>train|trial|test_annotated)\.txt", ENGLISH),),
                DelimitedRows({"sentence1": "sentence_A", "sentence2": "sentence_B", "score": "relatedness_score"}, header=True),
            ),
        ),
        splits={"trial": "dev", "test_annotated": "test"},
        notes="Scores are 1 to 5.",
    ),
    DatasetLayout(
        "jsick",
        "JSICK, SICK in English and Japanese",
        KINDS["sts"],
        "jsick/ of verypluming/JSICK",
        tuple(
            DatasetForm(
                "jsick/jsick.tsv",
                tuple(
                    FilePattern(rf"{prefix}{name}\.tsv", {"split": split, "lang": code, "track": code})
                    for name, split in (("jsick", "train"), ("jsick", "dev"), ("test", "test"))
                    for code in JSICK_COLUMNS
                ),
                DelimitedRows(
                    {}, header=True, lang_columns=JSICK_COLUMNS, where=("data", {"train": "train", "trial": "dev", "test": "test"})
                ),
            )
            for prefix in ("jsick/", "")
        ),
        splits={"trial": "dev"},
        licence="CC BY 4.0 by its README, CC BY-SA 4.0 by its LICENSE",
        notes="train and dev are the rows of jsick.tsv, as train.tsv has no scores. Scores are 1 to 5.",
    ),
)
