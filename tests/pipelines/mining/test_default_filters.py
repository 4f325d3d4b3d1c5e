"""The filters that mining applies by default: they keep the pairs of sides of any sizes, and drop copies and what is no sentence."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from command import output_of

import miner
from miner.api.mining import Bitext
from miner.filters.hubs import usual_counts

EXAMPLES = Path(__file__).parents[3] / "examples"
ENGLISH, GERMAN = ((EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines() for lang in ("en", "de"))
JUNK = ["+++ 12:30 *** 45 +++ 67 >>>", "ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha"]


def mine(source: list[str], target: list[str], **options: object) -> Bitext:
    return miner.mine(source, target, **{"source_lang": "en", "target_lang": "de", **options})


def f1(bitext: Bitext, sizes: tuple[int, int]) -> float:
    """Return F1 of pairs of the first lines of each side."""
    pairs = set(zip(bitext.table["source_row"].to_pylist(), bitext.table["target_row"].to_pylist(), strict=True))
    gold = (line.split("\t") for line in (EXAMPLES / "gold.en-de.tsv").read_text().splitlines())
    true = {(int(source) - 1, int(target) - 1) for source, target in gold if int(source) <= sizes[0] and int(target) <= sizes[1]}
    return 2 * len(pairs & true) / max(1, len(pairs) + len(true))


@pytest.mark.parametrize("sizes", [(3017, 3), (3017, 30), (3017, 300), (3017, 2341), (1000, 1000), (300, 2341), (23, 2341), (3, 2341)])
def test_default_filters_keep_the_pairs_of_sides_of_any_sizes(sizes: tuple[int, int]) -> None:
    sides = ENGLISH[: sizes[0]], GERMAN[: sizes[1]]
    assert f1(mine(*sides), sizes) >= f1(mine(*sides, filters="none"), sizes) - 0.01


@pytest.mark.parametrize(("number", "bound"), [(500, 0.89), (1500, 0.82)])
def test_untranslated_lines_are_no_pairs_and_leave_the_others(number: int, bound: float) -> None:
    """The precision is estimated of the pairs that remain: the copies, which are the most similar, do not raise it."""
    target = [*GERMAN, *ENGLISH[:number]]
    bitext = mine(ENGLISH, target)
    assert bitext.dropped["near_copy"] >= number
    assert f1(bitext, (len(ENGLISH), len(target))) > bound > f1(mine(ENGLISH, target, filters=["none"]), (len(ENGLISH), len(target))) + 0.2
    assert "near copy" in repr(bitext).splitlines()[1]
    assert all(pair["source_text"] != pair["target_text"] for pair in mine(ENGLISH, ENGLISH[:9]))
    assert len(mine(ENGLISH[:1], ENGLISH[:1])) == 0


def test_the_summary_counts_what_each_filter_drops(tmp_path: Path) -> None:
    (tmp_path / "en").write_text("\n".join([*ENGLISH[:300], *JUNK]), encoding="utf-8")
    (tmp_path / "de").write_text("\n".join([*GERMAN[:300], *ENGLISH[:20]]), encoding="utf-8")
    sides = ("mine", tmp_path / "en", tmp_path / "de", "--source-lang", "en", "--target-lang", "de", "--output")
    default, off = output_of(*sides, tmp_path / "default"), output_of(*sides, tmp_path / "none", "--filter", "none")
    assert "source: 300 sentences, 300 unique; of 302 lines, dropped 1 few letters, 1 repetitive" in default
    assert "dropped: 20 near copy," in default
    assert "source: 302 sentences, 302 unique\n" in off
    assert "near copy" not in off
    again = ("mine", "--from-candidates", tmp_path / "none", "--output", tmp_path / "again")
    assert "dropped: 20 near copy," in output_of(*again)
    assert "20 near copy" not in output_of(*again, "--filter", "copies=off")
    config = {"output": str(tmp_path / "run"), "corpora": {lang: str(tmp_path / lang) for lang in ("en", "de")}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(config))
    lines = output_of("run", tmp_path / "run.yaml").splitlines()
    assert "dropped 1 few letters, 1 repetitive" in next(line for line in lines if line.startswith("en: "))
    assert "dropped 20 near copy," in next(line for line in lines if line.startswith("de-en: "))
    (tmp_path / "run.yaml").write_text(
        yaml.safe_dump({**config, "output": str(tmp_path / "off"), "sentence_filters": "none", "pair_filters": {"copies": False}})
    )
    lines = output_of("run", tmp_path / "run.yaml").splitlines()
    assert not any("few letters" in line or "near copy" in line for line in lines)


def test_vectors_without_texts_are_not_filtered(tmp_path: Path) -> None:
    """The texts of such vectors are their ids, which the filters of texts would drop. The output can be selected from again."""
    vectors = miner.load_encoder("builtin").encode(GERMAN[:40])
    sides = (np.arange(40), vectors), (np.arange(100, 140), vectors)
    bitext = miner.mine(*sides, output=tmp_path / "out", threshold=1)
    assert bitext.table["target_id"].to_pylist() == [row + 100 for row in bitext.table["source_id"].to_pylist()]
    assert len(bitext) == 40 == len(miner.mine(*sides, threshold=1, filters=["hubs=20"]))
    assert not sum(bitext.dropped.values())
    assert "40 pairs" in output_of("mine", "--from-candidates", tmp_path / "out", "--output", tmp_path / "again", "--threshold", 1)


def test_a_usual_sentence_of_the_smaller_side_has_more_candidates() -> None:
    assert usual_counts(4, 1000, 1000) == (4, 4)
    assert usual_counts(4, 3000, 100) == (4, 120)  # 3,000 sentences x 4 neighbours among 100
    assert usual_counts(16, 10, 10_000) == (16_000, 16)


@pytest.mark.parametrize("lang", ["de", "ru", "hi"])
def test_corpora_without_translations_are_named_and_others_not(lang: str, caplog: pytest.LogCaptureFixture) -> None:
    """Lines of the examples that are in no gold pair, and all lines."""
    sides = [(EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines() for name in ("en", lang)]
    gold = [line.split("\t") for line in (EXAMPLES / f"gold.en-{lang}.tsv").read_text().splitlines()]
    translated = [{int(pair[side]) for pair in gold} for side in (0, 1)]
    others = [[line for number, line in enumerate(sides[side], 1) if number not in translated[side]] for side in (0, 1)]
    found = mine(*sides, target_lang=lang)
    assert "few or no translations" not in caplog.text
    assert found.figures["estimated_precision"] > 0.9
    found = mine(*others, target_lang=lang)
    assert "few or no translations" in caplog.text
    assert len(found) <= 10
    assert "estimated_precision" not in found.figures
    assert "expected precision unknown: few or no translations" in repr(found)
