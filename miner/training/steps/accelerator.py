"""Accelerate, which only training needs."""

from miner.errors import require

require("accelerate")

from accelerate import Accelerator as Accelerator  # noqa: E402  # after the error for a missing package
from accelerate.state import AcceleratorState as AcceleratorState  # noqa: E402
