"""Strategies on small hand-written files: examples, groups of texts with the same meaning, and errors."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from tiny import write_tsv

from miner.errors import DataError
from miner.training.config import DataSettings
from miner.training.data.augment import load_code_switch
from miner.training.data.batches import Batch, View, group_connected_rows
from miner.training.data.datasets import open_dataset, read_source
from miner.training.data.sampling import Sampler
from miner.training.data.strategies import build_strategy
from miner.training.data.strategy import Strategy

PAIRS = {"source": "en", "target": "fr"}
NLI = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}


def open_strategy(folder: Path, **values: Any) -> Strategy:
    settings = pydantic.TypeAdapter(DataSettings).validate_python({**values, "files": list(map(str, values["files"]))})
    read_source(settings, folder / "work")
    return build_strategy(open_dataset(settings, folder / "work"), settings, 0, load_code_switch(settings.code_switch))


def read_view(view: View, seed: int = 0) -> list[str]:
    return view.read(np.random.default_rng(seed))[0]


def draw_batches(strategy: Strategy, size: int, batches: int = 1) -> list[Batch]:
    return [strategy.draw(size, np.random.default_rng([1, number])) for number in range(batches)]


def test_all_formats_give_the_same_pairs(tmp_path: Path) -> None:
    rows = [["one", "un"], ["two", "deux"], ['"three"', "trois "]]
    write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps({"fr": b, "en": a}) + "\n" for a, b in rows).encode()))
    pq.write_table(pa.table({"fr": [b for _, b in rows], "en": [a for a, _ in rows]}), tmp_path / "c.parquet")
    for name in ("a.tsv", "b.jsonl.gz", "c.parquet"):
        pairs = open_strategy(tmp_path / name.partition(".")[0], strategy="parallel", files=[tmp_path / name], columns=PAIRS)
        (batch,) = draw_batches(pairs, 3)
        examples = set(zip(read_view(batch.views["anchor"]), read_view(batch.views["positive"]), strict=True))
        assert examples == {("one", "un"), ("two", "deux"), ('"three"', "trois")}


def test_translations_of_one_text_form_a_group(tmp_path: Path) -> None:
    rows = [["yes", "oui"], ["hello", "salut"], ["yes", "si"], ["hi", "salut"], ["no", "non"], ["indeed", "si"]]
    (batch,) = draw_batches(
        open_strategy(tmp_path, strategy="parallel", files=[write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)], columns=PAIRS), 6
    )
    groups: dict[int, set[str]] = {}
    for text, group in zip(read_view(batch.views["anchor"]), batch.groups, strict=True):
        groups.setdefault(int(group), set()).add(text)
    assert sorted(groups.values(), key=sorted) == [{"hello", "hi"}, {"indeed", "yes"}, {"no"}]


def test_group_connected_rows_by_hand() -> None:
    groups = group_connected_rows(np.array([1, 2, 3, 4]), np.array([10, 11, 10, 12]), np.array([20, 21, 22, 21]))
    assert groups[0] == groups[2]
    assert groups[1] == groups[3]
    assert groups[0] != groups[1]


def test_swap_exchanges_the_sides_of_half_of_the_pairs(tmp_path: Path) -> None:
    rows = [[f"en{n}", f"fr{n}"] for n in range(200)]
    path = write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)
    (batch,) = draw_batches(open_strategy(tmp_path, strategy="parallel", files=[path], columns=PAIRS, swap=True), 200)
    anchors, positives = read_view(batch.views["anchor"]), read_view(batch.views["positive"])
    assert 70 < sum(text.startswith("fr") for text in anchors) < 130
    assert all({a[:2], b[:2]} == {"en", "fr"} and a[2:] == b[2:] for a, b in zip(anchors, positives, strict=True))


def test_views_of_parallel_text(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", ["en", "fr"], [["one two three four", "un deux trois quatre"]])
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("one eins\ntwo zwei\n")
    common = {"strategy": "parallel", "files": [path], "columns": PAIRS}
    (batch,) = draw_batches(open_strategy(tmp_path / "a", **common, view="partial_translation"), 1)
    (mixed,) = read_view(batch.views["positive"])
    assert read_view(batch.views["anchor"]) == ["one two three four"]
    assert {"un", "deux", "trois", "quatre"} & set(mixed.split())
    assert {"one", "two", "three", "four"} & set(mixed.split())
    (batch,) = draw_batches(open_strategy(tmp_path / "b", **common, view="same", code_switch={"lexicons": [str(lexicon)], "ratio": 1}), 1)
    assert read_view(batch.views["positive"]) == ["eins zwei three four"]


def test_mined_pairs_are_filtered_and_weighted_by_margin(tmp_path: Path) -> None:
    (tmp_path / "mined").mkdir()
    table = {"source_text": ["a", "b", "c", "d"], "target_text": ["A", "B", "C", "D"], "margin": [1.3, 1.1, 1.0, 1.2]}
    pq.write_table(pa.table(table), tmp_path / "mined" / "bitext.parquet")
    mined = open_strategy(tmp_path, strategy="mined", files=[tmp_path / "mined"], least_margin=1.1, weigh_by_margin=True)
    (batch,) = draw_batches(mined, 3)
    weights = dict(zip(read_view(batch.views["anchor"]), batch.weights, strict=True))
    assert weights == pytest.approx({"a": 1.3 / 1.2, "b": 1.1 / 1.2, "d": 1.0})


NLI_ROWS = [
    ["p1", "e1", "entailment"], ["p1", "n1", "neutral"], ["p1", "c1", "contradiction"], ["p1", "d1", "contradiction"],
    ["p2", "e2", "entailment"], ["p3", "e3", "entailment"], ["p3", "c3", "contradiction"], ["p2", "n2", "neutral"],
]  # fmt: skip


def test_nli_triplets_combine_entailment_and_contradiction(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", list(NLI), NLI_ROWS)
    hard = open_strategy(tmp_path / "a", strategy="nli", files=[path], columns=NLI)
    triplets = {
        triplet
        for batch in draw_batches(hard, 2, batches=12)
        for triplet in zip(*(read_view(batch.views[view]) for view in ("anchor", "positive", "negative")), strict=True)
    }
    assert triplets == {("p1", "e1", "c1"), ("p1", "e1", "d1"), ("p3", "e3", "c3")}
    soft = open_strategy(tmp_path / "b", strategy="nli", files=[path], columns=NLI, hard_negatives=False)
    (batch,) = draw_batches(soft, 3)
    assert set(batch.views) == {"anchor", "positive"}
    assert set(read_view(batch.views["anchor"])) == {"p1", "p2", "p3"}


def test_hard_negatives_are_grouped_with_rows_of_the_same_text(tmp_path: Path) -> None:
    """A hypothesis that contradicts one premise may be entailed by another; translations of a hypothesis count as the hypothesis."""
    rows = [["a", "b", "c"], ["d", "e", "b"], ["f", "g", "a"], ["h", "i", "j"]]
    path = write_tsv(tmp_path / "a.tsv", ["x", "y", "z"], rows)
    triplets = open_strategy(tmp_path / "t", strategy="triplets", files=[path], columns={"anchor": "x", "positive": "y", "negative": "z"})
    assert negative_owners(triplets, 4) == {"c": set(), "b": {"a"}, "a": {"a"}, "j": set()}
    pairs = [("a", "b", "c"), ("d", "e", "b"), ("h", "i", "j")]
    cells = [row for p, e, c in pairs for row in ([p, e, "entailment"], [p, c, "contradiction"])]
    english = write_tsv(tmp_path / "b.tsv", list(NLI), cells)
    assert negative_owners(open_strategy(tmp_path / "n", strategy="nli", files=[english], columns=NLI), 3) == {
        "c": set(),
        "b": {"a"},
        "j": set(),
    }
    both = [[lang, *(lang + cell for cell in row[:2]), row[2]] for lang in ("x", "y") for row in cells]
    path = write_tsv(tmp_path / "c.tsv", ["lang", *NLI], both)
    owners = negative_owners(open_strategy(tmp_path / "l", strategy="cross_lingual_nli", files=[path], columns={"lang": "lang", **NLI}), 3)
    assert {negative[1]: {text[1] for text in anchors} for negative, anchors in owners.items()} == {"c": set(), "b": {"a"}, "j": set()}


def negative_owners(strategy: Strategy, size: int) -> dict[str, set[str]]:
    """Return hard negative -> anchors of the group that contains its text."""
    (batch,) = draw_batches(strategy, size)
    assert batch.negative_groups is not None
    anchors = read_view(batch.views["anchor"])
    negatives = zip(read_view(batch.views["negative"]), batch.negative_groups, strict=True)
    return {negative: {anchors[row] for row in np.flatnonzero(batch.groups == group)} for negative, group in negatives}


@pytest.mark.parametrize("group_size", [95, 120])
def test_large_groups_are_reported(tmp_path: Path, group_size: int, caplog: pytest.LogCaptureFixture) -> None:
    rows = [["bank", f"a{number}"] for number in range(group_size)] + [[f"b{number}", f"c{number}"] for number in range(300)]
    open_strategy(tmp_path, strategy="parallel", files=[write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)], columns=PAIRS)
    assert [record.getMessage() for record in caplog.records] == (
        ["source 'parallel': 120 of 420 rows share texts, directly or through other rows, so they are not negatives of each other"]
        if group_size > 100
        else []
    )


SHARED_HYPOTHESES = [
    ["p1", "h", "entailment"], ["p2", "h", "entailment"], ["p1", "a", "entailment"], ["p2", "a", "contradiction"],
    ["p3", "b", "entailment"], ["p3", "b", "contradiction"], ["p4", "h", "neutral"], ["p4", "d", "entailment"],
]  # fmt: skip


@pytest.mark.parametrize("name", ["nli", "cross_lingual_nli"])
def test_contradicting_rows_are_not_grouped_by_a_shared_hypothesis(tmp_path: Path, name: str) -> None:
    """p1 and p2 entail h, but p2 contradicts a, which p1 entails. The labels of p3 and b are inconsistent."""
    langs = ["en", "fr"] if name == "cross_lingual_nli" else ["en"]
    path = write_tsv(tmp_path / "a.tsv", ["lang", *NLI], [[lang, *row] for lang in langs for row in SHARED_HYPOTHESES])
    nli = open_strategy(tmp_path, strategy=name, files=[path], columns={"lang": "lang", **NLI}, hard_negatives=False)
    sizes = set()
    for batch in draw_batches(nli, 4, batches=40):
        rows = list(zip(*(read_view(batch.views[view]) for view in ("anchor", "positive")), batch.groups.tolist(), strict=True))
        assert {row[:2] for row in rows} <= {("p1", "h"), ("p2", "h"), ("p1", "a"), ("p4", "d")}
        for anchor, positive, group in rows:
            members = {row[:2] for row in rows if row[2] == group}
            assert members >= {row[:2] for row in rows if row[0] == anchor or row[1] == positive}
            assert not {"p2", "a"} <= {text for pair in members for text in pair}
            assert anchor != "p4" or members == {("p4", "d")}
        sizes.add(len(batch))
    assert max(sizes) == 3


def test_pairs_that_share_one_text_are_not_grouped(tmp_path: Path) -> None:
    rows = [[lang, *cells] for lang in ("en", "fr") for cells in (["p", "e", "yes"], ["p", "c", "no"], [f"{lang}q", f"{lang}h", "no"])]
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], rows)
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    pairs = open_strategy(tmp_path, strategy="labelled_pairs", files=[path], columns=columns, labels=["yes", "no"])
    (batch,) = draw_batches(pairs, 6)
    groups: dict[int, set[tuple[str, str]]] = {}
    for first, second, group in zip(*batch.views["anchor"].read(np.random.default_rng(0)), batch.groups, strict=True):
        groups.setdefault(int(group), set()).add((first, second))
    assert sorted(groups.values(), key=sorted) == [{("enq", "enh"), ("frq", "frh")}, {("p", "c")}, {("p", "e")}]


def test_cross_lingual_nli_draws_languages_independently(tmp_path: Path) -> None:
    rows = [[lang, *(f"{lang}:{cell}" for cell in row[:2]), row[2]] for lang in ("en", "fr", "sw") for row in NLI_ROWS]
    path = write_tsv(tmp_path / "a.tsv", ["lang", *NLI], rows)
    nli = open_strategy(
        tmp_path, strategy="cross_lingual_nli", files=[path], columns={"lang": "lang", **NLI}, languages=["sw", "en"], positives=2
    )
    seen = set()
    for batch in draw_batches(nli, 2, batches=60):
        anchors, positives, negatives = (read_view(batch.views[view]) for view in ("anchor", "positive", "negative"))
        for number, (anchor, negative) in enumerate(zip(anchors, negatives, strict=True)):
            own_positives = [positives[row] for row in np.flatnonzero(batch.owners == number)]
            assert sorted(text[:2] for text in own_positives) == ["en", "sw"]
            assert {text[-1] for text in (anchor, negative, *own_positives)} in ({"1"}, {"3"})
            assert negative[3:4] in "cd"
            seen.add((anchor[:2], negative[:2]))
    assert seen == {(a, b) for a in ("en", "sw") for b in ("en", "sw")}


def test_languages_that_are_not_parallel_are_rejected(tmp_path: Path) -> None:
    rows = [["en", *NLI_ROWS[0]], ["en", *NLI_ROWS[2]], ["fr", *NLI_ROWS[2]], ["fr", *NLI_ROWS[0]]]
    path = write_tsv(tmp_path / "a.tsv", ["lang", *NLI], rows)
    with pytest.raises(DataError, match="fr has other rows or labels than en"):
        open_strategy(tmp_path, strategy="cross_lingual_nli", files=[path], columns={"lang": "lang", **NLI})


@pytest.mark.parametrize("label", ["maybe", "3"])
def test_an_unknown_label_is_reported(tmp_path: Path, label: str) -> None:
    path = write_tsv(tmp_path / "a.tsv", list(NLI), [*NLI_ROWS, ["p9", "e9", label]])
    with pytest.raises(DataError, match=f"unknown label '{label}'; labels are entailment"):
        open_strategy(tmp_path / "a", strategy="nli", files=[path], columns=NLI)
    columns = {"first": "premise", "second": "hypothesis", "label": "label"}
    labels = ["entailment", "neutral", "contradiction"]
    with pytest.raises(DataError, match=f"label '{label}' is not among labels"):
        open_strategy(tmp_path / "b", strategy="labelled_pairs", files=[path], columns=columns, labels=labels)


GROUPS = {"files": ["a.tsv"], "columns": {"group": "group", "lang": "lang", "text": "text"}}
LABELLED = {"files": ["a.tsv"], "columns": {"first": "a", "second": "b", "label": "label"}, "labels": ["0", "1"]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strategy": "multi_positive", **GROUPS, "pairs": True, "positives": 5}, "pairs have one positive"),
        ({"strategy": "multi_positive", **GROUPS, "language_smoothing": 0.5}, "language_smoothing is not supported by this strategy"),
        ({"strategy": "labelled_pairs", **LABELLED, "views": {"full_translation": 1}}, "need a column for 'lang'"),
        ({"strategy": "labelled_pairs", **LABELLED, "languages": ["en"]}, "need a column for 'lang'"),
        (
            {
                "strategy": "labelled_pairs",
                **LABELLED,
                "columns": {"lang": "lang", **LABELLED["columns"]},
                "joint": False,
                "views": {"full_translation": 1},
            },
            "views need texts that are encoded as one sequence",
        ),
        ({"strategy": "labelled_pairs", **LABELLED, "views": {}}, "views has no view"),
        ({"strategy": "labelled_pairs", **LABELLED, "views": {"code_switch": 1}}, "views.code_switch and code_switch need each other"),
    ],
)
def test_settings_without_effect_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        pydantic.TypeAdapter(DataSettings).validate_python(values)


def test_a_missing_language_is_reported(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], [["en", "x", "y", 0], ["fr", "z", "w", 1]])
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    with pytest.raises(DataError, match="no row in language 'de'; its languages are en, fr"):
        open_strategy(tmp_path, strategy="labelled_pairs", files=[path], columns=columns, labels=["0", "1"], languages=["en", "de"])


def test_an_epoch_of_anchors_in_every_language_has_each_entailed_row_once_per_language(tmp_path: Path) -> None:
    rows = [("A", "B", "entailment"), ("A", "C", "contradiction"), ("D", "E", "entailment"), ("D", "F", "contradiction")]
    langs = ["en", "fr", "sw"]
    table = [[lang, f"{premise}-{lang}", f"{hypothesis}-{lang}", label] for lang in langs for premise, hypothesis, label in rows]
    path = write_tsv(tmp_path / "a.tsv", ["lang", "premise", "hypothesis", "label"], table)
    columns = {"lang": "lang", **NLI}
    nli = open_strategy(tmp_path, strategy="cross_lingual_nli", files=[path], columns=columns, anchors="every_language")
    assert nli.num_examples == 6
    batches = draw_batches(nli, 3, batches=2)
    anchors = [text for batch in batches for text in read_view(batch.views["anchor"])]
    assert sorted(anchors) == [f"{premise}-{lang}" for premise in "AD" for lang in langs]
    for batch in [*batches, *draw_batches(nli, 6, batches=20)]:
        texts = zip(*(read_view(batch.views[name]) for name in ("anchor", "positive", "negative")), strict=True)
        letters = ["".join(text[0] for text in row) for row in texts]
        assert set(letters) <= {"ABC", "DEF"}
        assert len({*zip(letters, batch.groups, strict=True)}) == len(set(letters)) == len(set(batch.groups))  # a group is one row
    drawn = [text for batch in draw_batches(nli, 6, batches=20) for text in read_view(batch.views["positive"])]
    assert {text[2:] for text in drawn} == set(langs)  # the language of the hypothesis is random


def test_pairs_of_groups_contain_every_text_once_per_epoch(tmp_path: Path) -> None:
    rows = [[str(group), lang, f"{group}-{lang}"] for group in range(4) for lang in ("en", "de", "fr", "es", "ru", "zh")]
    rows += [["4", lang, f"4-{lang}"] for lang in ("en", "de", "fr")] + [["5", "en", "5-en"]]  # one of three texts is left out
    path = write_tsv(tmp_path / "a.tsv", ["group", "lang", "text"], rows)
    columns = {name: name for name in ("group", "lang", "text")}
    groups = open_strategy(tmp_path, strategy="multi_positive", files=[path], columns=columns, pairs=True)
    assert groups.num_examples == 4 * 3 + 1
    (batch,) = draw_batches(groups, 13)
    anchors, positives = (read_view(batch.views[name]) for name in ("anchor", "positive"))
    assert [text[0] for text in anchors] == [text[0] for text in positives]  # translations
    texts = sorted(anchors + positives)
    assert len(set(texts)) == len(texts) == 26
    assert {text for _, _, text in rows if text[0] < "4"} <= set(texts)
    assert len(set(batch.groups)) == 5  # pairs of one group are not negatives of each other
    first_langs = {text[2:] for text in anchors}
    assert len(first_langs) > 3


def test_multi_positive_draws_one_anchor_and_all_other_texts_of_a_group(tmp_path: Path) -> None:
    rows = [
        [1, "en", "a"],
        [1, "fr", "b"],
        [1, "fr", "c"],
        [2, "en", "x"],
        [2, "de", "y"],
        [3, "en", "alone"],
        [4, "en", "a"],
        [4, "sw", "z"],
    ]
    path = write_tsv(tmp_path / "a.tsv", ["group", "lang", "text"], rows)
    groups = open_strategy(tmp_path, strategy="multi_positive", files=[path], columns={name: name for name in ("group", "lang", "text")})
    members = {frozenset("abc"), frozenset("xy"), frozenset("az")}
    is_english = []  # whether the anchor of the first group is English
    for batch in draw_batches(groups, 3, batches=200):
        positives = read_view(batch.views["positive"])
        for number, anchor in enumerate(read_view(batch.views["anchor"])):
            group = frozenset({anchor, *(positives[row] for row in np.flatnonzero(batch.owners == number))})
            assert group in members
            is_english += [anchor == "a"] if group == frozenset("abc") else []
        assert len(set(batch.groups)) == 2  # the groups that share "a" count as one
    assert 0.4 < np.mean(is_english) < 0.6  # the language is drawn uniformly, not the text


def test_translations_of_a_labelled_pair_keep_its_label(tmp_path: Path) -> None:
    rows = [[lang, f"{lang}:a{n}", f"{lang}:b{n}", n % 2] for lang in ("en", "fr") for n in range(6)]
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], rows)
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    common = {"strategy": "labelled_pairs", "files": [path], "columns": columns, "labels": ["0", "1"], "languages": ["en"]}
    mixtures_of_views: dict[str, set[tuple[str, str]]] = {
        "partial_translation": {("en", "fr"), ("fr", "en")},
        "full_translation": {("fr", "fr")},
    }
    for view, mixtures in mixtures_of_views.items():
        seen = set()
        for batch in draw_batches(open_strategy(tmp_path / view, **common, views={view: 1}), 6, batches=9):
            for anchor, partner, label in zip(*batch.views["anchor"].read(np.random.default_rng(0)), batch.labels, strict=True):
                assert (anchor[:2], anchor[4:], int(anchor[-1]) % 2) == ("en", partner[4:], label)
            first, second = batch.views["positive"].read(np.random.default_rng(0))
            seen |= {(a[:2], b[:2]) for a, b in zip(first, second or [], strict=True)}
        assert seen == mixtures


def test_a_labelled_pair_has_views_of_several_augmentations(tmp_path: Path) -> None:
    rows = [[lang, f"{lang} a{n}", f"{lang} b{n}", n % 2] for lang in ("en", "fr", "de") for n in range(6)]
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], rows)
    (tmp_path / "lexicon.txt").write_text("en xx\nfr xx\nde xx\n")
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    common = {"strategy": "labelled_pairs", "files": [path], "columns": columns, "labels": ["0", "1"]}
    code_switch = {"lexicons": [str(tmp_path / "lexicon.txt")], "ratio": 1}
    views = {"full_translation": 2, "partial_translation": 1, "code_switch": 1}
    (batch,) = draw_batches(open_strategy(tmp_path, **common, views=views, code_switch=code_switch), 18)
    anchors = list(zip(*batch.views["anchor"].read(np.random.default_rng(0)), strict=True))
    positives = [pair for part in batch.views["positive"].parts for pair in zip(*part.read(np.random.default_rng(0)), strict=True)]
    assert len(positives) == len(batch.owners) == 4 * 18
    for number, (first, second) in enumerate(anchors):
        own = [positives[row] for row in np.flatnonzero(batch.owners == number)]
        assert {(a[3:], b[3:]) for a, b in own} == {(first[3:], second[3:])}  # translations of the same pair
        langs, lang = [(a[:2], b[:2]) for a, b in own], first[:2]
        for pair in langs[:2]:
            assert pair[0] == pair[1] != lang
        assert sum(side == lang for side in langs[2]) == 1
        assert langs[3] == ("xx", "xx")


PARAPHRASES = {"first": "a", "second": "b", "label": "label", "lang": "lang"}


def write_paraphrases(path: Path, rows: list[tuple[str, str, int]], langs: tuple[str, ...] = ("en", "fr")) -> Path:
    return write_tsv(path, ["lang", "a", "b", "label"], [[lang, f"{lang}:{a}", f"{lang}:{b}", y] for lang in langs for a, b, y in rows])


def test_paraphrases_are_detached_into_sentences(tmp_path: Path) -> None:
    """Each sentence is an anchor beside its translation; the sentences of a pair share a group only with label 1."""
    path = write_paraphrases(tmp_path / "a.tsv", [("p", "q", 1), ("r", "s", 0), ("t", "u", 0)])
    strategy = open_strategy(tmp_path, strategy="paraphrases", files=[path], columns=PARAPHRASES)
    assert strategy.num_examples == 3
    partner_langs = set()
    for batch in draw_batches(strategy, 3, batches=40):
        anchors, positives = read_view(batch.views["anchor"]), read_view(batch.views["positive"])
        assert sorted(text[3:] for text in anchors) == list("pqrstu")
        for anchor, positive in zip(anchors, positives, strict=True):
            assert (anchor[3:], {anchor[:2], positive[:2]}) == (positive[3:], {"en", "fr"})
        groups = {text[3:]: int(group) for text, group in zip(anchors, batch.groups, strict=True)}
        assert groups["p"] == groups["q"]
        assert len(set(groups.values())) == 5
        assert batch.labels is None
        by_letter = {text[3:]: text[:2] for text in positives}
        partner_langs |= {(text[:2], by_letter["s"]) for text in anchors if text[3:] == "r"}
    assert partner_langs == {(a, b) for a in ("en", "fr") for b in ("en", "fr")}  # hard negatives in the same and in the other language


def test_pairs_that_contradict_other_paraphrases_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_paraphrases(tmp_path / "a.tsv", [("p", "q", 1), ("q", "r", 1), ("p", "r", 0), ("p", "x", 0)])
    strategy = open_strategy(tmp_path, strategy="paraphrases", files=[path], columns=PARAPHRASES)
    assert strategy.num_examples == 3
    assert "dropped 1 of 4 pairs" in caplog.text
    (batch,) = draw_batches(strategy, 3)
    groups = {text[3:]: int(group) for text, group in zip(read_view(batch.views["anchor"]), batch.groups, strict=True)}
    assert groups["p"] == groups["q"] == groups["r"] != groups["x"]


@pytest.mark.parametrize(
    ("rows", "langs", "message"),
    [
        ([("p", "q", 2)], ("en", "fr"), "label '2'; use 1 for paraphrases and 0 for other pairs"),
        ([("p", "q", 1)], ("en",), "one language, but positives are translations"),
        ([("p", "p", 0)], ("en", "fr"), "each pair has label 0 and equal sentences"),
    ],
)
def test_unusable_paraphrases_are_reported(tmp_path: Path, rows: list[Any], langs: tuple[str, ...], message: str) -> None:
    path = write_paraphrases(tmp_path / "a.tsv", rows, langs)
    with pytest.raises(DataError, match=message):
        open_strategy(tmp_path, strategy="paraphrases", files=[path], columns=PARAPHRASES)


def test_sampler_draws_languages_by_smoothed_shares() -> None:
    sampler = Sampler(np.repeat([0, 1], [900, 100]), 0.5, seed=0)
    examples = sampler.draw(4000, np.random.default_rng(0))
    assert 0.22 < np.mean(examples >= 900) < 0.28  # sqrt(900) : sqrt(100) = 3 : 1


def test_sampler_resumes_from_its_counts_and_draws_all_examples_once_per_epoch() -> None:
    langs = np.repeat([0, 1, -1], [7, 5, 3])
    first, second = Sampler(langs, 1.0, seed=3), Sampler(langs, 1.0, seed=3)
    draws = [first.take(0, 4) for _ in range(5)]
    for number in range(3):
        np.testing.assert_array_equal(second.take(0, 4), draws[number])
    resumed = Sampler(langs, 1.0, seed=3)
    resumed.drawn = list(second.drawn)
    np.testing.assert_array_equal(np.concatenate([resumed.take(0, 4), resumed.take(0, 4)]), np.concatenate(draws[3:]))
    order = np.concatenate(draws)
    assert sorted(order[:7]) == sorted(order[7:14]) == list(range(7))
    assert list(order[:7]) != list(order[7:14])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "en\tfr\none\tun\ntwo\n", "a.tsv:3: 1 column, expected at least 2"),
        ("a.tsv", "en\tfr\n", "no examples"),
        ("a.tsv", "en\tfr\none\t \n", "has nothing in column 'fr'"),
        ("a.jsonl", '{"en": "one", "fr": "un"}\n{"en": "one"}\n', "a.jsonl:2: no key 'fr'"),
        ("a.jsonl", "nonsense\n", "a.jsonl:1: not JSON"),
        ("a.parquet", "nonsense", "truncated or not Parquet"),
        ("a.tsv.gz", "nonsense", "truncated or not .gz"),
    ],
)
def test_errors_in_files_name_file_and_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as error:
        open_strategy(tmp_path, strategy="parallel", files=[tmp_path / name], columns=PAIRS)
    assert message in str(error.value)


def test_texts_are_memory_mapped(tmp_path: Path) -> None:
    """A source of 64 MB is converted in blocks and mapped, so the memory pool of Arrow stays small."""
    with (tmp_path / "a.tsv").open("w") as file:
        file.write("en\tfr\n")
        for number in range(8000):
            file.write(f"{number} {'x' * 4000}\t{number} {'y' * 4000}\n")
    before = pa.total_allocated_bytes()
    pairs = open_strategy(tmp_path, strategy="parallel", files=[tmp_path / "a.tsv"], columns=PAIRS)
    assert pa.total_allocated_bytes() - before < 4 << 20
    (batch,) = draw_batches(pairs, 16)
    for a, b in zip(read_view(batch.views["anchor"]), read_view(batch.views["positive"]), strict=True):
        assert a.split()[0] == b.split()[0]
