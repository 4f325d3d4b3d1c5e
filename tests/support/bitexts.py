"""Mined pairs made by hand, for the tests of what reads them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from miner.io import stages
from miner.io.stages import Manifest
from miner.io.tables import BITEXT
from miner.mining import writers
from miner.text.normalise import sentence_ids

Pair = tuple[float, str, str]

OUTPUTS = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


def read_outputs(output: Path) -> dict[str, bytes]:
    """Return the bytes of the files that `miner mine` writes, by name, with those of the dropped pairs if there are any."""
    return {name: (output / name).read_bytes() for name in (*OUTPUTS, "dropped.parquet") if name in OUTPUTS or (output / name).exists()}


def write(folder: Path, pairs: Sequence[Pair], languages: tuple[str, str] = ("eng_Latn", "deu_Latn"), **config: object) -> Path:
    """A folder of `miner mine --from-candidates` with these pairs, best first; `config` is what it says it was made with."""
    margins, *texts = zip(*pairs, strict=True) if pairs else ((), (), ())
    columns: dict[str, object] = {"margin": margins, "similarity": [0.5] * len(pairs)}
    for side, values in zip(("source", "target"), texts, strict=True):
        columns |= {f"{side}_id": sentence_ids(values), f"{side}_text": values, f"{side}_file": ["f"] * len(pairs)}
        columns |= {f"{side}_line": np.arange(len(pairs)) + 1}
    table = pa.table({name: pa.array(columns[name]) for name in BITEXT.names}).cast(BITEXT)
    writers.write_bitext(str(folder), [table])
    details = {"languages": dict(zip(("source", "target"), languages, strict=True)), "pairs": len(pairs)}
    stages.write_manifest(str(folder), Manifest("mine", config, {}, [], details))
    return folder
