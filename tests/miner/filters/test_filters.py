"""The score of each filter on rows with an obvious answer, and decisions by bounds."""

import string

import numpy as np
import pytest

from miner.config.probability import ProbabilityWeights
from miner.filters import BLOCK_ROWS, Filter, apply_filters
from miner.filters.characters import (
    NGRAM_CHARACTERS,
    SMOOTHING_LETTERS,
    CharacterTable,
    junk_share,
    length_ratio,
    letter_share,
    num_characters,
    num_words,
    repeated_share,
    script_share,
)
from miner.filters.hubs import add_counts, count_occurrences
from miner.filters.language import language_likelihood
from miner.filters.numbers import extract_numbers, number_disagreement
from miner.filters.pairs import PAIR_FILTERS, PairTexts, apply_pair_filters, word_overlap
from miner.filters.sentences import SENTENCE_FILTERS, apply_sentence_filters
from miner.text.near_duplicates import skeleton, skeleton_keys


def near(*values: float) -> object:
    return pytest.approx(list(values), nan_ok=True)


NAN = float("nan")


class TestLength:
    def test_characters_are_code_points_and_words_are_separated_by_spaces(self) -> None:
        texts = CharacterTable(["Ein Satz.", "नमस्ते", "我们", "😀 ok", ""])
        assert num_characters(texts).tolist() == [9, 6, 2, 4, 0]
        assert num_words(texts).tolist() == [2, 1, 1, 2, 1]

    def test_ratio_divides_the_longer_side_by_the_shorter(self) -> None:
        short, long = "a" * 10, "b" * (3 * (10 + SMOOTHING_LETTERS) - SMOOTHING_LETTERS)
        assert length_ratio(CharacterTable([short, long, short]), CharacterTable([long, short, short])).tolist() == [3, 3, 1]

    def test_ideographs_count_as_several_letters(self) -> None:
        assert length_ratio(CharacterTable(["我们今天去学校。"]), CharacterTable(["We went to school today"])).item() < 1.3
        assert length_ratio(CharacterTable(["明日は行きますか"]), CharacterTable(["Will you go tomorrow?"])).item() < 1.3


class TestCharacters:
    def test_runs_do_not_continue_across_texts(self) -> None:
        assert CharacterTable(["one two", "", "three", " four, five-six", "1"]).count_runs(r"\p{L}").tolist() == [2, 0, 1, 3, 0]
        assert CharacterTable(["", ""]).count_runs(r"\p{L}").tolist() == [0, 0]
        assert CharacterTable([]).count_runs(r"\p{L}").tolist() == []


class TestLetters:
    @pytest.mark.parametrize(
        ("text", "share"),
        [
            ("abcd", 1),
            ("ab12", 0.5),
            ("12:30 – 14:00", 0),
            ("é", 1),
            ("हिन्दी", 1),
            ("日本語。", 0.75),
            ("a b c 1", 0.75),
            ("😀", 0),
            ("", NAN),
        ],
    )
    def test_letter_share(self, text: str, share: float) -> None:
        assert letter_share(CharacterTable([text])).tolist() == near(share)

    @pytest.mark.parametrize(
        ("text", "script", "share"),
        [
            ("Straße, 12", "Latn", 1),
            ("Это Tom", "Cyrl", 0.5),
            ("Это Tom", "Latn", 0.5),
            ("हिन्दी में PDF", "Deva", 0.75),
            ("日本語をプログラムする", "Jpan", 1),
            ("スーパー", "Jpan", 1),
            ("한국어 韓國", "Kore", 1),
            ("中文", "Hans", 1),
            ("中文", "Hant", 1),
            ("中文 ABC", "Hans", 0.4),
            ("مرحبا", "Arab", 1),
            ("مرحبا", "Hebr", 0),
            ("12 + 30", "Latn", NAN),
            ("abc", None, NAN),
            ("abc", "Qaaa", NAN),
        ],
    )
    def test_script_share(self, text: str, script: str | None, share: float) -> None:
        assert script_share(CharacterTable([text]), script).tolist() == near(share)

    def test_texts_are_scored_separately(self) -> None:
        texts = CharacterTable(["", "1", "ab", "", "a1", ""])
        assert letter_share(texts).tolist() == near(NAN, 0, 1, NAN, 0.5, NAN)


class TestRepeats:
    def test_share_of_ngrams_that_occur_earlier(self) -> None:
        once = string.ascii_lowercase
        twice = once + once
        total = len(twice) - NGRAM_CHARACTERS + 1
        repeated = len(once) - NGRAM_CHARACTERS + 1
        assert repeated_share(CharacterTable([once, twice, "a" * 100])).tolist() == near(0, repeated / total, 92 / 93)

    def test_repeats_across_texts_do_not_count(self) -> None:
        assert repeated_share(CharacterTable(["to be or not to be"] * 3)).tolist() == [0, 0, 0]

    def test_text_shorter_than_an_ngram_has_no_score(self) -> None:
        assert repeated_share(CharacterTable(["a" * (NGRAM_CHARACTERS - 1), "", "a" * NGRAM_CHARACTERS])).tolist() == near(NAN, NAN, 0)
        assert repeated_share(CharacterTable(["", "a"])).tolist() == near(NAN, NAN)

    def test_menus_and_degenerate_model_output_score_high(self) -> None:
        texts = ["buy now buy now buy now buy now", "ha ha ha ha ha ha ha ha ha", "Как купить Как купить Как купить Как купить"]
        assert (repeated_share(CharacterTable(texts)) > 0.5).all()


class TestLanguage:
    TEXTS = ("Das ist ein kurzer Satz.", "This is a short sentence.", "Это короткое предложение.", "यह एक छोटा वाक्य है।", "Paris")

    @pytest.mark.parametrize(("lang", "own"), [("deu_Latn", 0), ("eng_Latn", 1), ("rus_Cyrl", 2), ("hin_Deva", 3)])
    def test_sentence_is_likely_only_in_its_own_language(self, lang: str, own: int) -> None:
        *scores, name_score = language_likelihood(self.TEXTS, lang)
        assert [score > 0.5 for score in scores] == [row == own for row in range(4)]
        assert max(score for row, score in enumerate(scores) if row != own) < 0.05
        assert name_score >= 0.5  # a name is no evidence for or against a language

    @pytest.mark.parametrize("lang", ["und", "xho_Zzzz", "tlh_Latn"])
    def test_unknown_language_has_no_score(self, lang: str) -> None:
        has_score = not np.isnan(language_likelihood(["Das ist ein Satz."], lang)[0])
        assert has_score == lang.startswith("xho")

    def test_codes_of_one_language_are_equivalent(self) -> None:
        text = ["Jeg vet ikke hva han heter."]
        assert language_likelihood(text, "nob_Latn") == language_likelihood(text, "nor_Latn") == [1]
        assert language_likelihood(["我不知道他叫什么名字。"], "zho_Hans") == [1]
        assert language_likelihood(["Hindi ko alam ang pangalan niya."], "fil_Latn") == [1]


class TestCopies:
    @pytest.mark.parametrize(
        ("source", "target", "score"),
        [
            ("Berlin is here.", "BERLIN is here!", 1),
            ("one two three four", "one two four three", 0.75),
            ("one two", "three four", 0),
            ("one two three", "two three", 0.8),
            ("Tom is rational.", "Tom ist rational.", 2 / 3),
            ("我们今天去学校", "我们今天去医院", 5 / 7),
            ("日本語 ABC", "日本語 xyz", 0.75),
            ("...", "!", NAN),
        ],
    )
    def test_overlap_compares_words_in_order(self, source: str, target: str, score: float) -> None:
        assert word_overlap([source, target], [target, source]).tolist() == near(score, score)


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("no digits, one or two", []),
            ("1,000 or 1.000 or 1 000", ["1000"] * 3),
            ("1,234,567.50 or 1.234.567,5 or 1 234 567,50", ["1234567.5"] * 3),
            ("$1,234.56 or 1 234,56 € or 1’234.56", ["1234.56"] * 3),
            ("12,34,567.5", ["1234567.5"]),
            ("1.234,567 or 1234.567", ["1234.567"] * 2),
            ("0.125 or .125", ["0.125"] * 2),
            ("100 200, 300", ["100200", "300"]),
            ("10:30.5", ["10", "30", "5"]),
            ("1.2.345", ["1", "2", "345"]),
            ("١٬٢٣٤٫٥", ["1234.5"]),
            ("12,34,567", ["1234567"]),
            ("3.5 and 3,50", ["3.5", "3.5"]),
            ("05.01.2020", ["5", "1", "2020"]),
            ("2020-01-05", ["2020", "1", "5"]),
            ("at 8:30 or 8h30", ["8.3", "8.3"]),
            ("in 1998 250 people", ["1998", "250"]),
            ("१२३ लोग", ["123"]),
            ("٢٠٢٠", ["2020"]),
            ("A4, COVID-19", ["4", "19"]),
            ("the 21st", ["21"]),
            ("0 and 00", ["0", "0"]),
            (".5, 0.50 and No.5", ["0.5", "0.5", "5"]),
            ("2万, 1.5 억, २ लाख", ["20000", "150000000", "200000"]),
        ],
    )
    def test_numbers_are_normalised(self, text: str, expected: list[str]) -> None:
        assert sorted(extract_numbers(text).elements()) == sorted(expected)

    @pytest.mark.parametrize(
        ("source", "target", "score"),
        [
            ("It costs 1,000 euros.", "Das kostet 1.000 Euro.", 0),
            ("It costs $1,234.56.", "Cela coûte 1 234,56 $.", 0),
            ("12,345.6 metres", "12 345,7 Meter", 1),
            ("12 March 2020", "१२ मार्च २०२०", 0),
            ("3.5 million", "3 500 000", 0),
            ("20 thousand", "2万", 0),
            ("in the 90s", "in den 1990er Jahren", 0),
            ("5 January 2020", "2020-01-05", 0),
            ("one and 2", "1 und 2", 0),
            ("3.5 million", "350만", 0),
            ("Page 1", "Seite 10", 1),
            ("10 of 100", "10 von 1000", 0.5),
            ("1.5 metres", "15 Meter", 1),
            ("100 mm", "1 m", 1),
            ("due to dispatch 18.12", "12月18日に出荷予定", 0),
            ("just before 5.30pm", "午後５：３０直前", 0),
            ("3 meters (statue: 1.55 meters)", "約３㍍（像１・５５㍍）", 0),
            ("on 18.12", "12月19日", 1),
            ("1.5 and 7", "1 und 5 und 8", 0.5),
            ("He is 23.", "Er ist 25.", 1),
            ("In 1998, 25 people", "1998 waren es 23", 0.5),
            ("7 7 7", "7 8 9", 2 / 3),
            ("In 1990 and 90 more", "1990 und 91", 0.5),
            ("It costs 1.25 dollars", "Es kostet 25 Dollar", 1),  # four characters, but not a year
            ("one", "1", NAN),
            ("no", "nein", NAN),
        ],
    )
    def test_number_disagreement(self, source: str, target: str, score: float) -> None:
        assert number_disagreement([source, target], [target, source]).tolist() == near(score, score)

    def test_more_digits_than_int_parses(self) -> None:
        assert number_disagreement(["९" * 5000], ["9" * 5000]).tolist() == [0]


class TestJunk:
    @pytest.mark.parametrize(
        ("text", "least", "most"),
        [
            ("An ordinary sentence, with a comma.", 0, 0.2),
            ("他说，我们今天去学校，明天不去。", 0, 0.45),
            ("See www.example.org for more about the history of this house.", 0.2, 0.4),
            ("https://example.org/a/b?c=d", 1, 1),
            ("mail@example.org", 1, 1),
            ("photo_0123.jpg", 1, 1),
            ("12 34 56 78 90", 1, 1),
            ("*** --- ***", 1, 1),
            ("Home | News | Sport | Weather | Travel", 0.55, 0.6),
            ("Home | News | Sport | Weather | Travel | Food", 0.61, 0.65),
            ("Berlin, Paris, Rome, Madrid, Lisbon, Vienna", 0.6, 0.7),
            ("So, a non-story, then.", 0.2, 0.4),
            ("a@" * 2500, 0.5, 0.5),  # takes a minute if the parts of an address may contain @
        ],
    )
    def test_junk_share(self, text: str, least: float, most: float) -> None:
        assert least <= junk_share([text]).item() <= most


class TestHubs:
    def test_occurrences_of_a_sentence_in_pairs_are_counted(self) -> None:
        counts = count_occurrences(np.array([7, -1, 7, 9, 7]))
        assert counts.of(np.array([9, 7, -1, 7])).tolist() == [1, 3, 1, 3]
        assert count_occurrences(np.zeros(0, np.int64)).of(np.array([7])).tolist() == [0]
        assert count_occurrences(np.zeros(0, np.int64)).of(np.zeros(0, np.int64)).tolist() == []

    def test_counts_of_several_ranges_are_added_up(self) -> None:
        counts = add_counts(np.array([7, -1, 7, 9, -1]), np.array([2, 1, 3, 4, 1]))
        assert counts.ids.tolist() == [-1, 7, 9]
        assert counts.counts.tolist() == [2, 5, 4]
        assert add_counts(np.zeros(0, np.int64), np.zeros(0, np.int64)).ids.tolist() == []


class TestNearDuplicates:
    @pytest.mark.parametrize(
        "texts",
        [
            ("Hello, world!", "hello world", "HELLO   WORLD...", "“Hello—world”"),
            ("ＡＢＣ１", "abc1"),
            ("Straße", "STRASSE"),
            ("हिन्दी।", "हिन्दी"),
        ],
    )
    def test_case_punctuation_and_spaces_are_ignored(self, texts: tuple[str, ...]) -> None:
        assert len({skeleton(text) for text in texts}) == 1
        assert len(set(skeleton_keys(texts).tolist())) == 1

    @pytest.mark.parametrize("texts", [("Page 2", "Page 3"), ("one", "once"), ("हिन्द", "हिन्दी"), ("...", "!!!"), ("😀", "😃")])
    def test_digits_letters_marks_and_bare_symbols_are_compared(self, texts: tuple[str, str]) -> None:
        assert skeleton(texts[0]) != skeleton(texts[1])


class TestDecision:
    """A row is dropped by the first filter whose bound its score violates."""

    def test_score_at_the_bound_and_missing_score_are_kept(self) -> None:
        values = np.array([0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1), np.nan])
        most, least = (Filter("why", lambda _: values, bound) for bound in ("most", "least"))
        assert most.drops(values, 0.5).tolist() == [False, False, True, False]
        assert least.drops(values, 0.5).tolist() == [False, True, False, False]

    def test_row_is_counted_for_its_first_reason(self) -> None:
        first = Filter("first", lambda _: np.array([1.0, 0, 1, 0]), "most")
        second = Filter("second", lambda _: np.array([1.0, 1, 0, 0]), "most")
        decisions = apply_filters({"a": first, "b": second, "c": second}, 0, 4, {"a": 0.5, "b": 0.5})
        assert list(decisions.scores) == ["a", "b"]
        assert decisions.kept.tolist() == [False, False, False, True]
        assert decisions.counts() == {"first": 2, "second": 1}
        assert decisions.counts(np.array([10, 20, 30, 40])) == {"first": 40, "second": 20}
        reasons, scores = decisions.drop_reasons()
        assert (reasons, scores.tolist()) == (["first", "second", "first"], [1, 1, 1])

    def test_without_bounds_every_row_is_kept(self) -> None:
        decisions = apply_sentence_filters(["", "?"], "und", {})
        assert decisions.kept.tolist() == [True, True]
        assert decisions.counts() == {}
        assert decisions.drop_reasons()[0] == []

    def test_decisions_do_not_depend_on_blocks(self) -> None:
        texts = [f"text {number} " + "ab" * (number % 9) for number in range(2 * BLOCK_ROWS + 3)]
        bounds = {"letters": 0.7, "repeats": 0.3, "min_chars": 9}
        decisions = apply_sentence_filters(texts, "eng_Latn", bounds)
        rows = [0, 8, BLOCK_ROWS - 1, BLOCK_ROWS, 2 * BLOCK_ROWS + 2]
        for row in rows:
            single = apply_sentence_filters([texts[row]], "eng_Latn", bounds)
            assert single.drop_reasons()[0] == ([decisions.reasons[decisions.dropped_by[row]]] if decisions.dropped_by[row] >= 0 else [])

    def test_every_sentence_filter_drops_its_target(self) -> None:
        bounds = {"min_chars": 3, "min_words": 2, "max_words": 9, "letters": 0.5, "script": 0.5, "repeats": 0.5, "language": 0.05}
        texts = {
            "ab": "too_short",
            "Einwortsatz": "few_words",
            "eins zwei drei vier fünf sechs sieben acht neun zehn": "many_words",
            "12 34 ab": "few_letters",
            "Это предложение.": "other_script",
            "so weiter so weiter so weiter so weiter": "repetitive",
            "This is not a German sentence.": "other_language",
            "Das ist ein deutscher Satz.": None,
        }
        decisions = apply_sentence_filters(list(texts), "deu_Latn", bounds)
        assert decisions.drop_reasons()[0] == [reason for reason in texts.values() if reason]
        assert list(decisions.counts()) == [row_filter.reason for row_filter in SENTENCE_FILTERS.values()]

    def test_every_pair_filter_drops_its_target(self) -> None:
        bounds = {"copies": 0.7, "junk": 0.6, "languages": 0.05, "numbers": 0, "length_ratio": 2, "hubs": 3, "probability": 0.5}
        rows = [
            ("The same line twice.", "The same line twice!", 1, "near_copy"),
            ("mail@example.org", "besuch@beispiel.de", 1, "junk"),
            ("This is a short sentence.", "C'est une phrase courte.", 1, "other_language"),
            ("The old bridge is 20 metres long.", "Die alte Brücke ist 30 Meter lang.", 1, "numbers_disagree"),
            ("It is a good day.", "Es ist ein guter Tag, und morgen wird es hoffentlich noch einmal so schön sein.", 1, "length_ratio"),
            ("That is a good idea.", "Das ist eine gute Idee.", 4, "hub"),
            ("That is a good idea.", "Das ist eine gute Idee.", 2, "improbable"),
            ("That is a good idea.", "Das ist eine gute Idee.", 3, None),
        ]
        sources, targets, hub_counts, reasons = zip(*rows, strict=True)
        margins = np.where(np.array(reasons) == "improbable", 1.0, 1.3)
        weights = ProbabilityWeights(intercept=-20, margin=18, length_ratio=-7, numbers=-5)
        langs, counts = ("eng_Latn", "deu_Latn"), np.array(hub_counts, dtype=float)
        pairs = PairTexts(sources, targets, langs, counts, margins=margins, weights=weights)
        decisions = apply_pair_filters(pairs, bounds)
        assert decisions.drop_reasons()[0] == [reason for reason in reasons if reason]
        assert list(decisions.counts()) == [row_filter.reason for row_filter in PAIR_FILTERS.values()]
        assert set(bounds) == set(PAIR_FILTERS)


@pytest.mark.parametrize("text", ["a." * 50_000, "a-" * 50_000, "a" * 100_000 + ".", ".a" * 50_000])
def test_addresses_are_searched_in_linear_time(text: str) -> None:
    """A search that restarts at each character takes hours."""
    assert 0 < junk_share([text + " word"])[0] <= 1
