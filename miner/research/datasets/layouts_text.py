"""Layouts of labelled texts and of monolingual corpora."""

from miner.research.datasets.delimited import DelimitedRows
from miner.research.datasets.documents import LinesOfDocuments, WikiParagraphs
from miner.research.datasets.json_rows import JsonLines, ParquetRows
from miner.research.datasets.layout import KINDS, DatasetForm, DatasetLayout, FilePattern
from miner.research.datasets.line_aligned import PlainLines

CODE = "[a-z]{2,3}(?:[_-][A-Za-z]{2,4})?"

LAYOUTS = (
    DatasetLayout(
        "mtop",
        "MTOP, the domain of requests in 6 languages",
        KINDS["labelled text"],
        "mtop.zip, or mteb/mtop_domain",
        (
            DatasetForm(
                "mtop/de/eval.txt",
                (FilePattern(r"(?P<lang>en|de|es|fr|hi|th)/(?P<split>train|eval|test)\.txt"),),
                DelimitedRows({"id": 0, "text": 3, "label": 4}, cells=(8,)),
            ),
            DatasetForm(
                "mtop_domain/de/validation.jsonl",
                (FilePattern(r"(?P<lang>en|de|es|fr|hi|th)/(?P<split>train|validation|test)\.jsonl"),),
                JsonLines({"id": "id", "text": "text", "label": "label_text"}),
            ),
        ),
        splits={"eval": "dev", "validation": "dev"},
        notes="The id joins languages.",
    ),
    DatasetLayout(
        "tnews",
        "TNEWS of CLUE, the topic of Chinese headlines",
        KINDS["labelled text"],
        "tnews_public.zip",
        (
            DatasetForm(
                "dev.json",
                (FilePattern(r"(?P<split>train|dev|test)\.json", {"lang": "zh"}),),
                JsonLines({"text": "sentence", "label": "label"}, optional=("label",)),
                unlabelled=("test",),
            ),
        ),
        notes="Labels are the numbers of the release, 100 to 116. test has none: the column is empty.",
    ),
    DatasetLayout(
        "wiki-40b",
        "Wiki-40B, paragraphs of Wikipedia",
        KINDS["monolingual"],
        "the Parquet files of one or more languages",
        (
            DatasetForm(
                "ja/train-00000-of-00001.parquet",
                (FilePattern(rf"(?P<lang>{CODE})/(?P<split>train|validation|test)-(?P<part>[^/]*)\.parquet"),),
                WikiParagraphs(ParquetRows({"text": "text"})),
            ),
        ),
        splits={"validation": "dev"},
        licence="CC BY-SA 3.0",
        notes="Titles and section names are left out; paragraphs are cut at _NEWLINE_ and behind 。",
    ),
    DatasetLayout(
        "cc-100",
        "CC-100, paragraphs of Common Crawl",
        KINDS["monolingual"],
        "xx.txt.xz",
        (DatasetForm("de.txt.xz", (FilePattern(rf"(?P<lang>{CODE})\.txt"),), PlainLines()),),
        notes="The blank line after a document counts as dropped. `hi_rom` is romanised Hindi, hi-Latn.",
    ),
    DatasetLayout(
        "oscar",
        "OSCAR 2019, or later versions as JSON lines",
        KINDS["monolingual"],
        "xx_part_1.txt.gz and so on, or the JSON lines of OSCAR 22.01 and later",
        (
            DatasetForm("de_part_1.txt.gz", (FilePattern(rf"(?P<lang>{CODE})_part_(?P<part>\d+)\.txt"),), PlainLines()),
            DatasetForm(
                "a .jsonl file that you name",
                (FilePattern(r"(?P<lang>[a-z]{2,3}(?:-[a-z]{2,4})?)(?:_meta)?_part_(?P<part>\d+)\.jsonl"),),
                LinesOfDocuments(JsonLines({"text": "content"})),
                any_name=True,
            ),
        ),
        notes="A row is a line of a document. Name the language of a file of JSON lines.",
    ),
    DatasetLayout(
        "mc4",
        "mC4, documents of Common Crawl",
        KINDS["monolingual"],
        "c4-xx.tfrecord-NNNNN-of-NNNNN.json.gz",
        (
            DatasetForm(
                "c4-de.tfrecord-00000-of-02048.json.gz",
                (FilePattern(rf"c4-(?P<lang>{CODE})(?P<split>-validation)?\.tfrecord-(?P<part>\d+-of-\d+)\.json"),),
                LinesOfDocuments(JsonLines({"text": "text"})),
            ),
        ),
        splits={"": "train", "-validation": "dev", "validation": "dev"},
        notes="A row is a line of a document.",
    ),
    DatasetLayout(
        "newscrawl",
        "News Crawl of WMT, sentences of news",
        KINDS["monolingual"],
        "news.YYYY.xx.shuffled.deduped.gz",
        (
            DatasetForm(
                "news.2020.de.shuffled.deduped.gz",
                (FilePattern(rf"news\.(?P<part>\d{{4}})\.(?P<lang>{CODE})\.shuffled\.deduped"),),
                PlainLines(),
            ),
        ),
    ),
)
