"""benchmarks/papers.py on generated data: the start keeps its vectors, and each effect is trained and measured."""

import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny
from command import output_of
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from miner.config.commands import EncoderSettings
from miner.encoders import load_encoder

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "benchmarks" / "papers"
EFFECTS = ["effect-msimcse", "effect-transfer", "effect-mpcl", "effect-scl", "effect-momentum"]
LABELS = ("entailment", "neutral", "contradiction")
ABSENT = "nine"  # no text of the data has this word


def texts(lang: str, rows: int, seed: int) -> list[str]:
    """Return sentences of the numbers from zero to eight, in English or, for any other language, in German."""
    return [tiny.sentence("eng_Latn" if lang == "en" else "deu_Latn", digits % 9) for digits in tiny.numbers(rows, seed)]


def write(path: Path, *rows: Sequence[object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines("\t".join(map(str, row)) + "\n" for row in rows)


def write_data(data: Path, rows: int = 60) -> None:
    for number, lang in enumerate(("ara", "cmn", "deu", "hin", "rus", "swh")):
        write(data / f"eval/tatoeba/tatoeba.{lang}-eng.tsv.gz", *zip(texts(lang, 20, number), texts("en", 20, number), strict=True))
    for number, name in enumerate(("xnli.dev", "xnli.test", "sick.en-ja-nl.train")):
        pairs = [
            (lang, texts(lang, 30, 10 + number)[row - row % 3], hypothesis, LABELS[row % 3])  # three rows per premise, one per label
            for lang in ("en", "ar", "de", "es", "fr", "hi", "ru", "sw", "zh")
            for row, hypothesis in enumerate(texts(lang, 30, 20 + number))
        ]
        write(data / f"nli/{name}.tsv.gz", ("lang", "premise", "hypothesis", "label"), *pairs)
    for lang in ("de", "en", "es", "fr", "ru", "zh", "ja", "ko"):
        write(data / f"train/stsb_mt_train_MACHINE/{lang}.tsv.gz", *enumerate(texts(lang, rows, 30)))
    for name, lang in (("jsts.ja.valid", "ja"), ("klue_sts.ko.dev", "ko")):
        scored = [(lang, lang, row % 6, *pair) for row, pair in enumerate(zip(texts(lang, 30, 40), texts(lang, 30, 41), strict=True))]
        write(data / f"eval/sts/{name}.tsv.gz", ("lang1", "lang2", "score", "sentence1", "sentence2"), *scored)
    pairs = [("zh", *pair) for pair in zip(texts("en", rows, 50), texts("zh", rows, 50), strict=True)]
    write(data / "train/tatoeba.en-xx.tsv.gz", ("lang", "en", "xx"), *pairs)
    words = list(zip(tiny.NUMBERS["eng_Latn"][:9], tiny.NUMBERS["deu_Latn"][:9], strict=True))
    write(
        data / "lexicons/muse.en-xx.tsv.gz",
        ("lang", "en", "xx"),
        *((lang, *pair) for lang in ("de", "es", "fr", "ru", "zh") for pair in words),
    )


def save_encoder(folder: Path) -> None:
    """Save a tiny transformer of four layers whose tokenizer is a unigram model, as that of multilingual-e5-small."""
    words = [word if word in tiny.SPECIAL else f"▁{word}" for word in tiny.WORDS]
    tiny.save_transformer(folder, layers=4, positions=140)
    tokenizer = Tokenizer(models.Unigram([(word, -float(number)) for number, word in enumerate(words)], unk_id=words.index("<unk>")))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(tiny.SPECIAL)
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("effects")
    write_data(folder / "data")
    save_encoder(folder / "encoder")
    options = ("--data", folder / "data", "--encoder", folder / "encoder", "--work", folder / "work", "--layers", 2)
    subprocess.run([sys.executable, "benchmarks/papers.py", *map(str, options)], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_start_is_the_first_layers_with_the_pieces_of_the_data(work: Path) -> None:
    start = load_encoder(str(work / "work" / "models" / "start"), EncoderSettings(pooling="mean", dtype="float32"))
    whole = load_encoder(str(work / "encoder"), EncoderSettings(pooling="layer:2", dtype="float32"))
    lines = [*texts("en", 20, 0), *texts("de", 20, 1)]
    np.testing.assert_allclose(start.encode(lines), whole.encode(lines), atol=1e-6)
    pieces = json.loads((work / "work" / "models" / "start" / "tokenizer.json").read_text())["model"]["vocab"]
    assert {piece for piece, _ in pieces} == {
        *tiny.SPECIAL,
        *(f"▁{word}" for lang in ("eng_Latn", "deu_Latn") for word in tiny.NUMBERS[lang][:9]),
    }
    assert f"▁{ABSENT}" not in dict(pieces)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", EFFECTS)
def test_each_effect_is_trained_and_measured(name: str, work: Path) -> None:
    folders = ("--configs", CONFIGS, "--data", work / "work" / "data", "--models", work / "work" / "models", "--output", work / "out")
    options = ("--set", "training.steps=2", "--seeds", 1, "--json", work / f"{name}.json")
    output_of("reproduce", name, *folders, *options)
    rows = json.loads((work / f"{name}.json").read_text())["rows"]
    assert len(rows) > 1
    for cells in rows.values():
        assert all(len(cell["measured"]) == 1 for cell in cells.values())
