"""Make the encoder that the training of the built-in encoder starts from: its normalisation, pieces and initial vectors.

    python configs/builtin_vocabulary.py --data build/builtin-data --encoder DIR --output build

The pieces of an encoder DIR keep their vectors. New ones are words and parts of words of languages with little text (all but STRONG), and
other spellings of known pieces (see builtin_spellings.py). A word of a lexicon starts with the vector of its English translation, another
spelling with the vector of its piece, and any other piece with the sum of the known pieces that it was split into before.

Outputs: `builtin-initial`, an encoder; and `builtin-initial/rates.npy`, the learning rate of each piece, relative to that of the piece of
one language: those that languages with much text use hardly change, those that no other language uses do not change at all.
"""

import argparse
import io
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sentencepiece
from builtin_spellings import SPACE, SPELLINGS, build_charsmap, parse_model

from miner.encoders import static
from miner.encoders.static import StaticEncoder

# Languages with much text, whose vectors are kept.
STRONG_LANGUAGES = """
eng_Latn jpn_Jpan zho_Hans zho_Hant spa_Latn rus_Cyrl pol_Latn deu_Latn fra_Latn por_Latn ita_Latn hun_Latn kor_Kore tur_Latn ces_Latn
ukr_Cyrl fin_Latn nld_Latn swe_Latn ara_Arab vie_Latn ell_Grek ind_Latn bul_Cyrl heb_Hebr cat_Latn ron_Latn hin_Deva est_Latn fas_Arab
slk_Latn glg_Latn srp_Cyrl srp_Latn slv_Latn lit_Latn nob_Latn lav_Latn mar_Deva eus_Latn tha_Thai mkd_Cyrl hrv_Latn epo_Latn isl_Latn
sqi_Latn cym_Latn nno_Latn bos_Latn bel_Cyrl afr_Latn msa_Latn dan_Latn tam_Taml ben_Beng tel_Telu mal_Mlym kan_Knda guj_Gujr pan_Guru
sin_Sinh nep_Deva urd_Arab fil_Latn
"""
STRONG = frozenset(STRONG_LANGUAGES.split())
NEW_PIECES, NEW_CANDIDATES = 95_000, 130_000
NEW_PENALTY = 1.0  # of their log probabilities, because known pieces have the vectors of much text
MIN_STRONG_SHARE = 0.02  # of a piece's use in strong languages, from which it starts with the sum of its parts
MAX_STRONG_SHARE = 0.4  # from which it is left out
SPELLED_PIECES = 15_000
SPELLED_FROM = 30_000  # most frequent pieces of the languages of a spelling
MAX_WORDS = 1_500_000  # that new pieces are trained on
SAMPLED_TEXTS = 3_000  # of a language, to count its pieces
UNSPACED = ("THAI", "LAO", "KHMER", "TIBETAN", "MYANMAR", "CJK", "HIRAGANA", "KATAKANA")  # no space between words
COUNTED_WORDS = 30_000  # of a language
MIN_RATE = 0.4  # smaller rates are 0
UNKNOWN_LENGTH = 0.5  # of a new piece that strong languages do not use, relative to the sum of its parts


def count_words(paths: Iterable[Path], processor: sentencepiece.SentencePieceProcessor) -> dict[str, Counter[str]]:
    """Return the number of each normalised word of each language."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in paths:
        table = pq.read_table(path, columns=["lang", "text"])
        for lang in pc.unique(table["lang"]).to_pylist():
            texts = table["text"].filter(pc.equal(table["lang"], lang))
            if lang in STRONG:
                texts = texts.slice(0, 60_000)
            for chunk in texts.chunks:
                for text in processor.normalize(chunk.to_pylist()):
                    counts[lang].update(text[1:].split(SPACE))
    return counts


def weigh_words(counts: dict[str, Counter[str]]) -> Counter[str]:
    """Return the words of languages with little text: all languages weigh the square root of their size."""
    weights: Counter[str] = Counter()
    for lang, words in counts.items():
        if lang not in STRONG:
            total = sum(words.values())
            for word, count in words.items():
                if 0 < len(word) <= 60 and (count > 1 or total < 60_000):
                    weights[word] += count * 1000 * total**-0.5
    return Counter(dict(weights.most_common(MAX_WORDS)))


def train_words(weights: Counter[str], size: int) -> dict[str, float]:
    """Return the pieces of a unigram model of weighted words, with their scores."""
    path, model = Path("/tmp/builtin-words.tsv"), io.BytesIO()
    path.write_text("".join(f"{word}\t{max(1, round(weight))}\n" for word, weight in weights.items()))
    sentencepiece.SentencePieceTrainer.train(
        input=str(path), input_format="tsv", model_writer=model, vocab_size=size, model_type="unigram", character_coverage=0.99999,
        normalization_rule_name="identity", max_sentencepiece_length=20, bos_id=-1, eos_id=-1, unk_id=0, num_threads=2, minloglevel=1,
        input_sentence_size=0, seed_sentencepiece_size=1_500_000,
    )  # fmt: skip
    return {piece.piece: piece.score for piece in parse_model(model.getvalue()).pieces[1:]}


def is_unspaced(piece: str) -> bool:
    import unicodedata

    return any(unicodedata.name(letter, "").startswith(UNSPACED) for letter in piece)


class Vocabulary:
    """Pieces with scores and initial vectors; the first one is unknown."""

    def __init__(self, encoder: StaticEncoder, charsmap: bytes) -> None:
        self.proto = parse_model(encoder.pieces.serialized_model_proto())
        self.proto.normalizer_spec.precompiled_charsmap = charsmap
        self.proto.normalizer_spec.name = "miner"
        normalize = sentencepiece.SentencePieceProcessor(model_proto=self.proto.SerializeToString()).normalize
        self.pieces: dict[str, tuple[float, np.ndarray]] = {}
        vectors = encoder.vectors
        order = sorted(range(1, len(vectors)), key=lambda row: -self.proto.pieces[row].score)
        for row in order:
            piece = self.proto.pieces[row].piece
            plain = normalize("a" + piece.replace(SPACE, " "))[2:] if piece != SPACE else SPACE
            if piece.startswith(SPACE) and is_unspaced(piece):
                plain = plain.lstrip(SPACE)
            if plain and SPACE not in plain[1:]:
                self.pieces.setdefault(plain, (self.proto.pieces[row].score, vectors[row]))
        self.pieces[SPACE] = (self.pieces[SPACE][0], np.zeros(encoder.dim, np.float32))

    def processor(self) -> sentencepiece.SentencePieceProcessor:
        """Return the SentencePiece model of the pieces."""
        unknown = parse_model(self.proto.SerializeToString()).pieces[0]
        del self.proto.pieces[:]
        self.proto.pieces.append(unknown)
        for piece, (score, _) in self.pieces.items():
            self.proto.pieces.add(piece=piece, score=score)
        self.proto.trainer_spec.vocab_size = len(self.proto.pieces)
        return sentencepiece.SentencePieceProcessor(model_proto=self.proto.SerializeToString())

    def vectors(self) -> np.ndarray:
        rows = [vector for _, vector in self.pieces.values()]
        return np.stack([np.zeros_like(rows[0]), *rows])


def spelled_pieces(vocabulary: Vocabulary, counts: dict[str, Counter[str]], english: set[str]) -> dict[str, tuple[float, np.ndarray]]:
    """Return other spellings of the most frequent whole-word pieces of languages, with scores and vectors."""
    sums: dict[str, list[tuple[float, np.ndarray]]] = defaultdict(list)
    processor = vocabulary.processor()
    for languages, _, spell in SPELLINGS:
        for lang in languages:
            if spell("a b") != "a b" or lang not in counts:
                continue
            uses: Counter[str] = Counter()
            words = list(counts[lang].items())[:300_000]
            for pieces, (_, count) in zip(processor.encode([word for word, _ in words], out_type=str), words, strict=True):
                for piece in pieces:
                    uses[piece] += count
            total = sum(uses.values())
            for piece, count in uses.most_common(SPELLED_FROM):
                start, bare = (SPACE, piece[1:]) if piece.startswith(SPACE) else ("", piece)
                other = start + processor.normalize(spell(bare))[1:] if bare else piece
                if other != piece and len(other.strip(SPACE)) > 1 and SPACE not in other[1:] and count > 1 and piece in vocabulary.pieces:
                    sums[other].append((count / total, vocabulary.pieces[piece][1]))
    best = sorted(sums.items(), key=lambda item: -sum(weight for weight, _ in item[1]))
    result = {}
    for other, parts in best:
        if other in vocabulary.pieces or other in english:
            continue
        weights = np.array([weight for weight, _ in parts])
        vector = (weights[:, None] * np.stack([vector for _, vector in parts])).sum(axis=0) / weights.sum()
        result[other] = (math.log(weights.sum()) - 4, vector)
        if len(result) == SPELLED_PIECES:
            break
    return result


def lexicon_vectors(data: Path, encoder: StaticEncoder, normalize: sentencepiece.SentencePieceProcessor) -> dict[str, np.ndarray]:
    """Return the mean vector of the English translations of each word of a lexicon, of languages with little text."""
    table = pq.read_table(data / "groups.parquet", filters=[("source", "in", [f"lexicons/{name}.en-xx.tsv.gz" for name in
        ("gatitos", "cldr", "panlex_swadesh", "dsac_terms")])])  # fmt: skip
    groups, langs, texts = (table[name].to_pylist() for name in ("group", "lang", "text"))
    english = {group: text for group, lang, text in zip(groups, langs, texts, strict=True) if lang == "eng_Latn"}
    names = sorted(set(english.values()))
    pieces, vectors = encoder.pieces.encode(names), encoder.vectors
    sums = {name: vectors[ids].sum(axis=0) for name, ids in zip(names, pieces, strict=True) if len(ids) <= 3}
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for group, lang, text in zip(groups, langs, texts, strict=True):
        if lang not in STRONG and group in english and english[group] in sums and " " not in text:
            found[normalize.normalize(text)].append(sums[english[group]])
    return {word: np.mean(vectors, axis=0) for word, vectors in found.items()}


def strong_shares(vocabulary: Vocabulary, counts: dict[str, Counter[str]]) -> dict[str, float]:
    """Return the share of strong languages in the use of each piece, each language weighing the same."""
    processor = vocabulary.processor()
    uses = {True: np.zeros(processor.get_piece_size()), False: np.zeros(processor.get_piece_size())}
    for lang, words in counts.items():
        frequent = words.most_common(COUNTED_WORDS)
        ids = processor.encode([word for word, _ in frequent], num_threads=2)
        weights = np.repeat([count for _, count in frequent], [len(row) for row in ids]) / max(1, sum(words.values()))
        uses[lang in STRONG] += np.bincount([piece for row in ids for piece in row], weights, processor.get_piece_size())
    total = uses[True] + uses[False]
    return {processor.id_to_piece(int(row)): uses[True][row] / total[row] for row in np.flatnonzero(total)}


def parse_arguments(doc: str | None) -> argparse.Namespace:
    """Parse the options of a script, with its docstring, that makes an encoder from another one and DATA."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0] if doc else None)
    for name in ("data", "encoder", "output"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments(__doc__)
    encoder, data = StaticEncoder(arguments.encoder), arguments.data
    vocabulary = Vocabulary(encoder, build_charsmap())
    processor = vocabulary.processor()
    print(f"{len(vocabulary.pieces)} known pieces", file=sys.stderr)
    counts = count_words((data / "groups.parquet", data / "words.parquet"), processor)
    print(f"{sum(map(len, counts.values()))} words", file=sys.stderr)
    strong: Counter[str] = Counter()
    for lang in STRONG & counts.keys():
        total = sum(counts[lang].values())
        for word, count in counts[lang].items():
            strong[word] += count / total
    latin = {SPACE + word for word, share in strong.items() if share > 2e-6}
    spelled = spelled_pieces(vocabulary, counts, latin)
    print(f"{len(spelled)} other spellings", file=sys.stderr)
    trained = train_words(weigh_words(counts), 2 * NEW_PIECES)
    print(f"{len(trained)} pieces of languages with little text", file=sys.stderr)
    words, all_vectors = lexicon_vectors(data, encoder, processor), encoder.vectors
    candidates = {}
    for piece, score in sorted(trained.items(), key=lambda item: -item[1]):
        plain = piece.lstrip(SPACE) if is_unspaced(piece) else piece
        if plain and plain not in vocabulary.pieces and plain not in spelled and len(candidates) < NEW_CANDIDATES:
            candidates.setdefault(plain, score - NEW_PENALTY)
    old = dict(vocabulary.pieces)
    vocabulary.pieces.update({piece: (score, np.zeros(encoder.dim, np.float32)) for piece, score in candidates.items()})
    vocabulary.pieces.update(spelled)
    shares = strong_shares(vocabulary, counts)
    vocabulary.pieces = old | {piece: entry for piece, entry in spelled.items() if shares.get(piece, 0) < MAX_STRONG_SHARE}
    kept = [piece for piece in candidates if shares.get(piece, 0) < MAX_STRONG_SHARE][:NEW_PIECES]
    split = encoder.pieces.encode([piece.replace(SPACE, " ") for piece in kept])
    for piece, ids in zip(kept, split, strict=True):
        parts = np.zeros(encoder.dim, np.float32) if 0 in ids else all_vectors[ids].sum(axis=0)
        is_strong = shares.get(piece, 0) > MIN_STRONG_SHARE or not piece.startswith(SPACE)
        vocabulary.pieces[piece] = (candidates[piece], parts if is_strong else words.get(piece[1:], UNKNOWN_LENGTH * parts))
    new = vocabulary.pieces.keys() - old.keys()
    processor = vocabulary.processor()
    initial = arguments.output / "builtin-initial"
    static.save(initial, vocabulary.vectors(), processor.serialized_model_proto(), encoder.token_dim)
    print(f"{processor.get_piece_size()} pieces, {len(new)} new; {initial}", file=sys.stderr)
    np.save(arguments.output / "builtin-rates.npy", learning_rates(data, processor, set(new)))


def learning_rates(data: Path, processor: sentencepiece.SentencePieceProcessor, new: set[str]) -> np.ndarray:
    """Return the rate (pieces,) of each piece: the share of languages with little text in its use, each language weighing the same."""
    size = processor.get_piece_size()
    uses = {True: np.zeros(size), False: np.zeros(size)}
    table = pq.read_table(data / "groups.parquet", columns=["lang", "text"])
    for lang in pc.unique(table["lang"]).to_pylist():
        texts = table["text"].filter(pc.equal(table["lang"], lang))
        step = max(1, len(texts) // SAMPLED_TEXTS)
        ids = processor.encode(texts.take(np.arange(0, len(texts), step)).to_pylist(), num_threads=2)
        bins = np.bincount(np.concatenate([np.array(row, dtype=np.int64) for row in ids]), minlength=size)
        uses[lang in STRONG] += bins / bins.sum() * (3 if lang == "eng_Latn" else 1)
    total = uses[True] + uses[False]
    rates = np.where(total > 0, uses[False] / np.maximum(total, 1e-12), 0)
    is_new = np.array([processor.id_to_piece(piece) in new for piece in range(size)])
    rates = np.where(is_new, np.maximum(rates, 0.5), rates)
    rates[rates < MIN_RATE] = 0
    rates[[0, processor.piece_to_id(SPACE)]] = 0
    print(f"{(rates > 0).sum()} pieces are trained", file=sys.stderr)
    return rates.astype(np.float32)


if __name__ == "__main__":
    main()
