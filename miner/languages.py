"""Canonical language codes: ISO 639-3 and script, as in `deu_Latn`."""

from langcodes import Language
from langcodes.data_dicts import LIKELY_SUBTAGS
from langcodes.tag_parser import LanguageTagError

from miner.errors import ConfigError

UNDETERMINED = "und"


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
        raise ConfigError(f"unknown language code {code!r}; give a code like de, deu, de-DE or deu_Latn, or und")
    script = language.script
    if script is None and language.language in LIKELY_SUBTAGS:  # for other languages langcodes returns the script of English
        script = language.maximize().script
    return name if script is None else f"{name}_{script}"


def bcp47(code: str) -> str:
    """Return the BCP 47 tag of a language code, without a script that is usual: `deu_Latn` -> `de`, `zho_Hant` -> `zh-Hant`.

    Raises ConfigError for a code that is not registered.
    """
    return Language.get(canonical(code)).simplify_script().to_tag()
