"""Repair text as `--clean` does: what other programs left in it, by ftfy, and marks that ftfy keeps.

ftfy (Speer, 2019) decodes HTML entities and text that was read in a wrong encoding, and replaces curled quotes, characters of full and
half width, and Latin ligatures. Lines that it cannot change are not passed to it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from miner.errors import require
from miner.text.normalise import INVISIBLE

DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
INVISIBLE_MARKS = re.compile(f"[{INVISIBLE}]")
SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
PRESENTATION_FORMS = re.compile("[\ufb13-\ufb17\ufb1d-\ufdff\ufe70-\ufefc]+")  # of Armenian, Hebrew and Arabic letters
SUSPECT = re.compile(r"&\w+;|&#|[^\x09\x0a\x0d\x20-\x7e]")  # a line without any of these stays as it is
RULES = {  # step of ftfy -> rule that is counted
    "unescape_html": "entities",
    "decode_inconsistent_utf8": "mojibake",
    "replace_lossy_sequences": "mojibake",
    "restore_byte_a0": "mojibake",
    "uncurl_quotes": "quotes",
    "fix_character_width": "width",
    "fix_latin_ligatures": "ligatures",
    "fix_c1_controls": "mojibake",
    "remove_control_chars": "controls",
    "remove_terminal_escapes": "controls",
}


def repair(texts: Sequence[str]) -> tuple[list[str], Counter[str]]:
    """Return the repaired texts, and the number of texts that each rule changed. Raises ConfigError if ftfy is not installed."""
    counts: Counter[str] = Counter()
    repaired = []
    for text in texts:
        if SUSPECT.search(text):
            text, rules = _repair_line(text)
            counts.update(rules)
        repaired.append(text)
    return repaired, counts


def _repair_line(text: str) -> tuple[str, set[str]]:
    fixed = require("ftfy").fix_and_explain(text, _config())
    steps = fixed.explanation or []
    rules = {RULES[name] for action, name in steps if action == "apply" and name in RULES}
    if any(action in ("encode", "decode", "transcode") for action, _ in steps):
        rules.add("mojibake")
    line = str(fixed.text)
    for name, pattern, replace in MARKS:
        if pattern.search(line):
            rules.add(name)
            line = pattern.sub(replace, line)
    return line, rules


def _compose(match: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", match[0])


MARKS: tuple[tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    ("direction", DIRECTION, ""),
    ("invisible", INVISIBLE_MARKS, ""),
    ("spaces", SPACES, " "),
    ("presentation_forms", PRESENTATION_FORMS, _compose),
)  # rule -> what it replaces, and by what


@cache
def _config() -> Any:
    return require("ftfy").TextFixerConfig(fix_line_breaks=False, normalization="NFC")
