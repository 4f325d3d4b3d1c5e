"""Mine parallel sentences: text in any languages in, translation pairs out.

The functions are imported when they are first used, so `import miner` takes no time. See docs/python.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from miner.api.embedding import Embeddings, embed, load_encoder
    from miner.api.evaluation import Evaluation, evaluate
    from miner.api.mining import Bitext, mine
    from miner.api.scoring import PairScores, score
    from miner.api.training import TrainedEncoder, train

__version__ = "0.1.0"

__all__ = [
    "Bitext",
    "Embeddings",
    "Evaluation",
    "PairScores",
    "TrainedEncoder",
    "embed",
    "evaluate",
    "load_encoder",
    "mine",
    "score",
    "train",
]

_MODULES = {
    "embedding": ("Embeddings", "embed", "load_encoder"),
    "mining": ("Bitext", "mine"),
    "scoring": ("PairScores", "score"),
    "training": ("TrainedEncoder", "train"),
    "evaluation": ("Evaluation", "evaluate"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"miner.api.{module}"), name)
    raise AttributeError(f"module 'miner' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
