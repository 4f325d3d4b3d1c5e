"""`miner eval`: one command for each evaluation."""

import posixpath
from typing import Any

import click

from miner.choices import MARGINS
from miner.cli import console, eval_options, options, report
from miner.cli import gold as gold_module
from miner.config.base import load_yaml
from miner.config.commands import EncoderSettings
from miner.errors import ConfigError
from miner.evaluation.settings import (
    AlignmentTask,
    BuccTask,
    ClassificationTask,
    ClusteringTask,
    LanguageProbeTask,
    MapTask,
    PairClassificationTask,
    RetrievalTask,
    StsTask,
    SuiteConfig,
    TaskSettings,
    TatoebaTask,
)


@click.group()
def command() -> None:
    """Measure an encoder, or what was mined."""


@command.command()
@click.argument("source")
@click.argument("target")
@options.encoder_options
@eval_options.k
@eval_options.columns
@eval_options.output
def retrieval(**settings: Any) -> None:
    """How often line i of TARGET is found for line i of SOURCE, and the other way round.

    By cosine, and by ratio margin among the k nearest, which is xSIM. SOURCE and TARGET are text with a sentence on each line.

    \b
    Example:
      miner eval retrieval news.de.txt.gz news.en.txt.gz --encoder sentence-transformers/LaBSE
    """
    _run(RetrievalTask, settings)


@command.command()
@eval_options.data("Folder of files tatoeba.xxx-eng.tsv.gz: xxx<TAB>English, no header.")
@options.encoder_options
@eval_options.output
def tatoeba(**settings: Any) -> None:
    """Retrieval by cosine between English and each language of Tatoeba, with XTREME's averages.

    Forward is from the language to English, backward from English to it.

    \b
    Example:
      miner eval tatoeba --data tatoeba --encoder builtin --json tatoeba.json
    """
    _run(TatoebaTask, settings)


@command.command()
@eval_options.data(
    "Folder of files such as de-en.dev.de, de-en.dev.en (id<TAB>sentence) and de-en.dev.gold (id<TAB>id), and the same for test."
)
@options.encoder_options
@eval_options.k
@options.setting(BuccTask, "margin", "How neighbours count against a pair.", type=click.Choice(list(MARGINS)))
@eval_options.output
def bucc(**settings: Any) -> None:
    """F1 of mined pairs on the test split, with the threshold tuned on the dev split; the oracle F1 apart.

    \b
    Example:
      miner eval bucc --data bucc2018 --encoder sentence-transformers/LaBSE
    """
    _run(BuccTask, settings)


@command.command()
@eval_options.data("Table with the columns sentence1, sentence2 and score.")
@click.option("--track-column", "track_columns", multiple=True, metavar="NAME", help="Rows equal in this are a track; may be repeated.")
@options.encoder_options
@eval_options.output
def sts(**settings: Any) -> None:
    """Correlation of cosines with how similar people find two sentences, by track and over all.

    \b
    Example:
      miner eval sts --data sts17.tsv.gz --track-column track
    """
    _run(StsTask, settings)


@command.command()
@eval_options.data("Table of texts and labels.")
@eval_options.column(ClusteringTask, "text_column", "Column of the text.")
@eval_options.column(ClusteringTask, "label_column", "Column of the label.")
@eval_options.column(ClusteringTask, "lang_column", "Column of the language; each is clustered by itself.")
@options.setting(ClusteringTask, "clusters", "How many; without it, as many as there are labels.", type=click.IntRange(2))
@eval_options.seed
@options.encoder_options
@eval_options.output
def clustering(**settings: Any) -> None:
    """How well k-means finds the labels of texts: purity and V-measure.

    \b
    Example:
      miner eval clustering --data news.tsv.gz --text-column headline --label-column category
    """
    _run(ClusteringTask, settings)


@command.command()
@eval_options.probe(
    click.option("--train", required=True, metavar="FILE", help="Table of the rows to train on."),
    eval_options.column(ClassificationTask, "text_column", "Column of the text."),
)
@options.encoder_options
@eval_options.output
def classification(**settings: Any) -> None:
    """Accuracy of a linear classifier of texts on embeddings that stay as they are.

    \b
    Example:
      miner eval classification --train news.tsv --test news.tsv --split-column split --lang-column lang --train-lang eng
    """
    _run(ClassificationTask, settings)


@command.command("pair-classification")
@eval_options.probe(
    click.option("--train", metavar="FILE", help="Table of the rows to train on; without it, the encoder's own classifier is tested."),
    eval_options.column(PairClassificationTask, "first_column", "Column of the first text."),
    eval_options.column(PairClassificationTask, "second_column", "Column of the second text."),
)
@eval_options.fine_tuning
@options.encoder_options
@eval_options.output
def pair_classification(**settings: Any) -> None:
    """Accuracy of a classifier of pairs of texts, such as those of PAWS-X and XNLI.

    A linear classifier on embeddings that stay as they are; with --fine-tune the encoder learns, too; without --train it is the
    classifier that `miner train` left beside the encoder. --train-lang en is zero-shot transfer from English; a table of translations
    without it is translate-train.

    \b
    Example:
      miner eval pair-classification --train pawsx.train.tsv --test pawsx.test.tsv.gz --lang-column lang --train-lang en --fine-tune \\
        --encoder FacebookAI/xlm-roberta-base --pooling cls
    """
    _run(PairClassificationTask, settings)


@command.command("language-probe")
@eval_options.data("Table of texts and their languages.")
@eval_options.column(LanguageProbeTask, "text_column", "Column of the text.")
@eval_options.column(LanguageProbeTask, "lang_column", "Column of the language.")
@options.setting(LanguageProbeTask, "per_language", "Rows drawn of each language, at most.", type=click.IntRange(2))
@eval_options.seed
@options.encoder_options
@eval_options.output
def language_probe(**settings: Any) -> None:
    """How well a linear classifier tells the language from the embedding: the less, the more alike the languages are to the encoder.

    \b
    Example:
      miner eval language-probe --data udhr.tsv.gz
    """
    _run(LanguageProbeTask, settings)


@command.command()
@click.argument("source")
@click.argument("target")
@options.encoder_options
@eval_options.columns
@eval_options.output
def alignment(**settings: Any) -> None:
    """How close translations are to each other, and how evenly all sentences are spread: alignment and uniformity.

    Line i of TARGET translates line i of SOURCE.

    \b
    Example:
      miner eval alignment news.de.txt.gz news.en.txt.gz
    """
    _run(AlignmentTask, settings)


@command.command("map")
@eval_options.data("Table of texts, their languages, and ids that translations share.")
@eval_options.column(MapTask, "text_column", "Column of the text.")
@eval_options.column(MapTask, "lang_column", "Column of the language.")
@eval_options.column(MapTask, "id_column", "Column of the id: the same for translations.")
@options.setting(MapTask, "sentences", "Sentences drawn of those in two languages, at most.", type=click.IntRange(3))
@eval_options.seed
@options.encoder_options
@eval_options.output
def language_map(**settings: Any) -> None:
    """How alike languages are to an encoder, by the same sentences in all of them; drawn in the report.

    \b
    Example:
      miner eval map --data udhr.tsv.gz --json map/udhr.json
    """
    _run(MapTask, settings)


@command.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--gold", metavar="FILE", help="All true pairs, as of `miner mine --gold`; or marks: a table with the columns mark, source and target."
)
@eval_options.output
def bitext(folder: str, gold: str | None, json_file: str | None, no_report: bool) -> None:
    """What the pairs in a folder of `miner mine` look like; with gold or marks, how many are right above each threshold.

    \b
    Example:
      miner eval bitext mined --gold gold.tsv --json bitext.json
    """
    from miner.evaluation.bitext import evaluate

    known = None if gold is None else gold_module.read(folder, gold)
    _tell(evaluate(folder, known), json_file, no_report=True)
    if not no_report:
        report.leave(folder, known, identify=True)


@command.command()
@click.option("--config", "path", required=True, metavar="FILE", help="The tasks, such as configs/eval.yaml.")
@click.option("--data", metavar="DIR", help="Where their files are, instead of where the config says.")
@click.option("--against", metavar="NAME", help="A second encoder, to compare with the first.")
@options.encoder_options
@eval_options.output
def suite(path: str, data: str | None, against: str | None, json_file: str | None, no_report: bool, **settings: Any) -> None:
    """Run many evaluations and print one table; with --against, two encoders side by side and how sure their difference is.

    \b
    Example:
      miner eval suite --config configs/eval.yaml --data data --against sentence-transformers/LaBSE
    """
    from functools import partial

    from miner.encoders import load_encoder
    from miner.evaluation.suite import run

    config = load_yaml(SuiteConfig, path)
    if data is not None:
        config = config.model_copy(update={"data": data})
    chosen = EncoderSettings.check(**settings)
    if against == chosen.encoder:
        raise ConfigError(f"--against {against}: the same encoder as the first; name another")
    names = [chosen.encoder, *([against] if against is not None else [])]
    result = run({name: partial(load_encoder, name, chosen) for name in names}, config)
    _tell(result, json_file, no_report)


def _run(kind: type[TaskSettings], values: dict[str, Any]) -> None:
    """Run one task by its options, which are its settings and those of the encoder."""
    from miner.encoders import load_encoder
    from miner.evaluation.suite import evaluate

    json_file, no_report = values.pop("json_file"), values.pop("no_report")
    task = kind.check(**{name: values.pop(name) for name in kind.model_fields if name in values})
    chosen = EncoderSettings.check(**values)
    _tell(evaluate(load_encoder(chosen.encoder, chosen), task), json_file, no_report)


def _tell(result: Any, json_file: str | None, no_report: bool) -> None:
    """Figures to a file, with a report beside them, and the summary to the terminal."""
    console.write_figures(json_file, result.figures())
    click.echo(result.summary())
    if json_file is not None and not no_report:
        report.leave(posixpath.dirname(json_file) or ".")
