"""Our encoders in MTEB, the Massive Text Embedding Benchmark; needs the extra `mteb`.

import mteb
from miner.encoders import load_encoder
from miner.research.tasks.mteb_adapter import MtebEncoder

encoder = MtebEncoder(load_encoder("builtin"), "bitext-miner/builtin")
print(mteb.evaluate(encoder, mteb.get_tasks(tasks=["Tatoeba"])))
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from miner.arrays import Floats32
from miner.encoders import Encoder
from miner.errors import require

require("mteb")

from mteb.models import ModelMeta  # noqa: E402  # after the error for a missing package
from mteb.models.abs_encoder import AbsEncoder  # noqa: E402
from mteb.models.model_meta import ScoringFunction  # noqa: E402


class MtebEncoder(AbsEncoder):  # type: ignore[misc]  # mteb is not typed
    """An encoder with MTEB's interface. Similarity is the cosine; there are no prompts."""

    def __init__(self, encoder: Encoder, name: str) -> None:
        """`name` is `organisation/model`; MTEB files results under it and the encoder's fingerprint."""
        self.model = encoder
        overrides = {"name": name, "revision": encoder.fingerprint, "embed_dim": encoder.dim, "similarity_fn_name": ScoringFunction.COSINE}
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=overrides)

    def encode(self, inputs: Iterable[Mapping[str, Sequence[str]]], **_: Any) -> Floats32:
        """Batches with texts under `text` -> (n, dim) unit rows. MTEB's other arguments describe the task and are ignored."""
        return np.concatenate([self.model.encode(batch["text"]) for batch in inputs])
