"""The methods that `training_study.py` compares, as sections of a config; DATA/ stands for the data folder."""

from dataclasses import dataclass, field
from typing import Any

RANDOM, WORDS, TRANSLATIONS, NOTHING = "random", "words", "parallel", ""  # the encoder that a method starts from

Values = dict[str, Any]


@dataclass(frozen=True)
class Method:
    data: list[Values]
    objective: list[Values]
    training: Values
    encoder: Values = field(default_factory=dict)
    evaluation: Values | None = None
    start: str = WORDS  # a method, RANDOM weights, or NOTHING for an encoder built from the data


PAIRS = {"source": "en", "target": "xx", "lang": "lang"}
NLI = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}
PAIR = {"first": "premise", "second": "hypothesis", "label": "label"}
GROUP = {"group": "group", "lang": "lang", "text": "text"}
LABELS = ["entailment", "neutral", "contradiction"]
LEXICONS = {"lexicons": ["DATA/en-*.txt"], "ratio": 0.75}
STEPS, BATCH = 150, 64
MIX_STEPS = 225  # three epochs of 1,004 pairs and 3,784 entailed rows
FEW_WEIGHT, PAIRS_WEIGHT = 1004 / 3784, 59182 / 3784  # of whole batches in proportion to the sizes


def steps(count: int = STEPS, batch: int = BATCH, lr: float = 2e-3) -> Values:
    return {"steps": count, "batch_size": batch, "lr": lr}


def contrast(**settings: Any) -> Values:
    return {"loss": "info_nce", "temperature": 0.05, **settings}


LEXICON = {"strategy": "parallel", "name": "words", "files": ["DATA/words.tsv"], "columns": PAIRS}
PARALLEL = {"strategy": "parallel", "name": "pairs", "files": ["DATA/pairs.tsv"], "columns": PAIRS}
FEW = {**PARALLEL, "files": ["DATA/few.tsv"]}
UNSUPERVISED = {"strategy": "unsupervised", "files": ["DATA/text.tsv"], "columns": {"lang": "lang", "text": "text"}}
ENGLISH_NLI = {"strategy": "nli", "name": "nli", "files": ["DATA/nli.en.tsv"], "columns": NLI}
SOFT_NLI = {**ENGLISH_NLI, "hard_negatives": False}
CROSS_NLI = {"strategy": "cross_lingual_nli", "files": ["DATA/xnli.tsv"], "columns": {"lang": "lang", **NLI}}
GROUPS = {"strategy": "multi_positive", "files": ["DATA/groups.tsv"], "columns": GROUP}
RELATION = {"strategy": "labelled_pairs", "name": "relation", "files": ["DATA/nli.en.tsv"], "columns": PAIR, "labels": LABELS}
LABELLED = {"strategy": "labelled_pairs", "columns": {"lang": "lang", **PAIR}, "labels": LABELS, "code_switch": LEXICONS}
ACCURACY = {"metric": "accuracy", "columns": PAIR, "every": 100_000}
SWITCHED = {**PARALLEL, "view": "same", "code_switch": LEXICONS}
# Each text of a paraphrase pair with its own translation, and with that of its paraphrase.
PARAPHRASES = {**PARALLEL, "name": "paraphrases", "files": ["DATA/paraphrases.tsv"]}
STATIC = {"kind": "static", "dim": 64, "spelling_buckets": 16384, "vocabulary": {"size": 8000}}


def momentum(value: float) -> Values:
    return {"loss": "momentum", "temperature": 0.04, "momentum": value, "queue": 4096, "data": ["pairs"]}


def groups(**loss: Any) -> Method:
    return Method([GROUPS], [{"loss": "multi_positive", **loss}], steps(batch=32))


def paraphrases(loss: str) -> Method:
    return Method([PARAPHRASES], [{"loss": loss, "temperature": 0.05}], steps(batch=128), {"max_tokens": 32})


def static(count: int) -> Method:
    return Method([PARALLEL], [contrast(two_way=True)], steps(count, 256, 8e-3), STATIC, start=NOTHING)


def classifier(train_file: str, test_files: list[str], max_tokens: int, *losses: Values) -> Method:
    """Classify pairs read as one sequence, with further losses between each pair and its code-switched view."""
    data, evaluation = [{**LABELLED, "files": [train_file]}], {**ACCURACY, "files": test_files}
    encoder = {"pooling": "cls", "max_tokens": max_tokens}
    return Method(data, [{"loss": "classification"}, *losses], steps(1500, 32, 1e-3), encoder, evaluation, TRANSLATIONS)


def sick(*losses: Values) -> Method:
    """Train on English and Dutch pairs, test on Dutch ones."""
    return classifier("DATA/sick.tsv", ["DATA/sick.nl.tsv"], 36, *losses)


def xnli(*losses: Values) -> Method:
    """Train on English pairs, test on other languages."""
    return classifier("DATA/xnli.test.en.tsv", [f"DATA/xnli.dev.{lang}.tsv" for lang in ("de", "es", "fr")], 64, *losses)


def mixture(pairs: Values, mix: str, weight: float = 1.0) -> Method:
    """Train on pairs and English NLI for as many steps as three epochs of few pairs and NLI take."""
    return Method([{**pairs, "weight": weight}, SOFT_NLI], [contrast()], {**steps(MIX_STEPS), "mix": mix})


ADDED_LOSSES: dict[str, list[Values]] = {
    "": [],
    " + contrast": [{"loss": "info_nce", "temperature": 1.0}],
    " + label contrast": [{"loss": "label_contrast", "temperature": 1.0}],
    " + alignment": [{"loss": "alignment", "weight": 10}],
}
# Pairs beside English NLI: batches mixed in proportion to the sizes, or whole batches of one source.
MIXTURES = {
    "mixture: nli": Method([SOFT_NLI], [contrast()], steps(MIX_STEPS)),
    "mixture: few pairs": Method([FEW], [contrast()], steps(MIX_STEPS)),
    "mixture: few pairs + nli, in proportion": mixture(FEW, "examples"),
    "mixture: few pairs + nli, whole batches in proportion": mixture(FEW, "batches", FEW_WEIGHT),
    "mixture: few pairs + nli, whole batches": mixture(FEW, "batches"),
    "mixture: pairs": Method([PARALLEL], [contrast()], steps(MIX_STEPS)),
    "mixture: pairs + nli, in proportion": mixture(PARALLEL, "examples"),
    "mixture: pairs + nli, whole batches in proportion": mixture(PARALLEL, "batches", PAIRS_WEIGHT),
    "mixture: pairs + nli, whole batches": mixture(PARALLEL, "batches"),
}
METHODS = {
    **MIXTURES,
    WORDS: Method([LEXICON], [contrast(two_way=True)], steps(300, 256, 3e-3), start=RANDOM),
    TRANSLATIONS: Method([PARALLEL], [contrast()], steps()),
    "unsupervised": Method([UNSUPERVISED], [contrast()], steps()),
    "unsupervised + mlm": Method([UNSUPERVISED], [contrast(), {"loss": "mlm", "weight": 0.1}], steps()),
    "nli, English": Method([ENGLISH_NLI], [contrast()], steps()),
    "nli, English, no hard negatives": Method([SOFT_NLI], [contrast()], steps()),
    "nli, cross-lingual": Method([CROSS_NLI], [contrast()], steps()),
    "few pairs": Method([FEW], [contrast()], steps()),
    "one positive": Method([{**GROUPS, "positives": 1}], [contrast()], steps(batch=32)),
    "one positive, as many texts": Method([{**GROUPS, "positives": 1}], [contrast()], steps(batch=80)),
    "all positives, out": groups(form="out"),
    "all positives, in": groups(form="in"),
    "all positives, rescaled": groups(rescale=True),
    "three positives of nli, hard negatives": Method([{**CROSS_NLI, "positives": 3}], [{"loss": "multi_positive"}], steps(batch=32)),
    "contrast, code switching": Method([SWITCHED], [contrast()], steps()),
    "label contrast, code switching": Method([SWITCHED], [{"loss": "label_contrast", "temperature": 0.05}], steps()),
    "contrast, paraphrases": paraphrases("info_nce"),
    "label contrast, paraphrases": paraphrases("label_contrast"),
    "alignment alone, code switching": Method([SWITCHED], [{"loss": "alignment", "weight": 10}], steps()),
    "alignment alone, translation": Method([PARALLEL], [{"loss": "alignment", "weight": 10}], steps()),
    "momentum 0.99": Method([PARALLEL], [momentum(0.99)], steps()),
    "momentum 0": Method([PARALLEL], [momentum(0)], steps()),
    "momentum 0.99 + nli head": Method(
        [PARALLEL, {**RELATION, "joint": False}],
        [momentum(0.99), {"loss": "nli_head", "weight": 0.1, "data": ["relation"]}],
        steps(),
    ),
    "static, one step": static(1),
    "static": static(STEPS),
    **{f"sick, classification{name}": sick(*losses) for name, losses in ADDED_LOSSES.items()},
    **{f"xnli, classification{name}": xnli(*losses) for name, losses in ADDED_LOSSES.items()},
}
