"""Sources of examples: what is drawn from files made by hand, and that what says the same is nobody's negative."""

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
from miner.training.augment import load_code_switch
from miner.training.batches import Batch, View, group_connected_rows
from miner.training.datasets import open_dataset, read_source
from miner.training.sampling import Sampler
from miner.training.settings import DataSettings
from miner.training.strategies import Strategy, build_strategy

PAIRS = {"source": "en", "target": "fr"}
NLI = {"premise": "premise", "hypothesis": "hypothesis", "label": "label"}


def source(folder: Path, **values: Any) -> Strategy:
    settings = pydantic.TypeAdapter(DataSettings).validate_python({**values, "files": list(map(str, values["files"]))})
    read_source(settings, folder / "work")
    return build_strategy(open_dataset(settings, folder / "work"), settings, 0, load_code_switch(settings))


def texts(view: View, seed: int = 0) -> list[str]:
    return view.read(np.random.default_rng(seed))[0]


def drawn(of: Strategy, size: int, batches: int = 1) -> list[Batch]:
    return [of.draw(size, np.random.default_rng([1, number])) for number in range(batches)]


def test_formats_hold_the_same_pairs(tmp_path: Path) -> None:
    rows = [["one", "un"], ["two", "deux"], ['"three"', "trois "]]
    write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps({"fr": b, "en": a}) + "\n" for a, b in rows).encode()))
    pq.write_table(pa.table({"fr": [b for _, b in rows], "en": [a for a, _ in rows]}), tmp_path / "c.parquet")
    for name in ("a.tsv", "b.jsonl.gz", "c.parquet"):
        pairs = source(tmp_path / name.partition(".")[0], strategy="parallel", files=[tmp_path / name], columns=PAIRS)
        (batch,) = drawn(pairs, 3)
        found = set(zip(texts(batch.views["anchor"]), texts(batch.views["positive"]), strict=True))
        assert found == {("one", "un"), ("two", "deux"), ('"three"', "trois")}


def test_translations_of_a_text_are_one_group(tmp_path: Path) -> None:
    rows = [["yes", "oui"], ["hello", "salut"], ["yes", "si"], ["hi", "salut"], ["no", "non"], ["indeed", "si"]]
    (batch,) = drawn(source(tmp_path, strategy="parallel", files=[write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)], columns=PAIRS), 6)
    groups: dict[int, set[str]] = {}
    for text, group in zip(texts(batch.views["anchor"]), batch.groups, strict=True):
        groups.setdefault(int(group), set()).add(text)
    assert sorted(groups.values(), key=sorted) == [{"hello", "hi"}, {"indeed", "yes"}, {"no"}]


def test_connected_by_hand() -> None:
    groups = group_connected_rows(np.array([1, 2, 3, 4]), np.array([10, 11, 10, 12]), np.array([20, 21, 22, 21]))
    assert groups[0] == groups[2]
    assert groups[1] == groups[3]
    assert groups[0] != groups[1]


def test_sides_are_swapped_half_of_the_time(tmp_path: Path) -> None:
    rows = [[f"en{n}", f"fr{n}"] for n in range(200)]
    path = write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)
    (batch,) = drawn(source(tmp_path, strategy="parallel", files=[path], columns=PAIRS, swap=True), 200)
    anchors, positives = texts(batch.views["anchor"]), texts(batch.views["positive"])
    assert 70 < sum(text.startswith("fr") for text in anchors) < 130
    assert all({a[:2], b[:2]} == {"en", "fr"} and a[2:] == b[2:] for a, b in zip(anchors, positives, strict=True))


def test_views_of_parallel_text(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", ["en", "fr"], [["one two three four", "un deux trois quatre"]])
    lexicon = tmp_path / "lexicon.txt"
    lexicon.write_text("one eins\ntwo zwei\n")
    common = {"strategy": "parallel", "files": [path], "columns": PAIRS}
    (batch,) = drawn(source(tmp_path / "a", **common, view="partial_translation"), 1)
    (mixed,) = texts(batch.views["positive"])
    assert texts(batch.views["anchor"]) == ["one two three four"]
    assert {"un", "deux", "trois", "quatre"} & set(mixed.split())
    assert {"one", "two", "three", "four"} & set(mixed.split())
    (batch,) = drawn(source(tmp_path / "b", **common, view="same", code_switch={"lexicons": [str(lexicon)], "ratio": 1}), 1)
    assert texts(batch.views["positive"]) == ["eins zwei three four"]


def test_mined_pairs_by_their_margin(tmp_path: Path) -> None:
    (tmp_path / "mined").mkdir()
    table = {"source_text": ["a", "b", "c", "d"], "target_text": ["A", "B", "C", "D"], "margin": [1.3, 1.1, 1.0, 1.2]}
    pq.write_table(pa.table(table), tmp_path / "mined" / "bitext.parquet")
    mined = source(tmp_path, strategy="mined", files=[tmp_path / "mined"], least_margin=1.1, weigh_by_margin=True)
    (batch,) = drawn(mined, 3)
    weights = dict(zip(texts(batch.views["anchor"]), batch.weights, strict=True))
    assert weights == pytest.approx({"a": 1.3 / 1.2, "b": 1.1 / 1.2, "d": 1.0})


NLI_ROWS = [
    ["p1", "e1", "entailment"], ["p1", "n1", "neutral"], ["p1", "c1", "contradiction"], ["p1", "d1", "contradiction"],
    ["p2", "e2", "entailment"], ["p3", "e3", "entailment"], ["p3", "c3", "contradiction"], ["p2", "n2", "neutral"],
]  # fmt: skip


def test_nli_triplets(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", list(NLI), NLI_ROWS)
    hard = source(tmp_path / "a", strategy="nli", files=[path], columns=NLI)
    found = {
        triplet
        for batch in drawn(hard, 2, batches=12)
        for triplet in zip(*(texts(batch.views[view]) for view in ("anchor", "positive", "negative")), strict=True)
    }
    assert found == {("p1", "e1", "c1"), ("p1", "e1", "d1"), ("p3", "e3", "c3")}
    soft = source(tmp_path / "b", strategy="nli", files=[path], columns=NLI, hard_negatives=False)
    (batch,) = drawn(soft, 3)
    assert set(batch.views) == {"anchor", "positive"}
    assert set(texts(batch.views["anchor"])) == {"p1", "p2", "p3"}


def test_a_hard_negative_is_known_as_what_another_row_says(tmp_path: Path) -> None:
    """The contradiction of one premise is entailed by another; a translation of a hypothesis counts as the hypothesis."""
    rows = [["a", "b", "c"], ["d", "e", "b"], ["f", "g", "a"], ["h", "i", "j"]]
    path = write_tsv(tmp_path / "a.tsv", ["x", "y", "z"], rows)
    triplets = source(tmp_path / "t", strategy="triplets", files=[path], columns={"anchor": "x", "positive": "y", "negative": "z"})
    assert told_of(triplets, 4) == {"c": set(), "b": {"a"}, "a": {"a"}, "j": set()}
    pairs = [("a", "b", "c"), ("d", "e", "b"), ("h", "i", "j")]
    cells = [row for p, e, c in pairs for row in ([p, e, "entailment"], [p, c, "contradiction"])]
    english = write_tsv(tmp_path / "b.tsv", list(NLI), cells)
    assert told_of(source(tmp_path / "n", strategy="nli", files=[english], columns=NLI), 3) == {"c": set(), "b": {"a"}, "j": set()}
    both = [[lang, *(lang + cell for cell in row[:2]), row[2]] for lang in ("x", "y") for row in cells]
    path = write_tsv(tmp_path / "c.tsv", ["lang", *NLI], both)
    found = told_of(source(tmp_path / "l", strategy="cross_lingual_nli", files=[path], columns={"lang": "lang", **NLI}), 3)
    assert {negative[1]: {text[1] for text in anchors} for negative, anchors in found.items()} == {"c": set(), "b": {"a"}, "j": set()}


def told_of(of: Strategy, size: int) -> dict[str, set[str]]:
    """Hard negative -> the anchors of the group that has its text."""
    (batch,) = drawn(of, size)
    assert batch.negative_groups is not None
    anchors = texts(batch.views["anchor"])
    told = zip(texts(batch.views["negative"]), batch.negative_groups, strict=True)
    return {negative: {anchors[row] for row in np.flatnonzero(batch.groups == group)} for negative, group in told}


@pytest.mark.parametrize("most", [95, 120])
def test_many_rows_that_hang_together_are_told_of(tmp_path: Path, most: int, caplog: pytest.LogCaptureFixture) -> None:
    rows = [["bank", f"a{number}"] for number in range(most)] + [[f"b{number}", f"c{number}"] for number in range(300)]
    source(tmp_path, strategy="parallel", files=[write_tsv(tmp_path / "a.tsv", ["en", "fr"], rows)], columns=PAIRS)
    assert [record.getMessage() for record in caplog.records] == (
        ["source 'parallel': 120 of 420 rows share texts, directly or through other rows, so they are not negatives of each other"]
        if most > 100
        else []
    )


SHARED = [
    ["p1", "h", "entailment"], ["p2", "h", "entailment"], ["p1", "a", "entailment"], ["p2", "a", "contradiction"],
    ["p3", "b", "entailment"], ["p3", "b", "contradiction"], ["p4", "h", "neutral"], ["p4", "d", "entailment"],
]  # fmt: skip


@pytest.mark.parametrize("strategy_", ["nli", "cross_lingual_nli"])
def test_what_entails_the_same_may_contradict_each_other(tmp_path: Path, strategy_: str) -> None:
    """p1 and p2 entail h, and p2 contradicts a, which p1 entails; whether p3 entails or contradicts b is not known."""
    langs = ["en", "fr"] if strategy_ == "cross_lingual_nli" else ["en"]
    path = write_tsv(tmp_path / "a.tsv", ["lang", *NLI], [[lang, *row] for lang in langs for row in SHARED])
    nli = source(tmp_path, strategy=strategy_, files=[path], columns={"lang": "lang", **NLI}, hard_negatives=False)
    sizes = set()
    for batch in drawn(nli, 4, batches=40):
        rows = list(zip(*(texts(batch.views[view]) for view in ("anchor", "positive")), batch.groups.tolist(), strict=True))
        assert {row[:2] for row in rows} <= {("p1", "h"), ("p2", "h"), ("p1", "a"), ("p4", "d")}
        for anchor, positive, group in rows:
            together = {(other, its) for other, its, of in rows if of == group}
            assert together >= {row[:2] for row in rows if row[0] == anchor or row[1] == positive}
            assert not {"p2", "a"} <= {text for pair in together for text in pair}
            assert anchor != "p4" or together == {("p4", "d")}
        sizes.add(len(batch))
    assert max(sizes) == 3


def test_pairs_of_one_premise_are_not_the_same_pair(tmp_path: Path) -> None:
    rows = [[lang, *cells] for lang in ("en", "fr") for cells in (["p", "e", "yes"], ["p", "c", "no"], [f"{lang}q", f"{lang}h", "no"])]
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], rows)
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    pairs = source(tmp_path, strategy="labelled_pairs", files=[path], columns=columns, labels=["yes", "no"])
    (batch,) = drawn(pairs, 6)
    groups: dict[int, set[tuple[str, str]]] = {}
    for first, second, group in zip(*batch.views["anchor"].read(np.random.default_rng(0)), batch.groups, strict=True):
        groups.setdefault(int(group), set()).add((first, second))
    assert sorted(groups.values(), key=sorted) == [{("enq", "enh"), ("frq", "frh")}, {("p", "c")}, {("p", "e")}]


def test_cross_lingual_nli_draws_every_language_apart(tmp_path: Path) -> None:
    rows = [[lang, *(f"{lang}:{cell}" for cell in row[:2]), row[2]] for lang in ("en", "fr", "sw") for row in NLI_ROWS]
    path = write_tsv(tmp_path / "a.tsv", ["lang", *NLI], rows)
    nli = source(tmp_path, strategy="cross_lingual_nli", files=[path], columns={"lang": "lang", **NLI}, languages=["sw", "en"], positives=2)
    seen = set()
    for batch in drawn(nli, 2, batches=60):
        anchors, positives, negatives = (texts(batch.views[view]) for view in ("anchor", "positive", "negative"))
        for number, (anchor, negative) in enumerate(zip(anchors, negatives, strict=True)):
            own = [positives[place] for place in np.flatnonzero(batch.owners == number)]
            assert sorted(text[:2] for text in own) == ["en", "sw"]
            assert {text[-1] for text in (anchor, negative, *own)} in ({"1"}, {"3"})
            assert negative[3:4] in "cd"
            seen.add((anchor[:2], negative[:2]))
    assert seen == {(a, b) for a in ("en", "sw") for b in ("en", "sw")}


def test_languages_of_other_rows_are_refused(tmp_path: Path) -> None:
    rows = [["en", *NLI_ROWS[0]], ["en", *NLI_ROWS[2]], ["fr", *NLI_ROWS[2]], ["fr", *NLI_ROWS[0]]]
    path = write_tsv(tmp_path / "a.tsv", ["lang", *NLI], rows)
    with pytest.raises(DataError, match="fr has other rows or labels than en"):
        source(tmp_path, strategy="cross_lingual_nli", files=[path], columns={"lang": "lang", **NLI})


@pytest.mark.parametrize("label", ["maybe", "3"])
def test_a_strange_label_is_named(tmp_path: Path, label: str) -> None:
    path = write_tsv(tmp_path / "a.tsv", list(NLI), [*NLI_ROWS, ["p9", "e9", label]])
    with pytest.raises(DataError, match=f"unknown label '{label}'; labels are entailment"):
        source(tmp_path / "a", strategy="nli", files=[path], columns=NLI)
    columns = {"first": "premise", "second": "hypothesis", "label": "label"}
    labels = ["entailment", "neutral", "contradiction"]
    with pytest.raises(DataError, match=f"label '{label}' is not among labels"):
        source(tmp_path / "b", strategy="labelled_pairs", files=[path], columns=columns, labels=labels)


COMMON = {"files": ["a.tsv"], "columns": {"group": "group", "lang": "lang", "text": "text"}}
RELATED = {"files": ["a.tsv"], "columns": {"first": "a", "second": "b", "label": "label"}, "labels": ["0", "1"]}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"strategy": "multi_positive", **COMMON, "language_smoothing": 0.5}, "language_smoothing is not supported by this strategy"),
        ({"strategy": "labelled_pairs", **RELATED, "view": "full_translation"}, "need a column for 'lang'"),
        ({"strategy": "labelled_pairs", **RELATED, "languages": ["en"]}, "need a column for 'lang'"),
        (
            {
                "strategy": "labelled_pairs",
                **RELATED,
                "columns": {"lang": "lang", **RELATED["columns"]},
                "joint": False,
                "view": "full_translation",
            },
            "view needs texts that are encoded as one sequence",
        ),
    ],
)
def test_settings_that_would_do_nothing_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        pydantic.TypeAdapter(DataSettings).validate_python(values)


def test_a_language_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], [["en", "x", "y", 0], ["fr", "z", "w", 1]])
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    with pytest.raises(DataError, match="no row in language 'de'; its languages are en, fr"):
        source(tmp_path, strategy="labelled_pairs", files=[path], columns=columns, labels=["0", "1"], languages=["en", "de"])


def test_groups_give_one_anchor_and_all_others(tmp_path: Path) -> None:
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
    groups = source(tmp_path, strategy="multi_positive", files=[path], columns={name: name for name in ("group", "lang", "text")})
    members = {frozenset("abc"), frozenset("xy"), frozenset("az")}
    english = []  # whether the anchor of the first group is
    for batch in drawn(groups, 3, batches=200):
        positives = texts(batch.views["positive"])
        for number, anchor in enumerate(texts(batch.views["anchor"])):
            group = frozenset({anchor, *(positives[place] for place in np.flatnonzero(batch.owners == number))})
            assert group in members
            english += [anchor == "a"] if group == frozenset("abc") else []
        assert len(set(batch.groups)) == 2  # the groups that share "a" are one
    assert 0.4 < np.mean(english) < 0.6  # by languages, of which there are two, not by texts


def test_a_translated_pair_keeps_its_label(tmp_path: Path) -> None:
    rows = [[lang, f"{lang}:a{n}", f"{lang}:b{n}", n % 2] for lang in ("en", "fr") for n in range(6)]
    path = write_tsv(tmp_path / "a.tsv", ["lang", "a", "b", "label"], rows)
    columns = {"lang": "lang", "first": "a", "second": "b", "label": "label"}
    common = {"strategy": "labelled_pairs", "files": [path], "columns": columns, "labels": ["0", "1"], "languages": ["en"]}
    for view, mixtures in (("same", {("en", "en")}), ("partial_translation", {("en", "en"), ("en", "fr"), ("fr", "en")})):
        seen = set()
        for batch in drawn(source(tmp_path / view, **common, view=view), 6, batches=9):
            for anchor, partner, label in zip(*batch.views["anchor"].read(np.random.default_rng(0)), batch.labels, strict=True):
                assert (anchor[:2], anchor[4:], int(anchor[-1]) % 2) == ("en", partner[4:], label)
            first, second = batch.views["positive"].read(np.random.default_rng(0))
            seen |= {(a[:2], b[:2]) for a, b in zip(first, second or [], strict=True)}
        assert seen == mixtures


def test_languages_are_drawn_by_their_smoothed_shares() -> None:
    sampler = Sampler(np.repeat([0, 1], [900, 100]), 0.5, seed=0)
    found = sampler.draw(4000, np.random.default_rng(0))
    assert 0.22 < np.mean(found >= 900) < 0.28  # 30 : 10


def test_a_sampler_goes_on_from_its_counts_and_shows_all_before_one_returns() -> None:
    langs = np.repeat([0, 1, -1], [7, 5, 3])
    one, other = Sampler(langs, 1.0, seed=3), Sampler(langs, 1.0, seed=3)
    whole = [one.take(0, 4) for _ in range(5)]
    for at in range(3):
        np.testing.assert_array_equal(other.take(0, 4), whole[at])
    resumed = Sampler(langs, 1.0, seed=3)
    resumed.drawn = list(other.drawn)
    np.testing.assert_array_equal(np.concatenate([resumed.take(0, 4), resumed.take(0, 4)]), np.concatenate(whole[3:]))
    order = np.concatenate(whole)
    assert sorted(order[:7]) == sorted(order[7:14]) == list(range(7))
    assert list(order[:7]) != list(order[7:14])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "en\tfr\none\tun\ntwo\n", "a.tsv:3: 1 columns, expected at least 2"),
        ("a.tsv", "en\tfr\n", "no examples"),
        ("a.tsv", "en\tfr\none\t \n", "has nothing in column 'fr'"),
        ("a.jsonl", '{"en": "one", "fr": "un"}\n{"en": "one"}\n', "a.jsonl:2: no key 'fr'"),
        ("a.jsonl", "nonsense\n", "a.jsonl:1: not JSON"),
        ("a.parquet", "nonsense", "truncated or not Parquet"),
        ("a.tsv.gz", "nonsense", "truncated or not .gz"),
    ],
)
def test_broken_files_are_named_with_their_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as error:
        source(tmp_path, strategy="parallel", files=[tmp_path / name], columns=PAIRS)
    assert message in str(error.value)


def test_memory_does_not_hold_the_texts(tmp_path: Path) -> None:
    """A corpus of 64 MB is read in blocks and mapped; Arrow's own pool then holds next to nothing."""
    with (tmp_path / "a.tsv").open("w") as file:
        file.write("en\tfr\n")
        for number in range(8000):
            file.write(f"{number} {'x' * 4000}\t{number} {'y' * 4000}\n")
    before = pa.total_allocated_bytes()
    pairs = source(tmp_path, strategy="parallel", files=[tmp_path / "a.tsv"], columns=PAIRS)
    assert pa.total_allocated_bytes() - before < 4 << 20
    (batch,) = drawn(pairs, 16)
    for a, b in zip(texts(batch.views["anchor"]), texts(batch.views["positive"]), strict=True):
        assert a.split()[0] == b.split()[0]
