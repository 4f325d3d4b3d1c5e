"""Start pyarrow without pandas."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


class _WithoutPandas(MetaPathFinder):
    """Makes `import pandas` fail as if it were not installed."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def defer_pandas() -> None:
    """Keep pyarrow from importing pandas before something is converted to or from a data frame.

    Its first conversion of an array imports pandas, where that is installed, to recognise its objects, which takes 0.3 s. If that fails,
    pyarrow does without, and imports pandas when a data frame is needed.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)
