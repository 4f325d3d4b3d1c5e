"""Language codes in, one canonical form out: ISO 639-3 and script, as in `deu_Latn`."""

from langcodes import Language
from langcodes.data_dicts import LIKELY_SUBTAGS
from langcodes.tag_parser import LanguageTagError

from miner.errors import ConfigError

UNDETERMINED = "und"


def canonical(code: str) -> str:
    """ISO 639-1, 639-2, 639-3, BCP 47 and `deu_Latn` codes -> `deu_Latn`; `und` stays `und`.

    A language keeps the script it is given, or takes its usual one (`zho_Hans`, `srp_Cyrl`), or none where that is not known
    (`orv`). Codes for the main language of a group become the group's, as in CLDR, so that `cmn` and `zh` are both `zho_Hans`,
    `arb` and `ar` both `ara_Arab`, `lvs` and `lv` both `lav_Latn`; the group's other languages (`yue`, `arz`, `nob`, `nno`)
    stay themselves. Territories and variants do not count, except that they can settle the script (`zh-TW` is `zho_Hant`).
    Raises ConfigError for a code that is not registered.
    """
    if code == UNDETERMINED:
        return UNDETERMINED
    try:
        language = Language.get(code).prefer_macrolanguage()
        known = Language.make(language=language.language, script=language.script).is_valid()
        name = language.to_alpha3()
    except (LanguageTagError, LookupError):
        known = False
    if not known or language.language is None:
        raise ConfigError(f"unknown language code {code!r}; give one like de, deu, de-DE or deu_Latn, or und")
    script = language.script
    if script is None and language.language in LIKELY_SUBTAGS:  # for others langcodes answers as for English
        script = language.maximize().script
    return name if script is None else f"{name}_{script}"


def bcp47(code: str) -> str:
    """Return the BCP 47 tag of a language code, without a script that is usual: `deu_Latn` -> `de`, `zho_Hant` -> `zh-Hant`.

    Raises ConfigError for a code that is not registered.
    """
    return Language.get(canonical(code)).simplify_script().to_tag()
