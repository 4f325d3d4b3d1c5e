"""Layouts of inference and paraphrase data."""

from miner.research.datasets.delimited import DelimitedRows
from miner.research.datasets.detokenise import delete_spaces, detokenise
from miner.research.datasets.json_rows import JsonLines
from miner.research.datasets.layout import KINDS, DatasetForm, DatasetLayout, FilePattern
from miner.research.datasets.line_aligned import ColumnFiles, HeaderOfLanguages, PlainLines

NLI_LABELS = {name: name for name in ("entailment", "neutral", "contradiction")} | {"contradictory": "contradiction"}
PARAPHRASE_LABELS = {"0": "0", "1": "1"}
SPLIT = "(?P<split>train|dev|test)"

SNLI_KEYS = {"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label", "id": "pairID"}
SNLI_TSV = DelimitedRows(SNLI_KEYS, header=True)
SNLI_JSON = JsonLines(SNLI_KEYS)
XNLI_KEYS = {**SNLI_KEYS, "lang": "language"}
TRIPLETS = {"anchor": "sent0", "positive": "sent1", "negative": "hard_neg"}
ENGLISH = {"lang": "en"}
XTREME_NLI = DelimitedRows({"premise": 0, "hypothesis": 1, "label": 2}, quoted=True, cells=(2, 3), optional=("label",))
XTREME_PAIRS = DelimitedRows({"sentence1": 0, "sentence2": 1, "label": 2}, quoted=True, cells=(2, 3), optional=("label",))
PAWS = DelimitedRows({"id": "id", "sentence1": "sentence1", "sentence2": "sentence2", "label": "label"}, header=True)


def _folders(folder: str, regex: str, **fixed: str) -> tuple[tuple[FilePattern, ...], tuple[FilePattern, ...]]:
    """A pattern below its folder and, for files in another one, without it."""
    return (FilePattern(f"{folder}/{regex}", fixed),), (FilePattern(regex, fixed),)


def _xtreme(name: str, read: DelimitedRows) -> tuple[DatasetForm, ...]:
    """XTREME's own copies: train-en.tsv, dev-xx.tsv and test-xx.tsv, the last without labels."""
    return tuple(
        DatasetForm(f"{name}/dev-de.tsv", patterns, read, unlabelled=("test",))
        for patterns in _folders(name, rf"{SPLIT}-(?P<lang>[a-z]{{2}})\.tsv")
    )


def _translate_train(folder: str, first: str, second: str) -> tuple[DatasetForm, ...]:
    """XTREME's machine translations: English and its translation in one row; the English of all files is the same."""
    languages = {"en": {first: 0, second: 1}, "": {first: 2, second: 3}}
    read = DelimitedRows({"label": 4}, cells=(5,), lang_columns=languages)
    fixed = {"split": "train"}
    return tuple(
        DatasetForm(
            f"{folder}/translate-train/en-de-translated.tsv",
            (
                FilePattern(rf"{prefix}en-(?P<lang>[a-z]{{2}})-translated\.tsv", fixed),
                FilePattern(rf"{prefix}en-[a-z]{{2}}-translated\.tsv", {**fixed, **ENGLISH}, only_first=True),
            ),
            read,
        )
        for prefix in (f"{folder}/translate-train/", "")
    )


LAYOUTS = (
    DatasetLayout(
        "simcse-nli",
        "NLI triplets of SimCSE",
        KINDS["triplets"],
        "nli_for_simcse.csv of princeton-nlp/datasets-for-simcse",
        (
            DatasetForm(
                "nli_for_simcse.csv",
                (FilePattern(r"nli_for_simcse\.csv", ENGLISH),),
                DelimitedRows(TRIPLETS, header=True, delimiter=",", quoted=True),
                any_name=True,
            ),
        ),
    ),
    DatasetLayout(
        "msimcse-nli",
        "cross-lingual NLI triplets of mSimCSE",
        KINDS["triplets"],
        "data/nli_merged_all.csv, as merge_multi_lingual.py of mSimCSE makes it",
        (
            DatasetForm(
                "nli_merged_all.csv",
                (FilePattern(r"nli_merged_all\.csv"),),
                DelimitedRows(TRIPLETS, header=True, delimiter=",", quoted=True, one_line=True, cells=(3,)),
                any_name=True,
            ),
        ),
        notes="Lines are shuffled, so a quoted cell with a line end is broken and its lines are dropped. No language is known.",
    ),
    DatasetLayout(
        "wiki1m",
        "one million English Wikipedia sentences of SimCSE",
        KINDS["monolingual"],
        "wiki1m_for_simcse.txt of princeton-nlp/datasets-for-simcse",
        (DatasetForm("wiki1m_for_simcse.txt", (FilePattern(r"wiki1m_for_simcse\.txt", ENGLISH),), PlainLines(), any_name=True),),
    ),
    DatasetLayout(
        "snli",
        "SNLI 1.0",
        KINDS["nli"],
        "snli_1.0.zip, or SentEval's copy",
        (
            DatasetForm("snli_1.0_train.jsonl", (FilePattern(rf"snli_1\.0_{SPLIT}\.jsonl", ENGLISH),), SNLI_JSON),
            DatasetForm("snli_1.0_train.txt", (FilePattern(rf"snli_1\.0_{SPLIT}\.txt", ENGLISH),), SNLI_TSV),
            DatasetForm(
                "s1.train",
                (FilePattern(rf"(?P<role>s1|s2|labels)\.{SPLIT}", ENGLISH),),
                ColumnFiles({"premise": "s1", "hypothesis": "s2", "label": "labels"}),
                roles=("s1", "s2", "labels"),
            ),
        ),
        labels=NLI_LABELS,
        licence="CC BY-SA 4.0",
        notes="SentEval's copy (s1.train, s2.train, labels.train) is tokenised; it is read as it is.",
    ),
    DatasetLayout(
        "multinli",
        "MultiNLI 1.0",
        KINDS["nli"],
        "multinli_1.0.zip",
        tuple(
            DatasetForm(
                f"multinli_1.0_train.{kind}",
                (FilePattern(rf"multinli_1\.0_(?P<split>train|dev_matched|dev_mismatched)\.{kind}", ENGLISH),),
                read,
            )
            for kind, read in (("jsonl", SNLI_JSON), ("txt", SNLI_TSV))
        ),
        labels=NLI_LABELS,
    ),
    DatasetLayout(
        "xnli",
        "XNLI 1.0, dev and test in 15 languages",
        KINDS["nli"],
        "XNLI-1.0.zip",
        (
            DatasetForm("xnli.dev.tsv", (FilePattern(r"xnli\.(?P<split>dev|test)\.tsv"),), DelimitedRows(XNLI_KEYS, header=True)),
            DatasetForm("xnli.dev.jsonl", (FilePattern(r"xnli\.(?P<split>dev|test)\.jsonl"),), JsonLines(XNLI_KEYS)),
        ),
        labels=NLI_LABELS,
        parallel_by="id",
        licence="CC BY-NC 4.0",
    ),
    DatasetLayout(
        "xnli-mt",
        "XNLI-MT 1.0, MultiNLI machine-translated into 15 languages",
        KINDS["nli"],
        "XNLI-MT-1.0.zip",
        (
            DatasetForm(
                "multinli.train.de.tsv",
                (FilePattern(r"multinli\.(?P<split>train)\.(?P<lang>[a-z]{2})\.tsv"),),
                DelimitedRows({"premise": "premise", "hypothesis": "hypo", "label": "label"}, header=True),
                clean=detokenise,
            ),
        ),
        labels=NLI_LABELS,
        parallel_by="row",
        notes="Moses tokens are joined. `id` is the row, the same for its translations.",
    ),
    DatasetLayout(
        "xtreme-xnli",
        "XNLI as copied by XTREME",
        KINDS["nli"],
        "xnli/ of XTREME's download script",
        _xtreme("xnli", XTREME_NLI),
        labels=NLI_LABELS,
        parallel_by="row",
        notes="test has no labels: the column is empty.",
    ),
    DatasetLayout(
        "xtreme-pawsx",
        "PAWS-X as copied by XTREME",
        KINDS["labelled pairs"],
        "pawsx/ of XTREME's download script",
        _xtreme("pawsx", XTREME_PAIRS),
        labels=PARAPHRASE_LABELS,
        parallel_by="row",
        placeholder="NS",
        notes="test has no labels: the column is empty.",
    ),
    DatasetLayout(
        "xtreme-xnli-translate-train",
        "XTREME's machine translations of the training data of XNLI",
        KINDS["nli"],
        "XNLI/translate-train of the bucket xtreme_translations",
        _translate_train("XNLI", "premise", "hypothesis"),
        labels=NLI_LABELS,
        parallel_by="row",
        notes="English is read from the first file alone.",
    ),
    DatasetLayout(
        "xtreme-pawsx-translate-train",
        "XTREME's machine translations of the training data of PAWS-X",
        KINDS["labelled pairs"],
        "PAWSX/translate-train of the bucket xtreme_translations",
        _translate_train("PAWSX", "sentence1", "sentence2"),
        labels=PARAPHRASE_LABELS,
        parallel_by="row",
        notes="English is read from the first file alone.",
    ),
    DatasetLayout(
        "xnli-15way",
        "XNLI-15way, premises and hypotheses in 15 languages",
        KINDS["aligned"],
        "XNLI-15way.zip",
        tuple(
            DatasetForm(f"xnli.15way.{form}.tsv", (FilePattern(rf"xnli\.15way\.{form}\.tsv"),), HeaderOfLanguages())
            for form in ("orig", "tok")
        ),
        licence="CC BY-NC 4.0",
        notes="The tokenised file is read only where the original is not there.",
    ),
    DatasetLayout(
        "jsnli",
        "JSNLI 1.1, SNLI in Japanese",
        KINDS["nli"],
        "jsnli_1.1.zip",
        (
            DatasetForm(
                "train_w_filtering.tsv",
                (FilePattern(r"(?P<split>train_w_filtering|train_wo_filtering|dev)\.tsv", {"lang": "ja"}),),
                DelimitedRows({"label": 0, "premise": 1, "hypothesis": 2}, cells=(3,)),
                clean=delete_spaces,
            ),
        ),
        labels=NLI_LABELS,
        licence="CC BY-SA 4.0",
        notes="Text is segmented in the release: it is normalised by NFKC and its spaces are deleted.",
    ),
    DatasetLayout(
        "kornli",
        "KorNLI, NLI in Korean",
        KINDS["nli"],
        "KorNLI/ of kakaobrain/KorNLUDatasets",
        (
            DatasetForm(
                "multinli.train.ko.tsv",
                (
                    FilePattern(r"(?P<part>multinli)\.(?P<split>train)\.ko\.tsv", {"lang": "ko"}),
                    FilePattern(r"(?P<part>snli)_1\.0_(?P<split>train)\.ko\.tsv", {"lang": "ko"}),
                    FilePattern(r"xnli\.(?P<split>dev|test)\.ko\.tsv", {"lang": "ko"}),
                ),
                DelimitedRows({"premise": "sentence1", "hypothesis": "sentence2", "label": "gold_label"}, header=True, cells=(3,)),
            ),
        ),
        labels=NLI_LABELS,
        licence="CC BY-SA 4.0",
    ),
    DatasetLayout(
        "paws-x",
        "PAWS-X, paraphrases in 7 languages",
        KINDS["labelled pairs"],
        "x-final.tar.gz",
        (
            DatasetForm(
                "x-final/de/dev_2k.tsv",
                (
                    FilePattern(r"(?P<lang>[a-z]{2})/(?P<split>translated_train|dev_2k|test_2k)\.tsv"),
                    FilePattern(r"(?P<lang>en)/(?P<split>train)\.tsv"),
                ),
                PAWS,
            ),
        ),
        labels=PARAPHRASE_LABELS,
        splits={"translated_train": "train", "dev_2k": "dev", "test_2k": "test"},
        parallel_by="id",
        placeholder="NS",
        licence="free use, credit to Google",
        notes="A row that is blank, NS or without a label in one of the languages read is dropped in all, by its id.",
    ),
    DatasetLayout(
        "paws-wiki",
        "PAWS-Wiki, English paraphrases",
        KINDS["labelled pairs"],
        "paws_wiki_labeled_final.tar.gz",
        (
            DatasetForm("final/train.tsv", (FilePattern(rf"final/{SPLIT}\.tsv", ENGLISH),), PAWS),
            DatasetForm("train.tsv", (FilePattern(rf"{SPLIT}\.tsv", ENGLISH),), PAWS),
        ),
        labels=PARAPHRASE_LABELS,
    ),
)
