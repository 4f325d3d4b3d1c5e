"""Writers of the export formats: one class each, which takes batches of pairs and writes one split."""

import abc
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TextIO
from xml.sax.saxutils import escape, quoteattr

import pyarrow as pa
import pyarrow.parquet as pq

from miner import __version__
from miner.config.probability import PROBABILITY
from miner.io import storage, table_files
from miner.mining.writers import text_writer

# Line breaks of str.splitlines and of other readers: a sentence with one would be two lines of a Moses file.
LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# What a spreadsheet takes for the start of a formula, also in quotes, after spaces, and in the full-width forms of East Asian input.
FORMULA = re.compile(r"[\s\"']*[=+\-@＝＋－＠]")
SCORES = ("margin", PROBABILITY)
TEXTS = ("source_text", "target_text")
NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class SplitTarget:
    """Where a split is written: a directory, the name of the split, BCP 47 tags of both sides, the schema of the bitext; and how."""

    folder: str
    split: str
    langs: tuple[str, str]
    schema: pa.Schema
    escape_formulas: bool
    stack: contextlib.ExitStack  # closes what a writer opens; an error discards the files

    def open_text(self, name: str) -> TextIO:
        return self.stack.enter_context(text_writer(storage.join(self.folder, name)))

    def open_parquet(self, name: str, schema: pa.Schema) -> pq.ParquetWriter:
        return self.stack.enter_context(table_files.parquet_writer(storage.join(self.folder, name), schema))


class SplitWriter(Protocol):
    """Writes the pairs of one split, batch by batch. `files` are the names it writes, relative to the output directory."""

    files: tuple[str, ...]

    def __init__(self, target: SplitTarget) -> None: ...

    def write(self, batch: pa.Table) -> None: ...


class MosesWriter:
    """SPLIT.SOURCE and SPLIT.TARGET: line i of one is the translation of line i of the other."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = tuple(f"{target.split}.{lang}" for lang in target.langs)
        self._handles = [target.open_text(name) for name in self.files]

    def write(self, batch: pa.Table) -> None:
        for handle, column in zip(self._handles, TEXTS, strict=True):
            handle.writelines(f"{LINE_BREAKS.sub(' ', text)}\n" for text in batch[column].to_pylist())


class PairWriter(abc.ABC):
    """One text file, SPLIT.EXTENSION: a header, a line for each pair, and a footer."""

    extension: str
    footer = ""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"{target.split}.{self.extension}",)
        self.target = target
        self._handle = target.open_text(self.files[0])
        self._handle.write(self.header())
        target.stack.push(self._close)  # runs before the file is closed

    def _close(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._handle.write(self.footer)

    def write(self, batch: pa.Table) -> None:
        scores = batch.select([name for name in SCORES if name in batch.column_names]).to_pylist()
        texts = zip(*(batch[column].to_pylist() for column in TEXTS), strict=True)
        self._handle.writelines(f"{self.line(*pair)}\n" for pair in zip(scores, texts, strict=True))

    def header(self) -> str:
        return ""

    @abc.abstractmethod
    def line(self, scores: Mapping[str, float], texts: tuple[str, str]) -> str: ...


class TsvWriter(PairWriter):
    """SPLIT.tsv.gz with a header: margin, source, target. If formulas are escaped, no text begins like one."""

    extension = "tsv.gz"

    def header(self) -> str:
        return "\t".join(["margin", *self.target.langs]) + "\n"

    def line(self, scores: Mapping[str, float], texts: tuple[str, str]) -> str:
        cells = [LINE_BREAKS.sub(" ", text).replace("\t", " ") for text in texts]
        if self.target.escape_formulas:
            cells = [f"'{cell}" if FORMULA.match(cell) else cell for cell in cells]
        return "\t".join([f"{scores['margin']:.8f}", *cells])


class JsonlWriter(PairWriter):
    """SPLIT.jsonl: an object per line with `translation`, `margin` and, if the bitext has it, `probability`."""

    extension = "jsonl"

    def line(self, scores: Mapping[str, float], texts: tuple[str, str]) -> str:
        present = {name: score for name, score in scores.items() if score is not None}
        return json.dumps({"translation": dict(zip(self.target.langs, texts, strict=True)), **present}, ensure_ascii=False)


class TmxWriter(PairWriter):
    """SPLIT.tmx: Translation Memory eXchange 1.4, with the margin of each unit as a property."""

    extension = "tmx"
    footer = "</body>\n</tmx>\n"

    def header(self) -> str:
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
            f'<header creationtool="bitext-miner" creationtoolversion="{__version__}" segtype="sentence" o-tmf="bitext-miner"'
            f' adminlang="en" srclang={quoteattr(self.target.langs[0])} datatype="plaintext"/>\n<body>\n'
        )

    def line(self, scores: Mapping[str, float], texts: tuple[str, str]) -> str:
        segments = "".join(
            f"<tuv xml:lang={quoteattr(lang)}><seg>{escape(NOT_XML.sub(' ', text))}</seg></tuv>"
            for lang, text in zip(self.target.langs, texts, strict=True)
        )
        return f'<tu><prop type="margin">{scores["margin"]:.8f}</prop>{segments}</tu>'


class ParquetWriter:
    """SPLIT.parquet with every column of the bitext."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"{target.split}.parquet",)
        self.write = target.open_parquet(self.files[0], target.schema).write_table


class HuggingFaceWriter:
    """data/SPLIT.parquet for `datasets.load_dataset`: `translation`, a struct of both texts by language, and the scores."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"data/{target.split}.parquet",)
        storage.make_folder(storage.join(target.folder, "data"))
        scores = {"margin": pa.float64(), "similarity": pa.float32(), PROBABILITY: pa.float64()}
        origins = {f"{side}_{name}": kind for side in ("source", "target") for name, kind in (("file", pa.string()), ("line", pa.int64()))}
        translation = pa.field("translation", pa.struct([pa.field(lang, pa.string()) for lang in target.langs]))
        columns = [pa.field(name, kind) for name, kind in (scores | origins).items() if name in target.schema.names]
        self._schema = pa.schema([translation, *columns])
        self._writer = target.open_parquet(self.files[0], self._schema)

    def write(self, batch: pa.Table) -> None:
        texts = [batch[column].combine_chunks() for column in TEXTS]
        translation = pa.StructArray.from_arrays(texts, fields=list(self._schema.field("translation").type))
        columns = [batch[field.name].cast(field.type) for field in list(self._schema)[1:]]
        self._writer.write_table(pa.table([translation, *columns], schema=self._schema))


WRITERS: dict[str, type[SplitWriter]] = {
    "moses": MosesWriter,
    "tmx": TmxWriter,
    "jsonl": JsonlWriter,
    "tsv": TsvWriter,
    "huggingface": HuggingFaceWriter,
    "parquet": ParquetWriter,
}
