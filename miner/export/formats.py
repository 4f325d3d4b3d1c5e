"""Writers of the export formats: one class each, which takes batches of pairs and writes one split."""

import contextlib
import json
import re
from collections.abc import Iterator
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


def _one_line(text: str) -> str:
    return LINE_BREAKS.sub(" ", text)


def _texts(batch: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(batch["source_text"].to_pylist(), batch["target_text"].to_pylist(), strict=True)


class MosesWriter:
    """SPLIT.SOURCE and SPLIT.TARGET: line i of one is the translation of line i of the other."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = tuple(f"{target.split}.{lang}" for lang in target.langs)
        self._handles = [target.open_text(name) for name in self.files]

    def write(self, batch: pa.Table) -> None:
        for handle, column in zip(self._handles, ("source_text", "target_text"), strict=True):
            handle.writelines(f"{_one_line(text)}\n" for text in batch[column].to_pylist())


class TsvWriter:
    """SPLIT.tsv.gz with a header: margin, source, target. If formulas are escaped, no text begins like one."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"{target.split}.tsv.gz",)
        self._handle = target.open_text(self.files[0])
        self._escapes_formulas = target.escape_formulas
        self._handle.write(f"margin\t{target.langs[0]}\t{target.langs[1]}\n")

    def write(self, batch: pa.Table) -> None:
        for margin, (source, target) in zip(batch["margin"].to_pylist(), _texts(batch), strict=True):
            cells = (self._cell(text) for text in (source, target))
            self._handle.write("\t".join([f"{margin:.8f}", *cells]) + "\n")

    def _cell(self, text: str) -> str:
        cell = _one_line(text).replace("\t", " ")
        return f"'{cell}" if self._escapes_formulas and FORMULA.match(cell) else cell


class JsonlWriter:
    """SPLIT.jsonl: an object per line with `translation`, `margin` and, if the bitext has it, `probability`."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"{target.split}.jsonl",)
        self._langs = target.langs
        self._handle = target.open_text(self.files[0])

    def write(self, batch: pa.Table) -> None:
        scores = batch.select([name for name in SCORES if name in batch.column_names]).to_pylist()
        for pair_scores, texts in zip(scores, _texts(batch), strict=True):
            value = {"translation": dict(zip(self._langs, texts, strict=True)), **pair_scores}
            self._handle.write(json.dumps(value, ensure_ascii=False) + "\n")


class TmxWriter:
    """SPLIT.tmx: Translation Memory eXchange 1.4, with the margin of each unit as a property."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"{target.split}.tmx",)
        self._langs = target.langs
        self._handle = target.open_text(self.files[0])
        self._handle.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
            f'<header creationtool="bitext-miner" creationtoolversion="{__version__}" segtype="sentence" o-tmf="bitext-miner"'
            f' adminlang="en" srclang={quoteattr(target.langs[0])} datatype="plaintext"/>\n<body>\n'
        )
        target.stack.push(self._close)  # runs before the file is closed

    def _close(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._handle.write("</body>\n</tmx>\n")

    def write(self, batch: pa.Table) -> None:
        for margin, texts in zip(batch["margin"].to_pylist(), _texts(batch), strict=True):
            segments = "".join(
                f"<tuv xml:lang={quoteattr(lang)}><seg>{escape(NOT_XML.sub(' ', text))}</seg></tuv>"
                for lang, text in zip(self._langs, texts, strict=True)
            )
            self._handle.write(f'<tu><prop type="margin">{margin:.8f}</prop>{segments}</tu>\n')


class ParquetWriter:
    """SPLIT.parquet with every column of the bitext."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"{target.split}.parquet",)
        self._writer = target.open_parquet(self.files[0], target.schema)

    def write(self, batch: pa.Table) -> None:
        self._writer.write_table(batch)


class HuggingFaceWriter:
    """data/SPLIT.parquet for `datasets.load_dataset`: `translation`, a struct of both texts by language, and the scores."""

    def __init__(self, target: SplitTarget) -> None:
        self.files: tuple[str, ...] = (f"data/{target.split}.parquet",)
        storage.make_folder(storage.join(target.folder, "data"))
        sides = [(f"{side}_{name}", kind) for side in ("source", "target") for name, kind in (("file", pa.string()), ("line", pa.int64()))]
        self._schema = pa.schema(
            [
                pa.field("translation", pa.struct([pa.field(lang, pa.string()) for lang in target.langs])),
                pa.field("margin", pa.float64()),
                pa.field("similarity", pa.float32()),
                *([pa.field(PROBABILITY, pa.float64())] if PROBABILITY in target.schema.names else []),
                *(pa.field(name, kind) for name, kind in sides),
            ]
        )
        self._writer = target.open_parquet(self.files[0], self._schema)

    def write(self, batch: pa.Table) -> None:
        texts = [batch[f"{side}_text"].combine_chunks() for side in ("source", "target")]
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
