"""Tokenised text as people write it: Moses tokens, and text that was cut into words."""

import re
import unicodedata

ENTITIES = {"&quot;": '"', "&apos;": "'", "&lt;": "<", "&gt;": ">", "&#91;": "[", "&#93;": "]", "&#124;": "|", "&bar;": "|", "&amp;": "&"}
ENTITY = re.compile("|".join(ENTITIES))

# Scripts that are written without spaces between words: kana, Chinese characters, and their punctuation.
_CJK = "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
CJK_SPACE = re.compile(f"(?<=[{_CJK}]) +| +(?=[{_CJK}])")

BEFORE = re.compile(r" +(?=[.,;:!?%)\]}»…।؟،؛]+(?: |$))")  # punctuation that ends what is before it
AFTER = re.compile(r"(?:(?<= )|^)([(\[{«¿¡$£€]) +")  # punctuation that begins what is behind it
HYPHEN = re.compile(r" @([-–—/])@ ")
ELISION = re.compile(r"(\w['’]) +(?=\w)")  # l' homme
CLITIC = re.compile(r" +(['’](?:s|m|d|re|ve|ll|t)\b)", re.IGNORECASE)  # it 's
NEGATION = re.compile(r"(\w) +(n['’]t\b)", re.IGNORECASE)  # do n't
SPLIT_NEGATION = re.compile(r"(\wn) +(['’]t\b)", re.IGNORECASE)  # don 't
SPACED_BEFORE = {"fr"}  # languages with a space before ; : ! ? and inside « »
FRENCH = re.compile(r" +(?=[.,%)\]}…]+(?: |$))")
ELIDING = {"fr", "it", "ca", "ga"}


def detokenise(text: str, lang: str) -> str:
    """Join the tokens of Moses's tokeniser: punctuation to its word, `'s` to its noun, quotes to what they quote."""
    text = ENTITY.sub(lambda match: ENTITIES[match[0]], text)
    text = HYPHEN.sub(r"\1", text)
    text = CJK_SPACE.sub("", text)
    if lang in SPACED_BEFORE:
        text = FRENCH.sub("", text)
        text = re.sub(r"(?:(?<= )|^)([(\[{]) +", r"\1", text)
    else:
        text = AFTER.sub(r"\1", BEFORE.sub("", text))
    if lang in ELIDING:
        text = ELISION.sub(r"\1", text)
    else:
        text = SPLIT_NEGATION.sub(r"\1\2", NEGATION.sub(r"\1\2", text))
        text = CLITIC.sub(r"\1", text)
    return _join_quotes(text)


def delete_spaces(text: str, lang: str) -> str:
    """Undo word segmentation: NFKC, and no spaces."""
    del lang
    return unicodedata.normalize("NFKC", text).replace(" ", "")


def _join_quotes(text: str) -> str:
    """Join a `"` that stands alone to the token behind it if it opens, to the one before it if it closes: they take turns."""
    if '"' not in text:
        return text
    tokens, joined, is_open = text.split(" "), "", False
    glue = True
    for token in tokens:
        if token.strip(".,;:!?") == '"' and token.startswith('"'):
            joined += token if is_open or glue else f" {token}"
            glue = not is_open
            is_open = not is_open
            continue
        joined += token if glue else f" {token}"
        glue = False
        is_open ^= token.count('"') % 2 == 1
    return joined
