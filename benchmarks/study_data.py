"""Training and test data of `training_study.py`: small files derived from DATA, and a small transformer with random weights.

Five languages: English, German, Spanish, French and Dutch. The training data contains no text of the test sets.
"""

import gzip
import random
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

OTHERS = ("de", "es", "fr", "nl")
TATOEBA = {"de": "deu", "es": "spa", "fr": "fra", "nl": "nld"}
XNLI = ("en", "de", "es", "fr")
FEW_PAIRS = 1000
STS = "sts.en.tsv"  # the test set of STS-B
VOCABULARY, WIDTH, LAYERS = 8000, 64, 2
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]

Rows = Iterable[Sequence[str]]


def rows(path: Path) -> Iterator[list[str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def write(path: Path, header: str, table: Rows) -> None:
    """Write a TSV with a header; cells contain no tabs or line breaks."""
    path.write_text("".join("\t".join(row) + "\n" for row in [header.split(), *table]), encoding="utf-8")


def read_test_pairs(data: Path) -> dict[str, list[tuple[str, str]]]:
    """Return the Tatoeba test set: language -> 1,000 pairs of English and translation."""
    files = {lang: data / f"eval/tatoeba/tatoeba.{code}-eng.tsv.gz" for lang, code in TATOEBA.items()}
    return {lang: [(english, other) for other, english in rows(path)] for lang, path in files.items()}


def prepare(data: Path, folder: Path) -> None:
    """Write the files of all sources, and the tokenizer and the random transformer of each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    test_texts = {text for pairs in read_test_pairs(data).values() for pair in pairs for text in pair}
    words = [(lang, english, other) for lang, english, other in rows(data / "lexicons/muse.en-xx.tsv.gz") if lang in OTHERS]
    write(folder / "words.tsv", "lang en xx", words)
    for lang in OTHERS:
        table = [f"{english} {other}\n" for word_lang, english, other in words if word_lang == lang and " " not in english + other]
        (folder / f"en-{lang}.txt").write_text("".join(table), encoding="utf-8")
    pairs = [
        row for row in rows(data / "train/tatoeba.en-xx.tsv.gz") if row[0] in OTHERS and len(row[1]) < 100 and not test_texts & set(row[1:])
    ]
    write(folder / "pairs.tsv", "lang en xx", pairs)
    write(folder / "few.tsv", "lang en xx", pairs[:: len(pairs) // FEW_PAIRS])
    groups = list(sentences(data, test_texts))
    write(folder / "groups.tsv", "group lang text", groups)
    write(folder / "text.tsv", "lang text", [row[1:] for row in groups])
    xnli = {part: [row for row in rows(data / f"nli/xnli.{part}.tsv.gz") if row[0] in XNLI] for part in ("dev", "test")}
    write(folder / "xnli.tsv", "lang premise hypothesis label", [*xnli["dev"], *xnli["test"]])
    for part, lang in (("test", "en"), *(("dev", lang) for lang in XNLI[1:])):  # classification: train on the larger part
        write(folder / f"xnli.{part}.{lang}.tsv", "lang premise hypothesis label", [row for row in xnli[part] if row[0] == lang])
    write(folder / "paraphrases.tsv", "lang en xx", paraphrases(data))
    sick = list(rows(data / "nli/sick.en-ja-nl.train.tsv.gz"))
    write_english_nli(data, folder / "nli.en.tsv")
    write(folder / "sick.tsv", "lang premise hypothesis label", [row for row in sick if row[0] in ("en", "nl")])
    test = [row for row in rows(data / "nli/sick.en-ja-nl.test.tsv.gz") if row[0] == "nl"]
    write(folder / "sick.nl.tsv", "lang premise hypothesis label", test)
    write_sts(data, folder / STS, "test")
    save_tokenizer(folder / "tokenizer", [text for row in [*words, *pairs] for text in row[1:]] + [row[2] for row in groups])


def write_english_nli(data: Path, path: Path) -> None:
    """Write the English pairs of XNLI and of SICK's training set."""
    files = [data / f"nli/{name}.tsv.gz" for name in ("xnli.dev", "xnli.test", "sick.en-ja-nl.train")]
    write(path, "lang premise hypothesis label", [row for file in files for row in rows(file) if row[0] == "en"])


def write_sts(data: Path, path: Path, split: str) -> None:
    """Write a split of the English STS-B."""
    table = [row[2:] for row in rows(data / f"eval/sts/stsb_multi_mt.{split}.tsv.gz") if row[:2] == ["en", "en"]]
    write(path, "score sentence1 sentence2", table)


def sentences(data: Path, test_texts: set[str]) -> Iterator[tuple[str, str, str]]:
    """Yield group, language and text of the STS benchmark's training set in all five languages (machine translated)."""
    for lang in ("en", *OTHERS):
        for name, text in rows(data / f"train/stsb_mt_train_MACHINE/{lang}.tsv.gz"):
            if text not in test_texts:
                yield name, lang, text


def paraphrases(data: Path) -> Iterator[tuple[str, str, str]]:
    """Yield language, English and translation of PAWS-X's paraphrases, each with its own translation and that of the other."""
    pairs = {
        (lang, part, row): sides
        for part in ("dev", "test")
        for lang, row, *sides, label in rows(data / f"eval/classification/pawsx.{part}.tsv.gz")
        if label == "1"
    }
    for (lang, *key), translations in pairs.items():
        if lang in OTHERS and ("en", *key) in pairs:
            yield from ((lang, english, other) for english in pairs["en", *key] for other in translations)


def save_tokenizer(folder: Path, texts: Iterable[str]) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False))
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ends)
    names = {"bos_token": "<s>", "cls_token": "<s>", "sep_token": "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>", **names).save_pretrained(folder)


def save_random(folder: Path, tokenizer: Path, seed: int) -> None:
    """Save a transformer of XLM-R's architecture with random weights."""
    transformers.AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    config = transformers.XLMRobertaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=2 * WIDTH,
        max_position_embeddings=80, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    torch.manual_seed(seed)
    transformers.XLMRobertaForMaskedLM(config).save_pretrained(folder)


def read_pairs(data: Path, lang: str, seed: int) -> list[tuple[str, str]]:
    """Return Tatoeba's training pairs of English and a language, shuffled; each sentence is in one pair, and in none of the test set."""
    seen = {text.casefold() for pairs in read_test_pairs(data).values() for pair in pairs for text in pair}
    pairs = []
    for row_lang, english, other in rows(data / "train/tatoeba.en-xx.tsv.gz"):
        keys = {english.casefold(), other.casefold()}
        if row_lang == lang and not keys & seen:
            seen |= keys
            pairs.append((english, other))
    random.Random(seed).shuffle(pairs)
    return pairs


def read_words(data: Path, lang: str) -> list[tuple[str, str]]:
    """Return MUSE's English words and their translations."""
    return [(english, other) for row_lang, english, other in rows(data / "lexicons/muse.en-xx.tsv.gz") if row_lang == lang]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def mean_and_deviation(values: Sequence[float], digits: int) -> str:
    """Return a cell of a table; no text without values."""
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{spread}"
