"""What the readers of all layouts share: files, archives, languages, splits, batches, tokens."""

import bz2
import io
import lzma
import random
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import test_bitext_layouts
import test_nli_layouts
import test_sts_layouts
import test_text_layouts
from public_data import RowsCase, read_rows, write_release

from miner.errors import ConfigError, DataError
from miner.research.datasets.detokenise import detokenise
from miner.research.datasets.reading import BATCH_ROWS, read_dataset
from miner.research.datasets.registry import LAYOUTS, get_layout

MODULES = (test_bitext_layouts, test_nli_layouts, test_sts_layouts, test_text_layouts)
WITH_PARQUET = {"wiki-40b"}  # whose releases are not text, and are tested beside the cases

PAWS: dict[str, str | bytes] = {
    f"x-final/{lang}/{split}_2k.tsv": f"id\tsentence1\tsentence2\tlabel\n1\t{lang} {split}.\tB.\t1\n"
    for lang in ("de", "en", "fr")
    for split in ("dev", "test")
}


def test_every_layout_has_a_test_of_rows_and_one_of_a_wrong_file() -> None:
    with_rows = {case.layout for module in MODULES for case in module.CASES} | WITH_PARQUET
    with_wrong = {case.layout for module in MODULES for case in module.WRONG} | WITH_PARQUET
    assert with_rows == set(LAYOUTS)
    assert with_wrong == set(LAYOUTS)


@pytest.mark.parametrize("case", [case for module in MODULES for case in module.CASES if not case.path], ids=str)
def test_rows_are_the_same_from_a_zip_archive(case: RowsCase, tmp_path: Path) -> None:
    write_release(tmp_path / "release", case.files)
    with zipfile.ZipFile(tmp_path / "release.zip", "w") as archive:
        archive.writestr("__MACOSX/._junk.tsv", "not read")
        for name in case.files:
            archive.write(tmp_path / "release" / name, name)
    assert read_rows(case.layout, tmp_path / "release.zip", case.languages, case.split)[1] == case.rows


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tgz", "tar.bz2", "tar.xz"])
def test_members_of_tar_archives(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"x-final.{kind}"
    with tarfile.open(path, "w:" + {"tar": "", "tgz": "gz"}.get(kind, kind.removeprefix("tar."))) as archive:
        for name, text in PAWS.items():
            data = str(text).encode()
            info = tarfile.TarInfo(f"./{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    _, rows, _ = read_rows("paws-x", path, ("de",), "test")
    assert rows == [("de test.", "B.", "1", "de", "1")]


@pytest.mark.parametrize(("name", "message"), [("x.zip", "truncated or not an archive"), ("x.tar.gz", "truncated or not .gz")])
def test_broken_archives_are_one_line(name: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"not an archive at all")
    with pytest.raises(DataError, match=message) as error:
        read_rows("snli", tmp_path / name)
    assert str(error.value).startswith(str(tmp_path / name))


@pytest.mark.parametrize(("extension", "compress"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_damage_between_the_streams_of_a_tar_is_an_error(extension: str, compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    members = io.BytesIO()
    with tarfile.open(fileobj=members, mode="w") as archive:
        for name in ("News.de-en.de", "News.de-en.en"):
            info = tarfile.TarInfo(name)
            info.size = 512
            archive.addfile(info, io.BytesIO(b"x" * 511 + b"\n"))
    whole, path = members.getvalue(), tmp_path / f"x.tar{extension}"
    for end in (1024, 2048):  # of the first and of the last member
        first, second = compress(whole[:end]), compress(whole[end:])
        path.write_bytes(first + second)
        assert sum(len(batch) for batch in read_dataset(get_layout("opus-moses"), str(path))) == 1
        path.write_bytes(first + bytes([second[0] ^ 1]) + second[1:])
        with pytest.raises(DataError, match=f"x.tar{extension}: truncated or not {extension}"):
            list(read_dataset(get_layout("opus-moses"), str(path)))


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_a_flipped_bit_of_an_archive_never_changes_rows(kind: str, tmp_path: Path) -> None:
    chance = random.Random(7)
    header = "id\tsentence1\tsentence2\tlabel\n"
    rows = [f"{number}\tOne {chance.random()}.\tTwo {chance.random()}.\t1\n" for number in range(300)]
    write_release(tmp_path / "release", {f"x-final/{lang}/test_2k.tsv": header + "".join(rows) for lang in ("de", "en")})
    formats = {"tar.gz": "gztar", "tar.bz2": "bztar", "tar.xz": "xztar", "zip": "zip"}
    intact = Path(shutil.make_archive(str(tmp_path / "intact"), formats[kind], tmp_path / "release"))
    data, path = intact.read_bytes(), tmp_path / f"x-final.{kind}"
    path.write_bytes(data)
    expected = read_rows("paws-x", path, ("de",), "test")
    assert len(expected[1]) == 300
    errors = []
    for _ in range(60):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            assert read_rows("paws-x", path, ("de",), "test") == expected
        except DataError as error:
            errors.append(str(error))
    assert len(errors) > 20
    assert all(error.startswith(str(path)) and "\n" not in error for error in errors)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_zips_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    twice, encrypted, method = (tmp_path / f"{name}.zip" for name in ("twice", "encrypted", "method"))
    for path in (twice, encrypted, method):
        with zipfile.ZipFile(path, "w") as archive:
            for _ in range(2 if path == twice else 1):
                archive.writestr("en-de.txt", "Yes.\tJa.\n")
    for path, local, central, value in ((encrypted, 6, 8, 1), (method, 8, 10, 97)):
        data = bytearray(path.read_bytes())
        data[local] = data[data.index(b"PK\x01\x02") + central] = value
        path.write_bytes(data)
    reasons = {twice: "2 files named en-de.txt", encrypted: "encrypted; unpack it", method: "compression method.* not supported; unpack it"}
    for path, reason in reasons.items():
        with pytest.raises(DataError, match=f"{path}: .*{reason}"):
            read_rows("paracrawl", path)


def test_a_file_with_many_unreadable_rows_is_refused(tmp_path: Path) -> None:
    lines = ["Yes.\tNo.\n"] * 180 + ["only one\n"] * 21
    write_release(tmp_path, {"en-de.txt": "".join(lines)})
    with pytest.raises(
        DataError, match=r"en-de\.txt: 21 of 201 rows cannot be read; expected 2 tab-separated cells; download the file again"
    ):
        read_rows("paracrawl", tmp_path)
    write_release(tmp_path, {"en-de.txt": "".join(lines[:-3])})
    assert len(read_rows("paracrawl", tmp_path)[1]) == 180


def test_truncated_compression_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "de.txt.bz2").write_bytes(bz2.compress(b"Ein Satz.\n" * 1000)[:-9])
    with pytest.raises(DataError, match=r"de\.txt\.bz2: truncated or not \.bz2 .* download it again"):
        read_rows("cc-100", tmp_path)


def test_language_and_split_come_from_the_path_of_one_file(tmp_path: Path) -> None:
    folder = write_release(tmp_path, PAWS)
    assert read_rows("paws-x", folder / "x-final" / "fr" / "dev_2k.tsv")[1] == [("fr dev.", "B.", "1", "fr", "1")]
    assert read_rows("paws-x", folder / "x-final" / "fr", split="test")[1] == [("fr test.", "B.", "1", "fr", "1")]


def test_all_splits_are_read_on_request_only(tmp_path: Path) -> None:
    folder = write_release(tmp_path, PAWS)
    rows = read_rows("paws-x", folder, ("fr", "eng"), "all")[1]
    assert [(row[0], row[3]) for row in rows] == [("en dev.", "en"), ("fr dev.", "fr"), ("en test.", "en"), ("fr test.", "fr")]
    with pytest.raises(DataError, match=r"paws-x has the splits dev, test here; choose one as split, or all"):
        read_rows("paws-x", folder)
    with pytest.raises(DataError, match=r"no split 'train' of paws-x here; the splits are dev, test"):
        read_rows("paws-x", folder, split="train")


def test_languages_that_are_missing_are_named(tmp_path: Path) -> None:
    folder = write_release(tmp_path, PAWS)
    with pytest.raises(DataError, match=r"no language 'ja'; there are de, en, fr"):
        read_rows("paws-x", folder, ("de", "ja"), "dev")
    with pytest.raises(ConfigError, match="unknown language code 'qqq1'"):
        read_rows("paws-x", folder, ("qqq1",), "dev")
    xnli = write_release(
        tmp_path / "xnli", {"xnli.dev.tsv": test_nli_layouts.XNLI_HEADER + test_nli_layouts.xnli("de", "neutral", "A", "B", "1")}
    )
    with pytest.raises(DataError, match=r"xnli\.dev\.tsv: no rows in 'fr'; of those requested there are de"):
        read_rows("xnli", xnli, ("de", "fr"))


def test_a_dataset_without_languages_takes_none(tmp_path: Path) -> None:
    folder = write_release(tmp_path, {"nli_merged_all.csv": "sent0,sent1,hard_neg\nA,B,C\n"})
    with pytest.raises(DataError, match="msimcse-nli does not say the language of its rows; leave the languages out"):
        read_rows("msimcse-nli", folder, ("de",))


def test_two_copies_of_a_file_are_refused(tmp_path: Path) -> None:
    folder = write_release(tmp_path, {"a/tatoeba.deu-eng.deu": "Ja.\n", "b/tatoeba.deu-eng.deu.gz": "Ja.\n"})
    with pytest.raises(DataError, match=r"a/tatoeba\.deu-eng\.deu and .*gz: two copies of one part; name the file or the folder of one"):
        read_rows("tatoeba", folder)


def test_files_that_are_not_unpacked_are_read_from_their_archive(tmp_path: Path) -> None:
    write_release(tmp_path, {"STS2017.gs/STS.gs.track5.en-en.txt": "5\n"})
    for name, member, text in (("eval", "input", "One.\tTwo.\n"), ("gs", "gs", "5\n")):
        with zipfile.ZipFile(tmp_path / f"Sts2017.{name}.zip", "w") as archive:
            archive.writestr(f"STS2017.{name}/STS.{member}.track5.en-en.txt", text)
    assert read_rows("sts17", tmp_path)[1] == [("One.", "Two.", "5", "en", "en", "track5.en-en")]


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/none: no such file or folder; name a file of the release, its archive, or the folder"):
        read_rows("snli", tmp_path / "none")


def test_a_pair_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = write_release(tmp_path, {"en-de.txt": "house haus\n", "en-fr.txt": "house maison\n"})
    assert read_rows("muse", folder, ("de", "en"))[1] == [("house", "haus", "en", "de")]
    with pytest.raises(DataError, match=r"no file for de and fr; there are en-de, en-fr"):
        read_rows("muse", folder, ("de", "fr"))


def test_rows_stream_in_batches(tmp_path: Path) -> None:
    rows = 2 * BATCH_ROWS + 5
    write_release(tmp_path, {"wiki1m_for_simcse.txt": "".join(f"Sentence {row}.\n" for row in range(rows))})
    batches = list(read_dataset(LAYOUTS["wiki1m"], str(tmp_path)))
    assert [len(batch) for batch in batches] == [BATCH_ROWS, BATCH_ROWS, 5]
    assert [text for batch in batches for text in batch.columns["text"]] == [f"Sentence {row}." for row in range(rows)]


def test_a_few_bad_rows_are_dropped_and_a_file_of_bad_rows_is_refused(tmp_path: Path) -> None:
    good, bad = "Yes.\tNo.\n", "only one\n"
    write_release(tmp_path / "few", {"en-de.txt": bad + good + bad})
    assert read_rows("paracrawl", tmp_path / "few")[1:] == ([("Yes.", "No.", "en", "de")], {"wrong number of cells": 2})
    write_release(tmp_path / "all", {"en-de.txt": "\n" + bad + bad})
    with pytest.raises(DataError, match=r"en-de\.txt:2: expected 2 tab-separated cells, found 1 cell"):
        read_rows("paracrawl", tmp_path / "all")


def test_an_unknown_dataset_lists_the_names() -> None:
    with pytest.raises(ConfigError, match=r"unknown dataset 'xnli2'; one of bucc, .*, xtreme-xnli-translate-train"):
        get_layout("xnli2")


@pytest.mark.parametrize(
    ("tokens", "lang", "text"),
    [
        ('He said : " don &apos;t go ! " ( twice ) .', "en", 'He said: "don\'t go!" (twice).'),
        ("It &apos;s 5 % of $ 3 , isn &apos;t it ?", "en", "It's 5% of $3, isn't it?"),
        ("A well @-@ known &lt; tag &gt; &amp; more", "en", "A well-known < tag > & more"),
        ("Oui , dit @-@ il : « oui » !", "fr", "Oui, dit-il : « oui » !"),
        ("L&apos; homme , qu&apos; il voit .", "fr", "L'homme, qu'il voit."),
        ("¿ Qué pasa ? ¡ Nada !", "es", "¿Qué pasa? ¡Nada!"),
        ("他 说 ： “ 你好 ” ， 2018 年 。", "zh", "他说：“你好”，2018年。"),
        ("ما هذا ؟ نعم ، هذا .", "ar", "ما هذا؟ نعم، هذا."),
        ("यह ठीक है ।", "hi", "यह ठीक है।"),
        ("Plain text.", "de", "Plain text."),
        ("", "de", ""),
    ],
)
def test_detokenise(tokens: str, lang: str, text: str) -> None:
    assert detokenise(tokens, lang) == text
