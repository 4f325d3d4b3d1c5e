"""Measure how well a static encoder retrieves translations on text it was not trained on: WMT news, XNLI captions and talk, Tatoeba.

    python benchmarks/builtin.py --data DATA [--encoder builtin]

DATA is the folder that `configs/builtin_data.py` reads. Retrieval accuracy in percent, the mean of both directions, English against each
language: the last 2,000 lines of the WMT news test sets (2013 for cs de es fr hu it ru, the newest one of 2014 to 2022 for the
others; in a group of their own, languages with less training text), 1,200 premises of the XNLI test set, and the Tatoeba test set. News and
XNLI by ratio margin with k = 4, by cosine, and rescored by late interaction of 16 candidates.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import mean

from news_data import SMALL, Lines, news, parse_arguments, rows

from miner.config.choices import default_candidates
from miner.encoders.base import TokenEncoder
from miner.evaluation.inputs import encode
from miner.evaluation.retrieval import accuracy, hits, retrieve
from miner.evaluation.tatoeba import SETS, TatoebaTask
from miner.mining.late_scores import TokenSides

XNLI = ("ar", "bg", "de", "el", "ko", "sw", "th", "ur", "vi", "zh")
XNLI_LINES, MIN_XNLI_CHARACTERS = 1200, 40
# The target languages of the built-in encoder.
TATOEBA_26 = "deu fra spa ita por nld rus ukr pol ces hun fin swe dan tur ell bul ron heb ara hin cmn jpn kor vie ind"


def xnli(data: Path) -> dict[str, Lines]:
    premises = defaultdict(list)
    for lang, premise, *_ in rows(data / "nli/xnli.test.tsv.gz"):
        premises[lang].append(premise)
    first = {text: row for row, text in reversed(list(enumerate(premises["en"]))) if len(text) > MIN_XNLI_CHARACTERS}
    kept = sorted(first.values())[:XNLI_LINES]
    return {lang: ([premises["en"][row] for row in kept], [premises[lang][row] for row in kept]) for lang in XNLI}


def report(name: str, encoder: TokenEncoder, sets: Mapping[str, Lines]) -> None:
    scores = {}
    for lang, (english, other) in sets.items():
        vectors = encode(encoder, english + other)
        tokens = TokenSides(encoder.token_vectors(english), encoder.token_vectors(other), default_candidates(map(len, (english, other))))
        answers = retrieve(vectors[: len(english)], vectors[len(english) :], 4, tokens)
        scores[lang] = {score: 100 * accuracy(hits(answers[score]))["mean"] for score in ("ratio", "cosine", "late")}
    means = {score: mean(row[score] for row in scores.values()) for score in ("ratio", "cosine", "late")}
    print(f"{name}: margin {means['ratio']:.2f}, cosine {means['cosine']:.2f}, rescored {means['late']:.2f}; each by margin and rescored:")
    print("  " + "  ".join(f"{lang} {row['ratio']:.1f} {row['late']:.1f}" for lang, row in scores.items()))


def main() -> None:
    data, encoder = parse_arguments(__doc__.splitlines()[0] if __doc__ else None)
    texts = news(data)
    report("WMT news", encoder, {lang: lines for lang, lines in texts.items() if lang not in SMALL})
    report("WMT news, languages with less training text", encoder, {lang: texts[lang] for lang in SMALL})
    report("XNLI", encoder, xnli(data))
    figures = TatoebaTask(data=str(data / "eval" / "tatoeba")).evaluate(encoder).figures
    languages = figures["languages"]
    print(
        f"Tatoeba, cosine: 26 languages {100 * mean(languages[lang]['mean'] for lang in TATOEBA_26.split()):.2f}, "
        + ", ".join(f"{name} {100 * value:.2f}" for name, value in figures["average"].items())
    )
    print("  " + "  ".join(f"{lang} {100 * languages[lang]['mean']:.1f}" for lang in sorted({*TATOEBA_26.split(), *SETS["tatoeba36"]})))


if __name__ == "__main__":
    main()
