"""What each filter scores, on rows whose answer is plain to see, and how bounds decide."""

import string

import numpy as np
import pytest

from miner.filters import BLOCK, Filter, judge
from miner.filters.characters import CharacterTable
from miner.filters.hubs import times
from miner.filters.junk import junk_share
from miner.filters.language import likelihood
from miner.filters.length import SLACK, characters, length_ratio, words
from miner.filters.near_duplicates import skeleton, skeleton_keys
from miner.filters.numbers import disagreement, numbers
from miner.filters.overlap import likeness
from miner.filters.pairs import PAIR_FILTERS, PairTexts, judge_pairs
from miner.filters.repeats import LENGTH, repeated_share
from miner.filters.scripts import letter_share, script_share
from miner.filters.sentences import SENTENCE_FILTERS, judge_sentences


def near(*values: float) -> object:
    return pytest.approx(list(values), nan_ok=True)


NAN = float("nan")


class TestLength:
    def test_characters_are_code_points_and_words_lie_between_spaces(self) -> None:
        texts = CharacterTable(["Ein Satz.", "नमस्ते", "我们", "😀 ok", ""])
        assert characters(texts).tolist() == [9, 6, 2, 4, 0]
        assert words(texts).tolist() == [2, 1, 1, 2, 1]

    def test_ratio_is_of_the_longer_side_whichever_it_is(self) -> None:
        short, long = "a" * 10, "b" * (3 * (10 + SLACK) - SLACK)
        assert length_ratio(CharacterTable([short, long, short]), CharacterTable([long, short, short])).tolist() == [3, 3, 1]

    def test_ideographs_weigh_as_much_as_the_letters_they_stand_for(self) -> None:
        assert length_ratio(CharacterTable(["我们今天去学校。"]), CharacterTable(["We went to school today"])).item() < 1.3
        assert length_ratio(CharacterTable(["明日は行きますか"]), CharacterTable(["Will you go tomorrow?"])).item() < 1.3


class TestCharacters:
    def test_runs_end_where_texts_do(self) -> None:
        assert CharacterTable(["one two", "", "three", " four, five-six", "1"]).runs(r"\p{L}").tolist() == [2, 0, 1, 3, 0]
        assert CharacterTable(["", ""]).runs(r"\p{L}").tolist() == [0, 0]
        assert CharacterTable([]).runs(r"\p{L}").tolist() == []


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
    def test_share(self, text: str, share: float) -> None:
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
    def test_share_of_a_script(self, text: str, script: str | None, share: float) -> None:
        assert script_share(CharacterTable([text]), script).tolist() == near(share)

    def test_texts_do_not_mix(self) -> None:
        texts = CharacterTable(["", "1", "ab", "", "a1", ""])
        assert letter_share(texts).tolist() == near(NAN, 0, 1, NAN, 0.5, NAN)


class TestRepeats:
    def test_share_of_n_grams_that_stood_there_before(self) -> None:
        once = string.ascii_lowercase
        twice = once + once
        total = len(twice) - LENGTH + 1
        again = len(once) - LENGTH + 1
        assert repeated_share(CharacterTable([once, twice, "a" * 100])).tolist() == near(0, again / total, 92 / 93)

    def test_what_another_text_says_is_no_repetition(self) -> None:
        assert repeated_share(CharacterTable(["to be or not to be"] * 3)).tolist() == [0, 0, 0]

    def test_a_text_shorter_than_an_n_gram_cannot_be_told(self) -> None:
        assert repeated_share(CharacterTable(["a" * (LENGTH - 1), "", "a" * LENGTH])).tolist() == near(NAN, NAN, 0)
        assert repeated_share(CharacterTable(["", "a"])).tolist() == near(NAN, NAN)

    def test_menus_and_broken_models(self) -> None:
        said = ["buy now buy now buy now buy now", "ha ha ha ha ha ha ha ha ha", "Как купить Как купить Как купить Как купить"]
        assert (repeated_share(CharacterTable(said)) > 0.5).all()


class TestLanguage:
    TEXTS = ("Das ist ein kurzer Satz.", "This is a short sentence.", "Это короткое предложение.", "यह एक छोटा वाक्य है।", "Paris")

    @pytest.mark.parametrize(("lang", "own"), [("deu_Latn", 0), ("eng_Latn", 1), ("rus_Cyrl", 2), ("hin_Deva", 3)])
    def test_a_sentence_is_likely_in_its_own_language_alone(self, lang: str, own: int) -> None:
        *scores, name = likelihood(self.TEXTS, lang)
        assert [score > 0.5 for score in scores] == [at == own for at in range(4)]
        assert max(score for at, score in enumerate(scores) if at != own) < 0.05
        assert name >= 0.5  # a name tells nothing, so it may be of any language

    @pytest.mark.parametrize("lang", ["und", "xho_Zzzz", "tlh_Latn"])
    def test_an_unknown_language_cannot_be_told(self, lang: str) -> None:
        told = not np.isnan(likelihood(["Das ist ein Satz."], lang)[0])
        assert told == lang.startswith("xho")

    def test_codes_of_one_language_are_one(self) -> None:
        text = ["Jeg vet ikke hva han heter."]
        assert likelihood(text, "nob_Latn") == likelihood(text, "nor_Latn") == [1]
        assert likelihood(["我不知道他叫什么名字。"], "zho_Hans") == [1]
        assert likelihood(["Hindi ko alam ang pangalan niya."], "fil_Latn") == [1]


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
    def test_likeness_is_of_the_words_in_their_order(self, source: str, target: str, score: float) -> None:
        assert likeness([source, target], [target, source]).tolist() == near(score, score)


class TestNumbers:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("no digits, one or two", []),
            ("1,000 or 1.000 or 1 000", ["1000"] * 3),
            ("1,234,567.50", ["1", "234", "567", "50"]),
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
    def test_found_in_a_text(self, text: str, found: list[str]) -> None:
        assert sorted(numbers(text).elements()) == sorted(found)

    @pytest.mark.parametrize(
        ("source", "target", "score"),
        [
            ("It costs 1,000 euros.", "Das kostet 1.000 Euro.", 0),
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
            ("He is 23.", "Er ist 25.", 1),
            ("In 1998, 25 people", "1998 waren es 23", 0.5),
            ("7 7 7", "7 8 9", 2 / 3),
            ("In 1990 and 90 more", "1990 und 91", 0.5),
            ("It costs 1.25 dollars", "Es kostet 25 Dollar", 1),  # four characters, and no year
            ("one", "1", NAN),
            ("no", "nein", NAN),
        ],
    )
    def test_disagreement(self, source: str, target: str, score: float) -> None:
        assert disagreement([source, target], [target, source]).tolist() == near(score, score)

    def test_more_digits_than_an_int_takes(self) -> None:
        assert disagreement(["९" * 5000], ["9" * 5000]).tolist() == [0]


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
            ("a@" * 2500, 0.5, 0.5),  # in which an address would be looked for for a minute, were a sign @ let into its parts
        ],
    )
    def test_share(self, text: str, least: float, most: float) -> None:
        assert least <= junk_share([text]).item() <= most


class TestHubs:
    def test_times_a_sentence_is_in_a_pair(self) -> None:
        found = times(np.array([7, -1, 7, 9, 7]))
        assert found.of(np.array([9, 7, -1, 7])).tolist() == [1, 3, 1, 3]
        assert times(np.zeros(0, np.int64)).of(np.zeros(0, np.int64)).tolist() == []


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
    def test_case_punctuation_and_spaces_say_nothing(self, texts: tuple[str, ...]) -> None:
        assert len({skeleton(text) for text in texts}) == 1
        assert len(set(skeleton_keys(texts).tolist())) == 1

    @pytest.mark.parametrize("texts", [("Page 2", "Page 3"), ("one", "once"), ("हिन्द", "हिन्दी"), ("...", "!!!"), ("😀", "😃")])
    def test_digits_letters_and_vowels_do_and_so_do_signs_alone(self, texts: tuple[str, str]) -> None:
        assert skeleton(texts[0]) != skeleton(texts[1])


def scores_are(scores: list[float]) -> Filter[int]:
    return Filter("reason", lambda _: np.array(scores), "most")


class TestDecision:
    """A row is dropped by the first filter whose bound its score breaks."""

    def test_exactly_at_the_bound_is_kept_and_what_cannot_be_told_too(self) -> None:
        values = np.array([0.5, np.nextafter(0.5, 0), np.nextafter(0.5, 1), np.nan])
        most, least = (Filter("why", lambda _: values, bound) for bound in ("most", "least"))
        assert most.drops(values, 0.5).tolist() == [False, False, True, False]
        assert least.drops(values, 0.5).tolist() == [False, True, False, False]

    def test_counts_sum_to_what_is_dropped_and_the_first_reason_counts(self) -> None:
        one, other = Filter("one", lambda _: np.array([1.0, 0, 1, 0]), "most"), Filter("other", lambda _: np.array([1.0, 1, 0, 0]), "most")
        verdicts = judge({"a": one, "b": other, "c": other}, 0, 4, {"a": 0.5, "b": 0.5})
        assert list(verdicts.scores) == ["a", "b"]
        assert verdicts.kept.tolist() == [False, False, False, True]
        assert verdicts.counts() == {"one": 2, "other": 1}
        assert verdicts.counts(np.array([10, 20, 30, 40])) == {"one": 40, "other": 20}
        reasons, scores = verdicts.why()
        assert (reasons, scores.tolist()) == (["one", "other", "one"], [1, 1, 1])

    def test_without_bounds_all_stay(self) -> None:
        verdicts = judge_sentences(["", "?"], "und", {})
        assert verdicts.kept.tolist() == [True, True]
        assert verdicts.counts() == {}
        assert verdicts.why()[0] == []

    def test_blocks_do_not_show(self) -> None:
        texts = [f"text {number} " + "ab" * (number % 9) for number in range(2 * BLOCK + 3)]
        bounds = {"letters": 0.7, "repeats": 0.3, "min_chars": 9}
        together = judge_sentences(texts, "eng_Latn", bounds)
        rows = [0, 8, BLOCK - 1, BLOCK, 2 * BLOCK + 2]
        for row in rows:
            alone = judge_sentences([texts[row]], "eng_Latn", bounds)
            assert alone.why()[0] == ([together.reasons[together.dropped_by[row]]] if together.dropped_by[row] >= 0 else [])

    def test_every_sentence_filter_drops_what_it_is_for(self) -> None:
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
        verdicts = judge_sentences(list(texts), "deu_Latn", bounds)
        assert verdicts.why()[0] == [reason for reason in texts.values() if reason]
        assert list(verdicts.counts()) == [known.reason for known in SENTENCE_FILTERS.values()]

    def test_every_pair_filter_drops_what_it_is_for(self) -> None:
        bounds = {"copies": 0.7, "junk": 0.6, "languages": 0.05, "numbers": 0, "length_ratio": 2, "hubs": 3}
        rows = [
            ("The same line twice.", "The same line twice!", 1, "near_copy"),
            ("mail@example.org", "besuch@beispiel.de", 1, "junk"),
            ("This is a short sentence.", "C'est une phrase courte.", 1, "other_language"),
            ("The old bridge is 20 metres long.", "Die alte Brücke ist 30 Meter lang.", 1, "numbers_disagree"),
            ("It is a good day.", "Es ist ein guter Tag, und morgen wird es hoffentlich noch einmal so schön sein.", 1, "length_ratio"),
            ("That is a good idea.", "Das ist eine gute Idee.", 4, "hub"),
            ("That is a good idea.", "Das ist eine gute Idee.", 3, None),
        ]
        sources, targets, crowd, reasons = zip(*rows, strict=True)
        pairs = PairTexts(sources, targets, ("eng_Latn", "deu_Latn"), np.array(crowd, dtype=float))
        verdicts = judge_pairs(pairs, bounds)
        assert verdicts.why()[0] == [reason for reason in reasons if reason]
        assert list(verdicts.counts()) == [known.reason for known in PAIR_FILTERS.values()]
        assert set(bounds) == set(PAIR_FILTERS)


@pytest.mark.parametrize("text", ["a." * 50_000, "a-" * 50_000, "a" * 100_000 + ".", ".a" * 50_000])
def test_a_long_run_without_an_address_is_read_once(text: str) -> None:
    """A search that began anew at each letter would take hours."""
    assert 0 < junk_share([text + " word"])[0] <= 1
