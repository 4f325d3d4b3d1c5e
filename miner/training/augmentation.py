"""What is done to the positives of a source before they are read."""

from miner.training.augment import CodeSwitch, read_lexicon
from miner.training.batches import Change
from miner.training.columns import expand
from miner.training.settings import SourceSettings


def change(source: SourceSettings) -> Change | None:
    """The code switching a source asks for; DataError where a lexicon cannot be read."""
    settings = source.code_switch
    return None if settings is None else CodeSwitch([read_lexicon(uri) for uri in expand(settings.lexicons)], settings.ratio)
