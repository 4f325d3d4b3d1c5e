"""Scripts that are no modules of a package."""

import importlib.util
from pathlib import Path
from types import ModuleType

CONFIGS = Path(__file__).parents[2] / "configs"


def load_script(name: str, folder: Path = CONFIGS) -> ModuleType:
    """Import FOLDER/NAME.py."""
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
