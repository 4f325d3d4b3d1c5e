"""Options that several evaluations share. Their defaults are those of `miner.evaluation.settings`."""

from collections.abc import Callable
from typing import Any

import click

from miner.cli import options, report
from miner.evaluation.settings import AlignedTask, ClusteringTask, PairClassificationTask, ProbeTask, RetrievalTask, TaskSettings

Option = Callable[[Any], Any]


def data(help: str) -> Option:
    return click.option("--data", required=True, metavar="PATH", help=help)


def column(model: type[TaskSettings], name: str, help: str) -> Option:
    return options.setting(model, name, help, metavar="NAME")


def probe(train: Option, *columns: Option) -> Option:
    """The options of a classifier around those of the texts."""
    return options.group(
        train,
        click.option("--test", required=True, metavar="FILE", help="Table of the rows to test on; may be the same, with --split-column."),
        *columns,
        column(ProbeTask, "label_column", "Column of the label."),
        column(ProbeTask, "lang_column", "Column of the language; results are told for each."),
        column(ProbeTask, "split_column", "Column that says `train` or `test`; other rows are left out."),
        click.option("--train-lang", "train_langs", multiple=True, metavar="CODE", help="Train on this language alone; may be repeated."),
    )


fine_tuning = options.group(
    options.setting(PairClassificationTask, "fine_tune", "Train a copy of the encoder, a transformer, and not a probe.", is_flag=True),
    options.setting(PairClassificationTask, "epochs", "Of fine-tuning.", type=float),
    options.setting(PairClassificationTask, "lr", "Of fine-tuning: the highest learning rate.", type=float),
    options.setting(PairClassificationTask, "batch_size", "Of fine-tuning: pairs in a step.", type=int),
    options.setting(PairClassificationTask, "seed", "Of fine-tuning.", type=int),
)
output = options.group(options.json_option, report.report_option)
columns = options.group(
    options.text_column_option,
    column(AlignedTask, "target_column", "The one of TARGET, if another."),
)
seed = options.setting(ClusteringTask, "seed", "Of what is drawn by chance.", type=int)
k = options.setting(RetrievalTask, "k", "Neighbours on each side, for the margin.", type=click.IntRange(1, 1024))
