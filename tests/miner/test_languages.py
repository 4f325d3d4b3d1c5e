import pytest

from miner.errors import ConfigError
from miner.languages import canonical


@pytest.mark.parametrize(
    ("codes", "form"),
    [
        ("de deu ger de-DE de_DE DE deu_Latn deu-latn deu_Latn_AT", "deu_Latn"),
        ("en eng en-US en_XX", "eng_Latn"),
        ("zh zho cmn zh-CN cmn_Hans zh-cmn", "zho_Hans"),
        ("zh-Hant zh-TW zh_HK cmn_Hant", "zho_Hant"),
        ("yue", "yue_Hant"),
        ("sr srp", "srp_Cyrl"),
        ("sr-Latn srp_Latn sh", "srp_Latn"),
        ("ar ara arb", "ara_Arab"),
        ("arz", "arz_Arab"),
        ("nb nob", "nob_Latn"),
        ("nn nno", "nno_Latn"),
        ("no nor", "nor_Latn"),
        ("lv lav lvs", "lav_Latn"),
        ("et est ekk", "est_Latn"),
        ("fa fas pes", "fas_Arab"),
        ("sw swa swh", "swa_Latn"),
        ("he heb iw", "heb_Hebr"),
        ("ja jpn", "jpn_Jpan"),
        ("ko kor", "kor_Kore"),
        ("hi hin", "hin_Deva"),
        ("vi vie", "vie_Latn"),
        ("id ind in", "ind_Latn"),
        ("el ell gre", "ell_Grek"),
        ("tl tgl fil", "fil_Latn"),
        ("kk kaz", "kaz_Cyrl"),
        ("ka kat", "kat_Geor"),
        ("orv", "orv"),  # its usual script is not recorded
        ("orv_Cyrl", "orv_Cyrl"),
        ("und", "und"),
    ],
)
def test_every_spelling_of_a_language_has_one_form(codes: str, form: str) -> None:
    assert {code: canonical(code) for code in codes.split()} == dict.fromkeys(codes.split(), form)
    assert canonical(form) == form


@pytest.mark.parametrize("code", ["english", "xx", "xyz", "deu_Xxxx", "", "d", "de DE", "../de"])
def test_an_unknown_code_is_an_error_that_shows_good_ones(code: str) -> None:
    with pytest.raises(ConfigError, match=r"unknown language code .*de, deu, de-DE or deu_Latn") as caught:
        canonical(code)
    assert "\n" not in str(caught.value)
