"""Text in other encodings, subtitles, and text that needs repair."""

import json
import random
import re
from pathlib import Path

import pytest
from command import error_of, miner

from miner.config.commands import TextSettings
from miner.errors import ConfigError, DataError
from miner.text import encodings, readers, repair

GERMAN = "Über den Flüssen wächst das Grün, sagte der König höflich und öffnete die Tür für die Gäste.\n"
RUSSIAN = "Вчера вечером мы долго гуляли по набережной и говорили о книгах, которые прочитали этим летом.\n"


def read(path: Path, **settings: object) -> list[tuple[int, str]]:
    blocks = readers.read_sentences(str(path), TextSettings.check(**settings), block_bytes=256)
    return [pair for block in blocks for pair in zip(block.lines.tolist(), block.texts, strict=True)]


@pytest.mark.parametrize("encoding", ["cp1252", "iso8859-1", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "UTF8"])
def test_text_is_the_same_in_any_encoding(encoding: str, tmp_path: Path) -> None:
    lines = [f"{number}. {GERMAN}".strip() for number in range(100)]
    (tmp_path / "de.txt").write_bytes("\n".join(lines).encode(encoding))
    assert read(tmp_path / "de.txt", encoding=encoding) == list(enumerate(lines, 1))
    (tmp_path / "de.csv").write_bytes("".join(f'a,"{line}"\n' for line in ["text", *lines]).encode(encoding))
    assert [text for _, text in read(tmp_path / "de.csv", encoding=encoding, text_column="text")] == lines


def test_bytes_that_an_encoding_lacks_cost_their_line_only(tmp_path: Path) -> None:
    (tmp_path / "ja.txt").write_bytes("一行目\n".encode("shift_jis") + b"\x81\xff\n" + "三行目\n".encode("shift_jis"))
    assert read(tmp_path / "ja.txt", encoding="shift_jis") == [(1, "一行目"), (3, "三行目")]


@pytest.mark.parametrize("name", ["klingon", "hex", "rot13", ""])
def test_an_unknown_encoding_is_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    assert "--encoding" in error_of("embed", tmp_path / "a.txt", "--encoding", name, "--output", tmp_path / "out")


SAMPLES = {
    "deu": GERMAN,
    "rus": RUSSIAN,
    "fin": "Äiti sanoi että hän lähtee töihin. Mitä sinä teet tänään?\nYöllä näkyi tähtiä.\n",
    "pol": "Wczoraj śniło mi się, że jeżdżę na łyżwach.\nTeż mówią, że są bogaci i chcą ćwiczyć.\n",
    "ces": "Myšlenka, že žije šťastně, ho těší.\nPříště přijď včas, řekl učitel žákům.\n",
    "hun": "Az őrült fűnyíró újra elindult, és a hőség sem zavarta őt.\n",
    "lit": "Aš gyvenu Lietuvoje, čia žmonės šneka lietuviškai.\nŽiemą būna šalta, o vasarą šilta.\n",
    "tur": "Bu akşam şehirde güneş çok güzel batıyor.\nİstanbul'da yaşayan kişi sayısı artıyor.\n",
    "jpn": "昨日の夜、私たちは川沿いを散歩しました。\n",
    "cmn": "昨天晚上我们沿着河边散步，谈论今年夏天读过的书。\n",
    "kor": "어젯밤 우리는 강가를 걸으며 여름에 읽은 책 이야기를 했다.\n",
}


@pytest.mark.parametrize(
    ("lang", "encoding"),
    [
        *[("deu", "cp1252"), ("rus", "cp1251"), ("rus", "koi8-r"), ("fin", "iso8859-1"), ("fin", "iso8859-15"), ("fin", "cp1252")],
        *[(lang, encoding) for lang in ("pol", "ces", "hun") for encoding in ("cp1250", "iso8859-2")],
        *[("lit", "cp1257"), ("lit", "iso8859-13"), ("tur", "cp1254"), ("jpn", "utf-16-le")],
        *[("jpn", "shift_jis"), ("jpn", "euc_jp"), ("cmn", "gbk"), ("kor", "euc_kr")],
    ],
)
def test_the_likely_encoding_is_named(lang: str, encoding: str, toy_encoder: Path, tmp_path: Path) -> None:
    """The one that reads the text as it was written, whatever its name."""
    text = SAMPLES[lang] * 10
    (tmp_path / "text.txt").write_bytes(text.encode(encoding))
    message = error_of("embed", tmp_path / "text.txt", "--lang", lang, "--encoder", toy_encoder, "--output", tmp_path / "out")
    name = re.fullmatch(r".*; the text looks like \S+, so give --encoding (\S+)\n?", message)
    assert name, message
    assert text.encode(encoding).decode(name[1]) == text


def test_the_likely_encoding_is_a_hint_where_some_lines_are_valid(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_bytes((GERMAN * 50).encode("cp1252") + b"one two\n" * 50)
    assert (
        "the text looks like cp1252" in miner("embed", tmp_path / "text.txt", "--encoder", toy_encoder, "--output", tmp_path / "out").stderr
    )
    (tmp_path / "text.txt").write_text(GERMAN * 50)
    assert encodings.guess_encoding(str(tmp_path / "text.txt")) is None


SRT = """\ufeff1
00:00:01,000 --> 00:00:02,500
<i>Hello there,</i>
my friend.

2
00:01:03,250 --> 00:01:04,000
{\\an8}Goodbye!
"""
VTT = """WEBVTT

NOTE written by hand

intro
00:01.000 --> 00:02.500 align:start
<v Bob>Hello there,
my friend.

01:03.250 --> 01:04.000
Goodbye!
"""


@pytest.mark.parametrize(("name", "content"), [("a.srt", SRT), ("a.vtt", VTT)])
def test_subtitles_are_cues_with_times(name: str, content: str, toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert read(tmp_path / name) == [(1, "Hello there, my friend."), (2, "Goodbye!")]
    assert read(tmp_path / name, text_column="start") == [(1, "1.000"), (2, "63.250")]
    assert read(tmp_path / name, text_column="end") == [(1, "2.500"), (2, "64.000")]
    with pytest.raises(DataError, match="no column 'speaker'; subtitles have text, start, end"):
        read(tmp_path / name, text_column="speaker")
    result = miner("embed", tmp_path / name, "--encoder", toy_encoder, "--output", tmp_path / "out", "--json", tmp_path / "f.json")
    assert (result.exit_code, json.loads((tmp_path / "f.json").read_text())["counts"]["lines"]) == (0, 2)


@pytest.mark.parametrize("content", ["", "no cue at all\n", "1\n00:00:0x,000 --> nowhere\nHello\n"])
def test_files_without_cues_are_one_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(content)
    with pytest.raises(DataError, match=r"a\.srt: no.* subtitles"):
        read(tmp_path / "a.srt")


def test_flipped_subtitles_are_rows_or_one_line(tmp_path: Path) -> None:
    chance, path = random.Random(3), tmp_path / "a.vtt"
    errors = []
    for _ in range(200):
        data = bytearray((VTT * 3).encode())
        for _ in range(chance.randrange(1, 5)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data)
        try:
            read(path)
        except DataError as error:
            errors.append(str(error))
    assert not [error for error in errors if "\n" in error]


@pytest.mark.parametrize(
    ("line", "repaired", "rules"),
    [
        ("Fish &amp; chips &lt;3", "Fish & chips <3", {"entities"}),
        ("FranÃ§ais et franÃ§aise", "Français et française", {"mojibake"}),
        ("„So“, she said, it’s ‘fine’", "\"So\", she said, it's 'fine'", {"quotes"}),
        ("ｆｕｌｌ width", "full width", {"width"}),
        ("the ﬁnal oﬀer", "the final offer", {"ligatures"}),
        ("שלום\u200f \u202bעולם\u202c", "שלום עולם", {"direction"}),
        ("\ufeb3\ufefc\ufee1", "سلام", {"presentation_forms"}),
        ("می\u200cخواهم", "می\u200cخواهم", set()),  # Persian needs its joiners
        ("plain ASCII", "plain ASCII", set()),
        ("schon gut, Grüße", "schon gut, Grüße", set()),
        ("Zu\u00adsam\u00admen\u200b, mit\u00a0Ab\u2009stand", "Zusammen, mit Ab stand", {"invisible", "spaces"}),
    ],
)
def test_clean_repairs_what_programs_left(line: str, repaired: str, rules: set[str]) -> None:
    texts, counts = repair.repair([line, "untouched"])
    assert (texts, set(counts)) == ([repaired, "untouched"], rules)


def test_clean_is_counted_and_keeps_line_numbers(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n\none &amp; two\n“three”\n&quot;four&quot;\n", encoding="utf-8")
    command = ("embed", tmp_path / "a.txt", "--clean", "--encoder", toy_encoder, "--output", tmp_path / "out")
    assert "; lines repaired: 2 entities, 1 quotes\n" in miner(*command).stdout
    sides = ("mine", tmp_path / "a.txt", tmp_path / "a.txt", "--clean", "--encoder", toy_encoder, "--output", tmp_path / "mined")
    assert "source: 4 sentences, 4 unique; lines repaired: 2 entities, 1 quotes\n" in miner(*sides).stdout
    assert read(tmp_path / "a.txt", clean=True) == [(1, "one"), (3, "one & two"), (4, '"three"'), (5, '"four"')]


def test_clean_without_ftfy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ftfy", None)
    repair._config.cache_clear()
    with pytest.raises(ConfigError, match=r"ftfy is not installed; pip install 'bitext-miner\[clean\]'"):
        repair.repair(["a &amp; b"])


def test_a_damaged_record_of_increments_says_that_all_is_read_again(toy_encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    command = ("embed", tmp_path / "a.txt", "--encoder", toy_encoder, "--output", tmp_path / "out")
    miner(*command)
    record = tmp_path / "out/sentences/increments.json"
    record.write_bytes(record.read_bytes()[:-5])
    assert "increments.json: not JSON" in miner(*command).stderr
    assert miner("verify", tmp_path / "out").exit_code == 0
