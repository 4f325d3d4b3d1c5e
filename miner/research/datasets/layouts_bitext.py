"""Layouts of translations: test sets of retrieval and mining, parallel corpora, dictionaries."""

from miner.research.datasets.delimited import DelimitedRows
from miner.research.datasets.documents import TranslationMemory
from miner.research.datasets.gold_pairs import BuccObject, BuccPairs, BuccSentences, JoinedByNumber, SortedEnglish
from miner.research.datasets.layout import KINDS, DatasetForm, DatasetLayout, FilePattern
from miner.research.datasets.line_aligned import AlignedText, Translations

CODE = "[a-z]{2,3}(?:_[A-Za-z]{2,4})?"
PAIR = f"(?P<l1>{CODE})-(?P<l2>{CODE})"
SIDE = "(?P<role>(?P=l1)|(?P=l2))"
BUCC_PAIR = "(?P<l1>de|fr|ru|zh)-(?P<l2>en)"
BUCC_SPLIT = "(?P<split>sample|training|dev|test)"

BUCC_TEXTS = FilePattern(rf"{BUCC_PAIR}\.{BUCC_SPLIT}\.(?P<role>(?P=l1)|en)")
BUCC_GOLD = FilePattern(rf"{BUCC_PAIR}\.{BUCC_SPLIT}\.(?P<role>gold)")
BUCC_LABELS = FilePattern(r"test-(?P<l1>de|fr|ru|zh)\.tsv", {"l2": "en", "split": "test", "role": "gold"})
BUCC_DOWNLOAD = "bucc2018-xx-en.{training-gold,sample-gold,test}.tar.bz2, or bucc2018/ of XTREME"

MOSES = DatasetForm("Tatoeba.de-en.de", (FilePattern(rf"(?P<part>[^/]+)\.{PAIR}\.{SIDE}"),), Translations(), roles=())
MARGIN_FIRST = DelimitedRows({"score": 0, "source": 1, "target": 2})
PLAIN_PAIRS = DelimitedRows({"source": 0, "target": 1}, cells=(2,))

LAYOUTS = (
    DatasetLayout(
        "tatoeba",
        "Tatoeba v1, 112 languages with English",
        KINDS["pairs"],
        "data/tatoeba/v1 of facebookresearch/LASER, or tatoeba/ of XTREME",
        (
            DatasetForm(
                "tatoeba.deu-eng.deu",
                (FilePattern(r"tatoeba\.(?P<l1>[a-z]{3})-(?P<l2>eng)\.(?P<role>(?P=l1)|eng)"),),
                Translations(),
                roles=(),
            ),
            DatasetForm(
                "tatoeba/de-en.de",
                (
                    FilePattern(r"(?P<l1>[a-z]{2})-(?P<l2>en)\.(?P<role>(?P=l1)|en)"),
                    FilePattern(r"test-(?P<l1>[a-z]{2})\.tsv", {"l2": "en", "role": "gold"}),
                ),
                SortedEnglish(),
                roles=(),
            ),
        ),
        licence="Tatoeba's terms of use",
        notes="XTREME sorts the English file; its gold test-xx.tsv, beside the texts, puts it in order again.",
    ),
    DatasetLayout(
        "bucc",
        "BUCC 2018, pairs of the gold",
        KINDS["pairs"],
        BUCC_DOWNLOAD + ", or MTEB's JSON",
        (
            DatasetForm("de-en.sample.de", (BUCC_TEXTS, BUCC_GOLD, BUCC_LABELS), BuccPairs(), roles=()),
            DatasetForm("de-en/test.json.gz", (FilePattern(rf"{BUCC_PAIR}[^/]*(?:/[^/]*)?\.jsonl?"),), BuccObject(), any_name=True),
        ),
        notes="A split without gold is an error; read it with bucc-sentences. XTREME calls training test, and sample dev.",
    ),
    DatasetLayout(
        "bucc-sentences",
        "BUCC 2018, all sentences with their ids",
        KINDS["sentences with ids"],
        BUCC_DOWNLOAD,
        (DatasetForm("de-en.test.de", (BUCC_TEXTS,), BuccSentences(), roles=()),),
        notes="Ids join to the gold. The official test split has none.",
    ),
    DatasetLayout(
        "opus-moses",
        "a corpus of OPUS as Moses text",
        KINDS["pairs"],
        "xx-yy.txt.zip of OPUS",
        (MOSES,),
    ),
    DatasetLayout(
        "opus-tmx",
        "a corpus of OPUS, or another translation memory, as TMX",
        KINDS["pairs"],
        "xx-yy.tmx.gz of OPUS",
        (
            DatasetForm("de-en.tmx.gz", (FilePattern(rf"{PAIR}\.tmx"),), TranslationMemory()),
            DatasetForm("memory.tmx", (FilePattern(r"[^/]+\.tmx"),), TranslationMemory()),
        ),
        notes="The languages are those of the file name, or the two requested, source first, or those of the first unit.",
    ),
    DatasetLayout(
        "wikimatrix",
        "WikiMatrix, mined from Wikipedia",
        KINDS["scored pairs"],
        "WikiMatrix.xx-yy.tsv.gz",
        (DatasetForm("WikiMatrix.de-en.tsv.gz", (FilePattern(rf"WikiMatrix\.(?:v1\.)?{PAIR}(?:\.langid)?\.tsv"),), MARGIN_FIRST),),
        licence="CC BY-SA",
        notes="`score` is the margin.",
    ),
    DatasetLayout(
        "ccmatrix",
        "CCMatrix, mined from Common Crawl, as LASER's script writes it",
        KINDS["scored pairs"],
        "bitext/xx-yy/xx.txt and yy.txt of tasks/CCMatrix/dl_cc_matrix.py of LASER",
        (DatasetForm("bitext/de-en/de.txt", (FilePattern(rf"{PAIR}/{SIDE}\.txt"),), JoinedByNumber(), roles=()),),
        notes="Lines are joined by their numbers. `score` is that of the source. OPUS's copy is opus-moses.",
    ),
    DatasetLayout(
        "nllb",
        "NLLB, mined bitext as allenai publishes it",
        KINDS["scored pairs"],
        "xxx_Latn-yyy_Latn.gz of allenai/nllb",
        (
            DatasetForm(
                "deu_Latn-eng_Latn.gz",
                (FilePattern("(?P<l1>[a-z]{3}_[A-Z][a-z]{3})-(?P<l2>[a-z]{3}_[A-Z][a-z]{3})"),),
                DelimitedRows({"source": 0, "target": 1, "score": 2}, cells=(9,)),
            ),
        ),
        licence="ODC-BY",
        notes="`score` is the LASER score.",
    ),
    DatasetLayout(
        "paracrawl",
        "ParaCrawl as it publishes itself",
        KINDS["pairs"],
        "en-xx.txt.gz or en-xx.bicleaner07.txt.gz",
        (DatasetForm("en-de.txt.gz", (FilePattern(rf"(?P<l1>en)-(?P<l2>{CODE})(?:\.bicleaner07)?\.txt"),), PLAIN_PAIRS),),
        notes="English is the source in every file. OPUS's copy is opus-moses.",
    ),
    DatasetLayout(
        "un",
        "UN Parallel Corpus 1.0, a pair of languages",
        KINDS["pairs"],
        "UNv1.0.xx-yy.tar.gz.00 and so on, joined with cat and unpacked",
        (DatasetForm("UNv1.0.en-zh.en", (FilePattern(rf"UNv1\.0\.{PAIR}\.{SIDE}"),), Translations(), roles=()),),
        licence="UN disclaimer and attribution",
    ),
    DatasetLayout(
        "un-6way",
        "UN Parallel Corpus 1.0, six languages",
        KINDS["aligned"],
        "UNv1.0.6way.tar.gz.00 and so on, joined with cat and unpacked",
        (DatasetForm("UNv1.0.6way.en", (FilePattern(r"UNv1\.0\.6way\.(?P<role>ar|en|es|fr|ru|zh)"),), AlignedText(), roles=()),),
        licence="UN disclaimer and attribution",
    ),
    DatasetLayout(
        "news-commentary",
        "News Commentary of WMT or OPUS",
        KINDS["pairs"],
        "news-commentary-v15.xx-yy.tsv.gz, news-commentary-v12 of WMT, or OPUS's Moses text",
        (
            DatasetForm(
                "news-commentary-v15.en-zh.tsv.gz",
                (FilePattern(rf"(?P<part>news-commentary-v\d+)\.{PAIR}\.tsv"),),
                PLAIN_PAIRS,
            ),
            DatasetForm("news-commentary-v12.zh-en.zh", MOSES.patterns, Translations(), roles=()),
        ),
        notes="Rows that are blank on one side or both, between documents, are dropped.",
    ),
    DatasetLayout(
        "cwmt",
        "CWMT 2018: casia2015, casict2015 and neu2017, English and Chinese",
        KINDS["pairs"],
        "casia2015, casict2015 and neu2017 of CWMT",
        (
            DatasetForm(
                "casia2015_en.txt",
                (
                    FilePattern(r"(?P<part>casia2015|casict2015)_(?P<role>en|ch|cn)\.txt", {"l1": "en", "l2": "zh"}),
                    FilePattern(r"(?P<part>NEU)_(?P<role>en|cn|ch)\.txt", {"l1": "en", "l2": "zh"}),
                ),
                Translations(),
                roles=(),
            ),
        ),
        aliases={"ch": "zh", "cn": "zh"},
    ),
    DatasetLayout(
        "muse",
        "MUSE bilingual dictionaries",
        KINDS["lexicon"],
        "xx-yy.txt, xx-yy.0-5000.txt and xx-yy.5000-6500.txt, or dictionaries.tar.gz",
        (
            DatasetForm(
                "en-de.txt",
                (FilePattern(rf"{PAIR}(?:\.(?P<split>0-5000|5000-6500))?\.txt"),),
                DelimitedRows({"source": 0, "target": 1}, delimiter=None, cells=(2,)),
            ),
        ),
        splits={"": "full", "0-5000": "train", "5000-6500": "test"},
        licence="CC BY-NC 4.0",
    ),
    DatasetLayout(
        "flores-200",
        "FLORES-200, and FLORES-101",
        KINDS["aligned"],
        "flores200_dataset",
        (
            DatasetForm(
                "dev/deu_Latn.dev",
                (FilePattern(r"(?P<role>[a-z]{3}(?:_[A-Za-z]+)?)\.(?P<split>dev|devtest)"),),
                AlignedText(),
                roles=(),
            ),
        ),
        licence="CC BY-SA",
    ),
    DatasetLayout(
        "ntrex",
        "NTREX-128",
        KINDS["aligned"],
        "NTREX-128/ of MicrosoftTranslator/NTREX",
        tuple(
            DatasetForm(
                "newstest2019-ref.deu.txt",
                (FilePattern(rf"{prefix}newstest2019-(?:src|ref)\.(?P<role>[A-Za-z-]+)\.txt"),),
                AlignedText(),
                roles=(),
            )
            for prefix in ("NTREX-128/", "")
        ),
        licence="CC BY-SA 4.0",
        notes="The second Spanish reference, newstest2019-ref-2.spa.txt, is not read.",
    ),
)
