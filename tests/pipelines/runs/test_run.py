"""`miner run`: every corpus once, any pairs, the bytes of separate commands; and the order in which tasks are done."""

import itertools
import json
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from command import refused, told

from miner.config.base import load_yaml
from miner.config.runs import RunConfig
from miner.errors import ConfigError, DataError
from pipelines.runs import scheduler
from pipelines.runs.scheduler import ScheduledTask

EXAMPLES = Path(__file__).parents[3] / "examples"
LANGUAGES = ("de", "en", "hi")
ROWS = 150
OUTPUTS = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first lines of real corpora of three languages; most have no translation in the others."""
    folder = tmp_path_factory.mktemp("texts")
    for lang in LANGUAGES:
        lines = (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:ROWS]
        (folder / f"{lang}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def written(folder: Path, **settings: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def made(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of all pairs, two stages side by side."""
    folder = tmp_path_factory.mktemp("made")
    corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
    config = written(folder, output=str(folder / "out"), corpora=corpora, pairs="all", shards=2, threshold=1.05, engine="exact", at_once=2)
    told("run", config, "--json", folder / "first.json")
    return folder


def test_all_pairs_are_the_bytes_of_separate_commands(made: Path, texts: Path, tmp_path: Path) -> None:
    for lang in LANGUAGES:
        told("embed", texts / f"{lang}.txt", "--lang", lang, "--output", tmp_path / lang, "--shards", 2)
    for source, target in itertools.combinations(LANGUAGES, 2):
        told("mine", tmp_path / source, tmp_path / target, "--output", tmp_path / "pair", "--threshold", 1.05, "--engine", "exact")
        for name in OUTPUTS:
            assert (made / "out/pairs" / f"{source}-{target}" / name).read_bytes() == (tmp_path / "pair" / name).read_bytes()
    assert sorted(path.name for path in (made / "out/pairs").iterdir() if path.is_dir()) == sorted(
        "-".join(pair) for pair in itertools.combinations(LANGUAGES, 2)
    )


def test_the_summary_tells_of_every_corpus_and_every_pair(made: Path) -> None:
    figures = json.loads((made / "first.json").read_text())
    assert figures == json.loads((made / "out/run.json").read_text())
    assert {name: corpus["unique"] for name, corpus in figures["corpora"].items()} == dict.fromkeys(LANGUAGES, ROWS)
    for name, pair in figures["pairs"].items():
        manifest = json.loads((made / "out/pairs" / name / "manifest.json").read_text())
        assert pair["pairs"] == manifest["shards"][0]["rows"] > 0
        assert not pair["kept"]


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("part-*")} | {
        str(path): path.stat().st_mtime_ns for path in folder.rglob("bitext*")
    }


class TestAgain:
    """What is complete is kept."""

    def test_a_second_run_makes_nothing(self, made: Path) -> None:
        before = stamps(made / "out")
        first = json.loads((made / "first.json").read_text())
        out = told("run", made / "run.yaml", "--json", made / "again.json")
        assert out.count("kept") == len(LANGUAGES) + 3
        assert stamps(made / "out") == before
        again = json.loads((made / "again.json").read_text())
        assert {name: pair["pairs"] for name, pair in again["pairs"].items()} == {
            name: pair["pairs"] for name, pair in first["pairs"].items()
        }

    def test_a_dry_run_tells_what_is_done_and_writes_nothing(self, made: Path, tmp_path: Path) -> None:
        before = stamps(made / "out")
        lines = told("run", made / "run.yaml", "--dry-run").splitlines()
        assert lines[0] == f"done   embed de    1 files -> {made}/out/corpora/de"
        assert lines[3] == f"done   mine de-en  de and en -> {made}/out/pairs/de-en"
        assert lines[-1] == "0 of 6 stages to do, on this machine"
        assert stamps(made / "out") == before
        other = told("run", made / "run.yaml", "--dry-run", "--set", f"output={tmp_path / 'new'}")
        assert other.splitlines()[-1] == "6 of 6 stages to do, on this machine"
        assert not (tmp_path / "new").exists()
        assert told("run", made / "run.yaml", "--dry-run", "--set", "margin=distance").splitlines()[-1].startswith("3 of 6 stages to do")

    def test_a_pair_that_is_damaged_is_made_again(self, made: Path) -> None:
        path = made / "out/pairs/de-en/bitext.tsv.gz"
        before = path.read_bytes()
        path.write_bytes(before[:-1])
        assert told("run", made / "run.yaml").count("kept") == len(LANGUAGES) + 2
        assert path.read_bytes() == before

    def test_a_corpus_that_has_grown_is_mined_anew_and_no_other(self, made: Path, texts: Path, tmp_path: Path) -> None:
        (tmp_path / "hi.txt").write_text((texts / "hi.txt").read_text(encoding="utf-8"), encoding="utf-8")
        corpora = {lang: str(made / "out/corpora" / lang) for lang in ("de", "en")} | {"hi": str(tmp_path / "hi*.txt")}
        config = written(tmp_path, output=str(tmp_path / "out"), corpora=corpora, pairs={"pivot": "en"}, engine="exact")
        told("run", config)
        (tmp_path / "hi.more.txt").write_text("नई पंक्ति यहाँ है\n", encoding="utf-8")
        told("run", config, "--json", tmp_path / "again.json")
        again = json.loads((tmp_path / "again.json").read_text())
        assert {name for name, corpus in again["corpora"].items() if not corpus["kept"]} == {"hi"}
        assert {name for name, pair in again["pairs"].items() if not pair["kept"]} == {"en-hi"}


@pytest.mark.slow
def test_folders_stand_for_texts_and_an_index_is_built_once(made: Path, tmp_path: Path) -> None:
    corpora = {lang: str(made / "out/corpora" / lang) for lang in LANGUAGES}
    config = written(tmp_path, output=str(tmp_path / "out"), corpora=corpora, pairs={"pivot": "en"}, engine="faiss", threshold=1.05)
    told("run", config)
    assert sorted(path.name for path in (tmp_path / "out/indexes").iterdir()) == ["de", "en", "hi"]
    assert not (tmp_path / "out/corpora").exists()
    assert not list((tmp_path / "out/pairs").rglob("indexes"))
    sides = [made / "out/corpora" / lang for lang in ("en", "de")]
    told("mine", *sides, "--engine", "faiss", "--output", tmp_path / "one", "--threshold", 1.05)
    for name in OUTPUTS[:2]:
        assert (tmp_path / "out/pairs/en-de" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


CORPORA = {"en": "en.txt", "de": "de.txt", "zh-TW": "zh.txt"}


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ("all", ["en-de", "en-zh-TW", "de-zh-TW"]),
        ({"pivot": "de"}, ["de-en", "de-zh-TW"]),
        (["zh-TW-en", ["de", "en"]], ["zh-TW-en", "de-en"]),
    ],
)
def test_pairs_are_listed_all_or_around_a_pivot(pairs: Any, expected: list[str]) -> None:
    assert list(RunConfig.check(output="out", corpora=CORPORA, pairs=pairs).named_pairs()) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": ["en-fr"]}, "pairs: 'en-fr' does not name two of the corpora en, de, zh-TW"),
        ({"pairs": [["en", "fr"]]}, "pairs: no corpus is called 'fr'"),
        ({"pairs": {"pivot": "fr"}}, "pairs: no corpus is called 'fr'"),
        ({"pairs": ["en-en"]}, "pairs: en with itself"),
        ({"pairs": ["en-de", "de-en"]}, "de-en is en-de the other way round"),
        ({"pairs": ["en-de", "en-de"]}, "there are two called en-de"),
        ({"pairs": []}, "nothing to mine"),
        ({"pairs": "some"}, "expected all, a mapping"),
        ({"corpora": {"en": "en.txt"}}, "nothing to mine"),
        ({"corpora": {False: "no.txt", "en": "en.txt"}}, "put it in quotes"),
        ({"corpora": {"a/b": "x", "en": "en.txt"}}, "'a/b' cannot name a folder"),
        ({"corpora": {"xx-yy-zz": "en.txt", "en": "en.txt"}}, "unknown language code 'xx-yy-zz'"),
        ({"corpora": {"en": "-", "de": "de.txt"}}, "standard input cannot be read again"),
        ({"corpora": {"en": "missing.txt", "de": "de.txt"}}, "missing.txt: no such file"),
        ({"gold": "gold.tsv"}, "unknown setting 'gold'"),
        ({"runner": {"use": "far"}}, "runner: use names no profile"),
        ({"encoder": "./nowhere"}, "nowhere: no such encoder folder"),
    ],
)
def test_what_cannot_be_is_one_line_and_leaves_nothing(
    settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("en", "de", "zh"):
        (tmp_path / f"{name}.txt").write_text("One sentence.\n")
    config = written(tmp_path, **{"output": "out", "corpora": CORPORA, **settings})
    assert message in refused("run", config)
    assert message in refused("run", config, "--dry-run")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_another_encoder_is_refused_before_the_long_part(made: Path, texts: Path, toy_encoder: Path, tmp_path: Path) -> None:
    corpora = {"de": str(made / "out/corpora/de"), "en": str(texts / "en.txt")}
    config = written(tmp_path, output=str(tmp_path / "out"), corpora=corpora, encoder=str(toy_encoder))
    assert "was embedded by" in refused("run", config)
    assert not (tmp_path / "out").exists()


class TestProfiles:
    """Beam's options come from the config, by name, and after `--`."""

    RUNNER: ClassVar = {
        "use": "two",
        "profiles": {"two": {"direct_num_workers": 2, "flag": True, "off": False, "many": ["a", "b"]}, "none": {}},
    }

    def test_the_one_in_use_and_the_one_asked_for(self, texts: Path, tmp_path: Path) -> None:
        corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
        config = written(tmp_path, output=str(tmp_path / "out"), corpora=corpora, runner=self.RUNNER)
        assert told("run", config, "--dry-run").endswith("to do, --direct_num_workers=2 --flag --many=a --many=b\n")
        assert told("run", config, "--dry-run", "--profile", "none", "--", "--more").endswith("to do, --more\n")
        assert "--profile far: no such profile; one of two, none" in refused("run", config, "--profile", "far")

    def test_processes_of_this_machine_take_one_stage_at_a_time(self, texts: Path, tmp_path: Path) -> None:
        corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
        config = written(tmp_path, output=str(tmp_path / "out"), corpora=corpora, at_once=2)
        assert "one stage at a time" in refused("run", config, "--", "--direct_running_mode=multi_processing")


class TestSchedule:
    """Tasks are begun as soon as what they need is done."""

    def test_one_at_a_time_in_order_of_what_is_ready(self) -> None:
        done: list[str] = []
        names = {"ab": ("a", "b"), "ac": ("a", "c"), "a": (), "b": (), "c": ()}
        scheduler.run([ScheduledTask(name, lambda name=name: done.append(name), needs) for name, needs in names.items()])
        assert done == ["a", "b", "ab", "c", "ac"]

    def test_side_by_side_no_more_than_asked_and_none_before_what_it_needs(self) -> None:
        lock, running, most, done = threading.Lock(), set(), [], []

        def act(name: str, needs: tuple[str, ...]) -> None:
            with lock:
                assert set(needs) <= set(done)
                running.add(name)
                most.append(len(running))
            time.sleep(0.02)
            with lock:
                running.remove(name)
                done.append(name)

        names = {"ab": ("a", "b"), "ac": ("a", "c"), "bc": ("b", "c"), "a": (), "b": (), "c": ()}
        scheduler.run([ScheduledTask(name, lambda name=name, needs=needs: act(name, needs), needs) for name, needs in names.items()], 2)
        assert sorted(done) == sorted(names)
        assert max(most) == 2

    @pytest.mark.parametrize("at_once", [1, 3])
    def test_nothing_is_begun_after_an_error(self, at_once: int) -> None:
        done: list[str] = []

        def fail() -> None:
            raise DataError("broken")

        with pytest.raises(DataError, match="broken"):
            scheduler.run([ScheduledTask("a", fail), ScheduledTask("b", lambda: done.append("b"), ("a",))], at_once)
        assert done == []


def test_the_recipe_plans_all_pairs_of_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    lines = told("run", "configs/run.yaml", "--dry-run", "--set", f"output={tmp_path / 'out'}", "--profile", "processes").splitlines()
    assert lines[-1] == "10 of 10 stages to do, --direct_running_mode=multi_processing --direct_num_workers=2"


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    config = written(tmp_path, output="out", corpora=CORPORA, pair="all")
    with pytest.raises(ConfigError, match="unknown setting 'pair'"):
        load_yaml(RunConfig, str(config))
