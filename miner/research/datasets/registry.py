"""The layouts of public datasets, by name."""

from miner.errors import ConfigError
from miner.research.datasets import layouts_bitext, layouts_nli, layouts_sts, layouts_text
from miner.research.datasets.layout import DatasetLayout

LAYOUTS: dict[str, DatasetLayout] = {
    layout.name: layout for module in (layouts_bitext, layouts_nli, layouts_sts, layouts_text) for layout in module.LAYOUTS
}


def get_layout(name: str) -> DatasetLayout:
    """The layout of that name; ConfigError, with the names there are, for another."""
    if name not in LAYOUTS:
        raise ConfigError(f"unknown dataset {name!r}; one of {', '.join(sorted(LAYOUTS))}")
    return LAYOUTS[name]
