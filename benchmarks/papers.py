"""Data and start of the effects of the papers at a small scale: benchmarks/papers.md has the commands and the figures.

    python benchmarks/papers.py --data DATA --encoder E5 --work WORK
    miner reproduce effect-msimcse --configs benchmarks/papers --data WORK/data --models WORK/models --output WORK/out

DATA is the input folder of `configs/builtin_data.py`, with `nli`, `lexicons` and `eval` in addition, E5 the folder of
multilingual-e5-small. The start is its token vectors and first layers, which align languages only in part, as a pretrained model without
sentence training does: the layers that its own training on translations shaped most are cut. Pieces that the data does not have are
dropped.
"""

import argparse
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import study_data
import torch
import transformers
from study_data import rows, write, write_lines
from tokenizers import Tokenizer

UNSEEN = ("ara", "cmn", "deu", "hin", "rus", "swh")  # in no training data but that of translations
GROUPS = ("de", "en", "es", "fr", "ru", "zh")  # of translations, as MPCL has them
XNLI = ("ar", "de", "es", "fr", "hi", "ru", "sw", "zh")
SWITCHED = ("de", "es", "fr", "ru", "zh")  # languages of code switching
PAIRS = 12_000  # English and Chinese


def prepare(data: Path, folder: Path, max_rows: int) -> None:
    """Write the training and test files of all effects; test files have at most `max_rows` rows per language."""
    for tests, langs in (("tatoeba", UNSEEN), ("tatoeba-zh", ("cmn",))):
        (folder / tests).mkdir(parents=True)
        for lang in langs:
            name = f"tatoeba.{lang}-eng.tsv.gz"
            with gzip.open(folder / tests / name, "wt", encoding="utf-8") as file:
                file.writelines("\t".join(pair) + "\n" for pair in list(rows(data / "eval/tatoeba" / name))[:max_rows])
    study_data.write_english_nli(data, folder / "nli.en.tsv")
    translated = {lang: list(rows(data / f"train/stsb_mt_train_MACHINE/{lang}.tsv.gz")) for lang in (*GROUPS, "ja", "ko")}
    write(folder / "groups.tsv", "group lang text", [(key, lang, text) for lang in GROUPS for key, text in translated[lang]])
    for lang in ("en", "ja", "ko"):
        write_lines(folder / f"text.{lang}.txt", (text for _, text in translated[lang]))
    for name, file in (("jsts", "jsts.ja.valid"), ("klue", "klue_sts.ko.dev")):
        write(folder / f"{name}.tsv", "score sentence1 sentence2", [row[2:] for row in rows(data / f"eval/sts/{file}.tsv.gz")][1:])
    write(folder / "pairs.tsv", "en zh", [row[1:] for row in rows(data / "train/tatoeba.en-xx.tsv.gz") if row[0] == "zh"][:PAIRS])
    xnli = {part: list(rows(data / f"nli/xnli.{part}.tsv.gz")) for part in ("dev", "test")}
    write(folder / "xnli.train.tsv", "lang premise hypothesis label", [row for row in xnli["test"] if row[0] == "en"])
    test = [row for lang in XNLI for row in [row for row in xnli["dev"] if row[0] == lang][:max_rows]]
    write(folder / "xnli.test.tsv", "lang premise hypothesis label", test)
    for lang in SWITCHED:
        words = [(english, other) for english, other in study_data.read_words(data, lang) if " " not in english + other]
        write_lines(folder / f"en-{lang}.txt", (f"{english} {other}" for english, other in words))


def cut_model(encoder: Path, output: Path, num_layers: int, texts: Iterable[str]) -> None:
    """Save the first layers of a transformer, with the pieces that the texts have: each text keeps its pieces and their vectors."""
    tokenizer = json.loads((encoder / "tokenizer.json").read_text(encoding="utf-8"))
    full = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    special = {token["id"] for token in tokenizer["added_tokens"]}
    pieces = sorted(special.union(*({*encoding.ids} for encoding in full.encode_batch(list(texts)))))
    tokenizer["model"]["vocab"] = [tokenizer["model"]["vocab"][piece] for piece in pieces]
    for token in tokenizer["added_tokens"]:
        token["id"] = pieces.index(token["id"])
    model = transformers.AutoModel.from_pretrained(encoder)
    model.encoder.layer = model.encoder.layer[:num_layers]
    vectors = model.get_input_embeddings().weight.detach()[pieces].clone()
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(vectors, freeze=False, padding_idx=model.config.pad_token_id))
    model.config.vocab_size, model.config.num_hidden_layers = len(pieces), num_layers
    model.save_pretrained(output)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (encoder / name).exists():
            (output / name).write_bytes((encoder / name).read_bytes())
    (output / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def read_texts(folder: Path) -> Iterable[str]:
    """Yield the lines of all files of the data, cell by cell."""
    for path in sorted(folder.rglob("*.*")):
        for line in rows(path) if path.suffix == ".gz" else (line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")):
            yield from line


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--max-rows", type=int, default=500)
    values = parser.parse_args(arguments)
    prepare(values.data, values.work / "data", values.max_rows)
    cut_model(values.encoder, values.work / "models" / "start", values.layers, read_texts(values.work / "data"))


if __name__ == "__main__":
    main()
