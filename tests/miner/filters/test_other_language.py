"""Warnings of language codes and texts that do not fit."""

from pathlib import Path

import pytest

from miner.errors import ConfigError
from miner.filters.language import warn_of_other_language
from miner.languages import canonical, usual_code

EXAMPLES = Path(__file__).parents[3] / "examples"


def lines(name: str) -> list[str]:
    return (EXAMPLES / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("code", "usual"),
    [("eng_Cyrl", "eng_Latn"), ("deu_Arab", "deu_Latn"), ("rus_Deva", "rus_Cyrl"), ("hin_Cyrl", "hin_Deva")]
    + [
        (code, None)
        for code in [
            "eng_Latn",
            "hin_Latn",
            "srp_Latn",
            "srp_Cyrl",
            "kas_Deva",
            "kas_Arab",
            "ace_Arab",
            "zho_Hant",
            "uzb_Cyrl",
            "und",
            "orv",
        ]
    ],
)
def test_scripts_that_a_language_is_not_written_in(code: str, usual: str | None) -> None:
    assert usual_code(code) == usual


@pytest.mark.parametrize(("code", "nearest"), [("gr", "el"), ("cz", "cs"), ("jp_Jpan", "ja"), ("xx", "xh")])
def test_unknown_codes_name_the_nearest(code: str, nearest: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown language code '{code}' \({nearest}\?\); give a code like"):
        canonical(code)


@pytest.mark.parametrize(
    ("name", "lang", "message"),
    [
        ("ru", "eng_Latn", "in.txt: only 0% of its letters are Latn, most look Cyrillic; check the language code eng_Latn"),
        ("en", "rus_Cyrl", "in.txt: only 0% of its letters are Cyrl, most look Latin; check the language code rus_Cyrl"),
        ("de", "eng_Latn", " of 100 lines do not look like eng_Latn, most of them like de; check the language code"),
        ("en", "eng_Cyrl", "in.txt: eng_Cyrl is not written in the script of the code; is it eng_Latn?"),
        ("en", "eng_Latn", None),
        ("de", "deu_Latn", None),
        ("ru", "rus_Cyrl", None),
        ("hi", "hin_Deva", None),
        ("hi", "und", None),
    ],
)
def test_texts_that_are_plainly_in_another_language(name: str, lang: str, message: str | None, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_other_language("in.txt", lines(name), lang)
    assert bool(caplog.messages) == (message is not None)
    assert message is None or message in caplog.messages[0]
