"""Add pieces of other spellings to the built-in encoder. The vectors and the pieces that it has do not change.

    python configs/builtin_pieces.py --data build/builtin-data --encoder DIR --output miner/encoders/assets/builtin

- The normalisation is that of builtin_spellings.py.
- Korean without spaces: the pieces that start a word are also pieces within a word, with the same vectors.
- Vietnamese without diacritics: each syllable gets a marked piece, whose vector is the mean of those of the syllables that it may stand
  for, by their number in DATA. `miner.encoders.unmarked_words` marks the syllables of a text.
"""

import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import sentencepiece
from builtin_spellings import SPACE, build_charsmap, drop_marks, parse_model
from builtin_vocabulary import parse_arguments

from miner.encoders import static
from miner.encoders.static import StaticEncoder
from miner.encoders.unmarked_words import MARK

KOREAN_WORD = re.compile(f"{SPACE}[가-힣]{{2,}}")
KOREAN_PENALTY = 3.0  # of the log probability of a piece within a word, so that words in published texts are split as before
MIN_SYLLABLES = 2  # of a form in DATA
SYLLABLE = re.compile("(?:[bdghklmnpqrstvx]|ch|gh|gi|kh|ng|ngh|nh|ph|qu|th|tr|c)?[aeiouy]{1,3}(?:c|ch|m|n|ng|nh|p|t)?")
LETTERS = re.compile(r"[^\W\d_]+")

Pieces = Iterator[tuple[str, float, np.ndarray]]  # piece, score, vector


def korean_pieces(scores: dict[str, float], encoder: StaticEncoder) -> Pieces:
    """Yield the pieces that start a word and have two syllables or more as pieces within a word, unless they are."""
    rows = [row for row, piece in enumerate(scores) if KOREAN_WORD.fullmatch(piece) and piece[1:] not in scores]
    names = list(scores)
    for row, vector in zip(rows, encoder.rows(np.array(rows, np.int32)), strict=True):
        yield names[row][1:], scores[names[row]] - KOREAN_PENALTY, vector


def vietnamese_pieces(data: Path, encoder: StaticEncoder) -> Pieces:
    """Yield the marked pieces of the syllables in the Vietnamese texts of the training data."""
    counts: Counter[str] = Counter()
    for text in pq.read_table(data / "groups.parquet", columns=["text"], filters=[("lang", "=", "vie_Latn")])["text"].to_pylist():
        counts.update(LETTERS.findall(unicodedata.normalize("NFC", text).lower()))
    forms = defaultdict(list)
    for form, count in counts.items():
        if count >= MIN_SYLLABLES and SYLLABLE.fullmatch(drop_marks(form)):
            forms[drop_marks(form)].append((form, count))
    vectors = encoder.vectors
    for plain, weighted in sorted(forms.items()):
        sums = np.stack([vectors[encoder.pieces.encode(form)].sum(axis=0) for form, _ in weighted])
        yield SPACE + MARK + plain, 0.0, np.average(sums, axis=0, weights=[count for _, count in weighted])


def main() -> None:
    arguments = parse_arguments(__doc__)
    encoder = StaticEncoder(arguments.encoder)
    model = parse_model(encoder.pieces.serialized_model_proto())
    scores = {piece.piece: piece.score for piece in model.pieces}
    vectors = [encoder.vectors]
    for pieces in (korean_pieces(scores, encoder), vietnamese_pieces(arguments.data, encoder)):
        for piece, score, vector in pieces:
            model.pieces.add(piece=piece, score=score)
            vectors.append(vector[None])
    model.trainer_spec.vocab_size = len(model.pieces)
    model.normalizer_spec.precompiled_charsmap = build_charsmap()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    table = np.concatenate(vectors)
    static.save(arguments.output, table, processor.serialized_model_proto(), encoder.token_dim, encoder.eight_bit_dims)
    print(f"{len(table)} pieces, {len(table) - len(scores)} of them new; {arguments.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
