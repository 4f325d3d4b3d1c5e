"""Canonical language codes: ISO 639-3 and script, as in `deu_Latn`."""

import difflib

from langcodes import Language
from langcodes.data_dicts import LIKELY_SUBTAGS
from langcodes.tag_parser import LanguageTagError

from miner.errors import ConfigError

UNDETERMINED = "und"
COUNTRIES = {"cn": "zh", "cz": "cs", "dk": "da", "gr": "el", "jp": "ja", "ua": "uk", "vn": "vi"}  # codes of countries -> of their languages
# Scripts of languages beside their usual one (CLDR, languageData); `LIKELY_SUBTAGS` has some more.
OTHER_SCRIPTS = {
    code: scripts.split()
    for scripts, codes in {
        "Arab": "ace bjn bug ban jav min sun msa tur hau wol ful swa som kau pan",
        "Arab Cyrl Latn": "aze uzb tuk kir tat uig kur tgk",
        "Arab Latn Tfng": "taq tzm zgh shi rif",
        "Arab Beng Deva Mtei Olck": "san pli kok sat mni doi snd kas mar nep mai",
        "Cyrl Latn": "bos hbs ron ckt crh gag kab",
        "Hani Hans Hant Hira Kana Jpan": "zho yue wuu nan hak jpn vie",
        "Hang Hani Kore": "kor",
        "Hebr": "lad",
        "Mong": "mon",
        "Nkoo": "bam dyu man mnk",
    }.items()
    for code in codes.split()
}


def canonical(code: str) -> str:
    """Convert an ISO 639-1, 639-2, 639-3, BCP 47 or NLLB-style code to the form `deu_Latn`; `und` is returned unchanged.

    The script is the one in the code, or the usual one of the language (`zho_Hans`, `srp_Cyrl`), or none if that is unknown (`orv`).
    The main language of a macrolanguage gets the code of the macrolanguage, as in CLDR: `cmn` and `zh` are both `zho_Hans`, `arb` and
    `ar` both `ara_Arab`, `lvs` and `lv` both `lav_Latn`; its other members (`yue`, `arz`, `nob`, `nno`) keep their codes. Territories
    and variants are dropped, but can determine the script (`zh-TW` is `zho_Hant`). Raises ConfigError for an unregistered code.
    """
    if code == UNDETERMINED:
        return UNDETERMINED
    if not isinstance(code, str):
        raise ConfigError(f"language {code!r} is not a code; give a code like de, deu, de-DE or deu_Latn, or und")
    try:
        language = Language.get(code).prefer_macrolanguage()
        is_valid = Language.make(language=language.language, script=language.script).is_valid()
        name = language.to_alpha3()
    except (LanguageTagError, LookupError):
        is_valid = False
    if not is_valid or language.language is None:
        nearest = _nearest_code(code)
        hint = f" ({nearest}?)" if nearest else ""
        raise ConfigError(f"unknown language code {code!r}{hint}; give a code like de, deu, de-DE or deu_Latn, or und")
    script = language.script
    if script is None and language.language in LIKELY_SUBTAGS:  # for other languages langcodes returns the script of English
        script = language.maximize().script
    return name if script is None else f"{name}_{script}"


def _nearest_code(code: str) -> str | None:
    """Return the known code that is most like an unknown one, which may be that of a country; None where none is alike."""
    start = code.lower().replace("_", "-").partition("-")[0]
    codes = sorted((name for name in LIKELY_SUBTAGS if len(name) == 2), key=lambda name: name[0] != start[:1])
    return COUNTRIES.get(start) or next(iter(difflib.get_close_matches(start, codes, 1, cutoff=0.5)), None)


def usual_code(code: str) -> str | None:
    """Return a canonical code in the usual script of its language, if it is not written in that of the code; None if it is.

    Any language may be written in Latin letters.
    """
    name, _, script = code.partition("_")
    usual = canonical(name) if name != UNDETERMINED else code
    tag = Language.get(name).language
    is_known = script in ("", "Latn") or usual == code or script in OTHER_SCRIPTS.get(name, ()) or f"{tag}-{script}" in LIKELY_SUBTAGS
    return None if is_known else usual


def bcp47(code: str) -> str:
    """Return the BCP 47 tag of a language code, without a script that is usual: `deu_Latn` -> `de`, `zho_Hant` -> `zh-Hant`.

    Raises ConfigError for a code that is not registered.
    """
    full = canonical(code)
    name, _, script = full.partition("_")
    is_usual = script == "Latn" and canonical(name) == full  # langcodes writes it for languages of which it does not know the usual script
    return Language.get(name if is_usual else full).simplify_script().to_tag()
