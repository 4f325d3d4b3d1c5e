"""Divide the training data of the built-in encoder, so that languages with little text have most of the steps.

    python configs/builtin_balance.py --data build/builtin-data

Reads `groups.parquet` and `words.parquet` of builtin_data.py, and writes in the same columns: `weak.parquet` and `weak_words.parquet`, the
groups with a language that is not STRONG, reduced to those languages, English or French and two other languages; `replay.parquet` and
`replay_words.parquet`, a sample of the strong languages; and `spellings.parquet`, texts in other spellings with the English ones.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from builtin_spellings import SPELLINGS
from builtin_vocabulary import STRONG

MAX_OTHERS = 2  # texts of strong languages in a weak group, beside English
MAX_REPLAYED = 6  # texts of a replayed group
REPLAYED_GROUPS = 60_000
PIVOTS = ("eng_Latn", "fra_Latn")
MAX_SPELLED = 12_000  # texts of a language in another spelling, and words; of MOST_SPELLED four times as many
SPELLED = 300_000  # of all these texts
MOST_SPELLED = {"vie_Latn", "hin_Deva", "ell_Grek", "rus_Cyrl"}


def keep_some(table: pa.Table, is_candidate: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Return (n,) whether a row is one of `count` random candidates of its group."""
    groups, order = table["group"].to_numpy(), random.permutation(len(table))
    order = order[is_candidate[order]]
    order = order[np.argsort(groups[order], kind="stable")]
    starts = np.flatnonzero(np.r_[True, np.diff(groups[order]) != 0])
    lengths = np.diff(np.r_[starts, len(order)])
    kept = np.zeros(len(table), dtype=bool)
    kept[order[np.arange(len(order)) - np.repeat(starts, lengths) < count]] = True
    return kept


def split(table: pa.Table, random: np.random.Generator) -> tuple[pa.Table, pa.Table]:
    """Return the weak groups and a sample of the others' texts."""
    is_strong = pc.is_in(table["lang"], pa.array(sorted(STRONG))).to_numpy()
    is_pivot = pc.is_in(table["lang"], pa.array(PIVOTS)).to_numpy()
    groups = table["group"].to_numpy()
    has_weak = np.isin(groups, np.unique(groups[~is_strong]))
    others = keep_some(table, is_strong & ~is_pivot & has_weak, MAX_OTHERS, random)
    weak = table.filter(pa.array(~is_strong | (is_pivot & has_weak) | others))
    sample = random.permutation(np.unique(groups[is_strong]))[:REPLAYED_GROUPS]
    candidates = is_strong & np.isin(groups, sample)
    return weak, table.filter(pa.array(keep_some(table, candidates, MAX_REPLAYED, random) | (candidates & is_pivot)))


def respell(table: pa.Table, random: np.random.Generator, offset: int) -> pa.Table:
    """Return texts in other spellings, each in a group with its English."""
    english = table.filter(pc.equal(table["lang"], "eng_Latn"))
    first = dict(zip(english["group"].to_pylist(), english["text"].to_pylist(), strict=True))
    columns: dict[str, list[object]] = {"group": [], "lang": [], "text": []}
    group = offset
    for languages, name, spell in SPELLINGS:
        for lang in languages:
            rows = table.filter(pc.equal(table["lang"], lang))
            limit = MAX_SPELLED * (4 if lang in MOST_SPELLED else 1)
            for row in random.permutation(len(rows))[:limit]:
                text, key = rows["text"][row].as_py(), rows["group"][row].as_py()
                other = spell(text)
                if key in first and other != text:
                    for code, content in (("eng_Latn", first[key]), (f"{lang}-{name}", other)):
                        for column, value in zip(columns.values(), (group, code, content), strict=True):
                            column.append(value)
                    group += 1
    return pa.table(columns, schema=pa.schema([("group", pa.int64()), ("lang", pa.string()), ("text", pa.string())]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True)
    folder, random = parser.parse_args().data, np.random.default_rng(0)
    groups, words = (pq.read_table(folder / f"{name}.parquet").combine_chunks() for name in ("groups", "words"))
    is_lexicon = pc.starts_with(groups["source"], "lexicons/")
    lexicons, sentences = groups.filter(is_lexicon), groups.filter(pc.invert(is_lexicon))
    weak, replay = split(sentences, random)
    weak_words, replay_words = split(words, random)
    weak_lexicons, _ = split(lexicons, random)
    shift = pc.max(words["group"]).as_py() + 1
    shifted = weak_lexicons.set_column(0, "group", pc.add(weak_lexicons["group"], shift))
    spelled = pa.concat_tables([respell(sentences, random, 0), respell(words, random, 1 << 40)])
    drawn = random.permutation(pc.unique(spelled["group"]).to_numpy())[:SPELLED]
    spelled = spelled.filter(pc.is_in(spelled["group"], pa.array(drawn)))
    tables = {"weak": weak, "weak_words": pa.concat_tables([weak_words, shifted]), "replay": replay, "replay_words": replay_words}
    for name, table in {**tables, "spellings": spelled}.items():
        pq.write_table(table.select(["group", "lang", "text"]), folder / f"{name}.parquet", compression="zstd")
        print(f"{name}: {table.num_rows} texts", file=sys.stderr)


if __name__ == "__main__":
    main()
