"""Small intact files of every format that users give, and what reads them, for fuzz.py."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import sentencepiece

from miner.config.base import Settings, load_yaml
from miner.config.commands import TextSettings
from miner.config.runs import RunConfig
from miner.encoders import load_encoder, static, static_export
from miner.errors import MinerError
from miner.evaluation.suite import SuiteConfig
from miner.io import table_files, tables
from miner.loop.settings import LoopConfig
from miner.research.datasets.reading import read_dataset
from miner.research.datasets.registry import get_layout
from miner.text.formats import TABLE, read_rows, read_strings
from miner.text.readers import read_pairs, read_sentences
from miner.training.config import TrainConfig

TEXTS = [
    ("one two", "un deux"),
    ('three "four"', "trois; quatre"),
    ("café, \U0001f600", "cinq\u2028six"),
    ("", "sept"),
    ("eight", "huit & <neuf>"),
]

ENCODERS = {
    "static encoder": (static.SETTINGS, static.VECTORS, static.PIECES),  # without the checksums that `miner train` adds
    "model2vec": (static_export.TOKENIZER, static_export.WEIGHTS, static_export.MODULES, static_export.CONFIG),
}

ROOT = Path(__file__).parent.parent
CONFIGS: dict[type[Settings], str] = {
    RunConfig: "run.yaml",
    TrainConfig: "mined.yaml",
    SuiteConfig: "eval.yaml",
    LoopConfig: "loop-small.yaml",
}

Files = dict[str, bytes]  # name -> content
Compress = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Target:
    """A format: intact files, and what reads them from a folder."""

    files: Files
    read: Callable[[Path], Iterable[object]]
    compress: Callable[[Files], Files] = lambda files: files


def read_table(name: str, *columns: str | None) -> Callable[[Path], Iterator[object]]:
    """Return what reads columns of a table, all its strings, and the sentences of its first column."""

    def read(folder: Path) -> Iterator[object]:
        uri = str(folder / name)
        for consume in (
            lambda: read_rows(uri, columns, TABLE),
            lambda: read_strings(uri),
            lambda: read_sentences(uri, TextSettings(text_column=columns[0])),
        ):
            try:
                yield from consume()
            except MinerError as error:
                yield error

    return read


def read_release(layout: str, name: str) -> Callable[[Path], Iterator[object]]:
    return lambda folder: read_dataset(get_layout(layout), str(folder / name))


def read_moses(folder: Path) -> Iterator[object]:
    return read_pairs(str(folder / "a.en"), str(folder / "a.fr"), (TextSettings(), TextSettings()))


def read_own_table(folder: Path) -> Iterator[object]:
    yield table_files.read_table(str(folder / "part.parquet"))


def read_encoder(folder: Path) -> Iterator[object]:
    yield load_encoder(str(folder)).encode(["one two"])


def read_config(model: type[Settings]) -> Callable[[Path], Iterator[object]]:
    return lambda folder: iter([load_yaml(model, str(folder / "a.yaml"))])


def parquet(columns: dict[str, list[str]], **options: object) -> bytes:
    data = io.BytesIO()
    pq.write_table(pa.table(columns), data, **options)
    return data.getvalue()


def csv(rows: Iterable[Iterable[str]]) -> bytes:
    return "".join(",".join('"{}"'.format(cell.replace('"', '""')) for cell in row) + "\r\n" for row in rows).encode()


def zipped(files: Files) -> Files:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return {"a.zip": data.getvalue()}


def tarred(files: Files, extension: str, compress: Compress) -> Files:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return {f"a{extension}": compress(data.getvalue())}


def packed(extension: str, compress: Compress) -> Callable[[Files], Files]:
    return lambda files: {name + extension: compress(content) for name, content in files.items()}


def compress_gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


def compress_zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)


COMPRESSIONS: dict[str, Compress] = {".gz": compress_gzip, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": compress_zstd}


def list_targets() -> dict[str, Target]:
    """Return the formats by name. Own tables, indexes and encoders are made by the library, so their checksums are part of them."""
    lines = {"a.en": "".join(f"{a}\n" for a, _ in TEXTS).encode(), "a.fr": "".join(f"{b}\n" for _, b in TEXTS).encode()}
    files: Files = {
        "a.tsv": "".join(f"{line}\n" for line in ("en\tfr", *("\t".join(pair) for pair in TEXTS))).encode(),
        "a.csv": csv([("en", "fr"), *TEXTS, ("a\nb", "c\r\nd")]),
        "a.jsonl": "".join(json.dumps({"en": a, "fr": b, "tags": [1, {"x": None}]}) + "\n" for a, b in TEXTS).encode(),
        "a.json": json.dumps({"data": [{"en": a, "fr": b} for a, b in TEXTS], "version": 1.5}).encode(),
        "a.tmx": tmx(),
        "a.parquet": parquet({"en": [a for a, _ in TEXTS] * 40, "fr": [b for _, b in TEXTS] * 40}, row_group_size=90),
    }
    targets = {name[2:]: Target({name: content}, read_table(name, "en", "fr")) for name, content in files.items()}
    targets["parquet of structs"] = Target({"a.parquet": structs()}, read_table("a.parquet", "t.en", "n"))
    targets["txt"] = Target({"a.txt": lines["a.en"]}, read_table("a.txt", None))
    targets["columns by number"] = Target({"a.txt": files["a.tsv"]}, read_table("a.txt", "2", "1"))
    for extension, compress in COMPRESSIONS.items():
        targets[f"tsv{extension}"] = Target(
            {"a.tsv": files["a.tsv"]}, read_table(f"a.tsv{extension}", "en", "fr"), packed(extension, compress)
        )
    targets["moses"] = Target(lines, read_moses)
    release = {"News.en-fr.en": lines["a.en"], "News.en-fr.fr": lines["a.fr"], "README": b"not read"}
    targets["zip of moses"] = Target(release, read_release("opus-moses", "a.zip"), zipped)
    for extension, compress in COMPRESSIONS.items():
        if extension != ".zst":
            archive = partial(tarred, extension=f".tar{extension}", compress=compress)
            targets[f"tar{extension} of moses"] = Target(release, read_release("opus-moses", f"a.tar{extension}"), archive)
    targets["tmx.gz of OPUS"] = Target({"en-fr.tmx": files["a.tmx"]}, read_release("opus-tmx", ""), packed(".gz", compress_gzip))
    targets["csv of SimCSE"] = Target(
        {"nli_for_simcse.csv": csv([("sent0", "sent1", "hard_neg"), *((a, b, a) for a, b in TEXTS)])}, read_release("simcse-nli", "")
    )
    korean = [{"sentence1": a, "sentence2": b, "labels": {"label": 1.5}} for a, b in TEXTS]
    targets["json of KLUE"] = Target({"klue-sts-v1.1_dev.json": json.dumps(korean).encode()}, read_release("klue-sts", ""))
    wiki = parquet({"text": ["_START_ARTICLE_\na\n_START_PARAGRAPH_\none._NEWLINE_two."] * 5})
    targets["parquet of Wiki-40B"] = Target({"ja/train-0.parquet": wiki}, read_release("wiki-40b", ""))
    bucc = json.dumps({"sentence1": [a for a, _ in TEXTS], "sentence2": [b for _, b in TEXTS], "gold": [[1, 1], [2, 2]]})
    targets["json of BUCC"] = Target({"fr-en/test.jsonl": bucc.encode()}, read_release("bucc", ""), packed(".gz", compress_gzip))
    for model, path in CONFIGS.items():
        targets[f"yaml of {model.__name__}"] = Target({"a.yaml": (ROOT / "configs" / path).read_bytes()}, read_config(model))
    return targets | own_targets()


def tmx() -> bytes:
    unit = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv>\n<tuv xml:lang="fr"><seg>{}<ph>x</ph></seg></tuv></tu>'
    units = "".join(unit.format(escape(a), escape(b)) for a, b in TEXTS)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header/><body>{units}</body></tmx>'.encode()


def structs() -> bytes:
    return parquet({"t": [{"en": a, "fr": b} for a, b in TEXTS] * 20, "n": list(range(100)), "l": [["a", None]] * 100}, compression="zstd")


def own_targets() -> dict[str, Target]:
    """Return files that the library or another program writes as a whole: candidates, embeddings, static encoders."""
    vectors = np.random.default_rng(0).normal(size=(300, 16)).astype(np.float16)
    ids, means = np.arange(300), np.ones(300)
    own = {
        "candidates": pa.table({"source_id": ids, "target_id": ids, "similarity": means, "source_mean": means, "forward": ids > 1}),
        "embeddings": pa.table([ids, tables.vectors_to_arrow(vectors)], tables.embeddings_schema(16, "static-0")),
    }
    targets = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, table in own.items():
            table_files.write_table(str(folder / "part.parquet"), table)
            targets[kind] = Target({"part.parquet": (folder / "part.parquet").read_bytes()}, read_own_table)
        save_encoder(folder / "encoder")
        files = {path.name: path.read_bytes() for path in (folder / "encoder").iterdir()}
    for kind, names in ENCODERS.items():
        targets[kind] = Target({name: files[name] for name in names}, read_encoder)
    return targets


def save_encoder(folder: Path) -> None:
    """Save a static encoder in both formats."""
    pieces = io.BytesIO()
    sentences = iter([f"{a} {b}" for a, b in TEXTS] * 20)
    options = {"vocab_size": 60, "bos_id": -1, "eos_id": -1, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=sentences, model_writer=pieces, **options)
    num_pieces = sentencepiece.SentencePieceProcessor(model_proto=pieces.getvalue()).get_piece_size()
    static.save(folder, np.random.default_rng(0).normal(size=(num_pieces, 8)), pieces.getvalue())
    static_export.write(folder)
