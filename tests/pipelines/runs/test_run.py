"""`miner run`: each corpus is embedded once, outputs equal those of separate commands, and pairs share jobs."""

import gzip
import itertools
import json
import shutil
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from command import error_of, miner, output_of
from report_pages import Page

from miner.config.base import load_yaml
from miner.config.runs import RunConfig
from miner.errors import ConfigError
from miner.io import records

EXAMPLES = Path(__file__).parents[3] / "examples"
LANGUAGES = ("de", "en", "hi")
ROWS = 150
OUTPUTS = ("bitext.tsv.gz", "bitext.parquet", "manifest.json")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first lines of real corpora in three languages; most have no translation in the others."""
    folder = tmp_path_factory.mktemp("texts")
    for lang in LANGUAGES:
        lines = (EXAMPLES / f"{lang}.txt").read_text(encoding="utf-8").splitlines()[:ROWS]
        (folder / f"{lang}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def write_config(folder: Path, **settings: Any) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(settings, sort_keys=False))
    return path


@pytest.fixture(scope="module")
def output(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run of all pairs, of which two share jobs at a time."""
    folder = tmp_path_factory.mktemp("output")
    corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
    settings = {"pairs": "all", "shards": 2, "threshold": 1.05, "engine": "exact", "at_once": 2}
    config = write_config(folder, output=str(folder / "out"), corpora=corpora, **settings)
    output_of("run", config, "--json", folder / "first.json")
    return folder


def test_outputs_equal_those_of_separate_commands(output: Path, texts: Path, tmp_path: Path) -> None:
    for lang in LANGUAGES:
        output_of("embed", texts / f"{lang}.txt", "--lang", lang, "--output", tmp_path / lang, "--shards", 2)
    for source, target in itertools.combinations(LANGUAGES, 2):
        output_of(
            "mine",
            tmp_path / source,
            tmp_path / target,
            "--output",
            tmp_path / "pair",
            "--replace",
            "--threshold",
            1.05,
            "--engine",
            "exact",
        )
        for name in OUTPUTS:
            assert (output / "out/pairs" / f"{source}-{target}" / name).read_bytes() == (tmp_path / "pair" / name).read_bytes()
    assert sorted(path.name for path in (output / "out/pairs").iterdir() if path.is_dir()) == sorted(
        "-".join(pair) for pair in itertools.combinations(LANGUAGES, 2)
    )


def test_the_summary_lists_every_corpus_and_every_pair(output: Path) -> None:
    figures = json.loads((output / "first.json").read_text())
    assert figures.pop("written_by").startswith("miner ")
    assert figures == records.read(str(output / "out/run.json"), dict[str, Any])
    assert {name: corpus["unique"] for name, corpus in figures["corpora"].items()} == dict.fromkeys(LANGUAGES, ROWS)
    for name, pair in figures["pairs"].items():
        manifest = json.loads((output / "out/pairs" / name / "manifest.json").read_text())
        assert pair["pairs"] == manifest["shards"][0]["rows"] > 0
        assert not pair["reused"]


def test_the_report_of_a_run_lists_every_pair_and_leads_to_its_report(output: Path, tmp_path: Path) -> None:
    shutil.copytree(output / "out", tmp_path / "out")
    page = Page(Path(output_of("report", tmp_path / "out").strip()))
    figures = json.loads((output / "first.json").read_text())
    links = {value for _, name, value in page.attributes if name == "href" and not value.startswith("#")}
    assert links == {f"pairs/{name}/report.html" for name in figures["pairs"]}
    assert all((tmp_path / "out" / link).exists() for link in links)
    assert [text for text in page.texts["a"] if text in figures["pairs"]] == list(figures["pairs"])
    assert {f"{pair['pairs']:,}" for pair in figures["pairs"].values()} <= set(page.texts["td"])
    assert f"{sum(pair['pairs'] for pair in figures['pairs'].values()):,} pairs of 3 pairs of corpora" in page.texts["p"][0]


def modification_times(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("part-*")} | {
        str(path): path.stat().st_mtime_ns for path in folder.rglob("bitext*")
    }


class TestRerun:
    """Output that is up to date is kept."""

    def test_a_rerun_writes_nothing(self, output: Path) -> None:
        times = modification_times(output / "out")
        first = json.loads((output / "first.json").read_text())
        stdout = output_of("run", output / "run.yaml", "--json", output / "rerun.json")
        assert stdout.count("kept") == len(LANGUAGES) + 3
        assert modification_times(output / "out") == times
        rerun = json.loads((output / "rerun.json").read_text())
        assert {name: pair["pairs"] for name, pair in rerun["pairs"].items()} == {
            name: pair["pairs"] for name, pair in first["pairs"].items()
        }

    def test_a_dry_run_lists_the_steps_and_writes_nothing(self, output: Path, tmp_path: Path) -> None:
        times = modification_times(output / "out")
        lines = output_of("run", output / "run.yaml", "--dry-run").splitlines()
        assert lines[0] == f"done   embed de    1 file -> {output}/out/corpora/de"
        assert lines[3] == f"done   mine de-en  de and en -> {output}/out/pairs/de-en"
        assert lines[-1] == "0 of 6 stages to do, on this machine"
        assert modification_times(output / "out") == times
        new_output = output_of("run", output / "run.yaml", "--dry-run", "--set", f"output={tmp_path / 'new'}")
        assert new_output.splitlines()[-1] == "6 of 6 stages to do, on this machine"
        assert not (tmp_path / "new").exists()
        assert (
            output_of("run", output / "run.yaml", "--dry-run", "--set", "margin=distance")
            .splitlines()[-1]
            .startswith("3 of 6 stages to do")
        )

    def test_a_damaged_pair_is_mined_again(self, output: Path) -> None:
        path = output / "out/pairs/de-en/bitext.tsv.gz"
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        assert output_of("run", output / "run.yaml").count("kept") == len(LANGUAGES) + 2
        assert path.read_bytes() == content

    @pytest.mark.slow
    def test_only_pairs_of_a_grown_corpus_are_mined_again(self, output: Path, texts: Path, tmp_path: Path) -> None:
        (tmp_path / "hi.txt").write_text((texts / "hi.txt").read_text(encoding="utf-8"), encoding="utf-8")
        corpora = {lang: str(output / "out/corpora" / lang) for lang in ("de", "en")} | {"hi": str(tmp_path / "hi*.txt")}
        config = write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, pairs={"pivot": "en"}, engine="exact")
        output_of("run", config)
        (tmp_path / "hi.more.txt").write_text("नई पंक्ति यहाँ है\n", encoding="utf-8")
        output_of("run", config, "--json", tmp_path / "rerun.json")
        rerun = json.loads((tmp_path / "rerun.json").read_text())
        assert {name for name, corpus in rerun["corpora"].items() if not corpus["reused"]} == {"hi"}
        assert {name for name, pair in rerun["pairs"].items() if not pair["reused"]} == {"en-hi"}


@pytest.mark.slow
def test_corpora_can_be_embeddings_directories_and_are_indexed_once(output: Path, tmp_path: Path) -> None:
    corpora = {lang: str(output / "out/corpora" / lang) for lang in LANGUAGES}
    config = write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, pairs={"pivot": "en"}, engine="faiss", threshold=1.05)
    output_of("run", config)
    assert sorted(path.name for path in (tmp_path / "out/indexes").iterdir()) == ["de", "en", "hi"]
    assert not (tmp_path / "out/corpora").exists()
    assert not list((tmp_path / "out/pairs").rglob("indexes"))
    sides = [output / "out/corpora" / lang for lang in ("en", "de")]
    output_of("mine", *sides, "--engine", "faiss", "--output", tmp_path / "one", "--threshold", 1.05)
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
def test_pairs_are_a_list_or_all_or_around_a_pivot(pairs: Any, expected: list[str]) -> None:
    assert list(RunConfig.check(output="out", corpora=CORPORA, pairs=pairs).named_pairs()) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pairs": ["en-fr"]}, "pairs: 'en-fr' does not name two of the corpora en, de, zh-TW"),
        ({"pairs": [["en", "fr"]]}, "pairs: there is no corpus 'fr'"),
        ({"pairs": {"pivot": "fr"}}, "pairs: there is no corpus 'fr'"),
        ({"pairs": ["en-en"]}, "pairs: en with itself"),
        ({"pairs": ["en-de", "de-en"]}, "de-en repeats en-de in the other direction"),
        ({"pairs": ["en-de", "en-de"]}, "two pairs are called en-de"),
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
        ({"pooling": "max"}, "pooling max: "),
    ],
)
def test_invalid_configs_are_one_line_and_leave_no_output(
    settings: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("en", "de", "zh"):
        (tmp_path / f"{name}.txt").write_text("One sentence.\n")
    config = write_config(tmp_path, **{"output": "out", "corpora": CORPORA, **settings})
    assert message in error_of("run", config)
    assert message in error_of("run", config, "--dry-run")
    assert not (tmp_path / "out").exists()


def test_embeddings_of_another_encoder_are_refused_before_embedding(output: Path, texts: Path, toy_encoder: Path, tmp_path: Path) -> None:
    corpora = {"de": str(output / "out/corpora/de"), "en": str(texts / "en.txt")}
    config = write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, encoder=str(toy_encoder))
    assert "was embedded by" in error_of("run", config)
    assert not (tmp_path / "out").exists()


class TestProfiles:
    """Beam's options come from a profile of the config, and from after `--`."""

    RUNNER: ClassVar = {
        "use": "two",
        "profiles": {"two": {"direct_num_workers": 2, "flag": True, "off": False, "many": ["a", "b"]}, "none": {}},
    }

    def test_the_default_profile_and_a_named_profile(self, texts: Path, tmp_path: Path) -> None:
        corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
        config = write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, runner=self.RUNNER)
        assert output_of("run", config, "--dry-run").endswith("to do, --direct_num_workers=2 --flag --many=a --many=b\n")
        assert output_of("run", config, "--dry-run", "--profile", "none", "--", "--more").endswith("to do, --more\n")
        assert "--profile far: no such profile; one of two, none" in error_of("run", config, "--profile", "far")


def test_the_example_config_plans_all_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES.parent)
    lines = output_of("run", "configs/run.yaml", "--dry-run", "--set", f"output={tmp_path / 'out'}", "--profile", "processes").splitlines()
    assert lines[-1] == "10 of 10 stages to do, --direct_running_mode=multi_processing --direct_num_workers=2"


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    config = write_config(tmp_path, output="out", corpora=CORPORA, pair="all")
    with pytest.raises(ConfigError, match="unknown setting 'pair'"):
        load_yaml(RunConfig, str(config))


@pytest.mark.slow
def test_the_default_threshold_of_another_encoder_is_one_warning_for_all_pairs(texts: Path, toy_encoder: Path, tmp_path: Path) -> None:
    corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
    config = write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, encoder=str(toy_encoder))
    assert miner("run", config, "--dry-run").stderr.count("default threshold") == 1
    assert miner("run", config).stderr.count("default threshold") == 1
    assert "default threshold" not in miner("run", config, "--dry-run", "--set", "threshold=1.06").stderr


@pytest.mark.slow
def test_auto_chooses_the_threshold_of_each_pair_as_mine_does(tmp_path: Path) -> None:
    corpora = {lang: str(EXAMPLES / f"{lang}.txt") for lang in ("de", "en")}
    output_of("run", write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, threshold="auto", precision=0.9))
    sides = [tmp_path / "out/corpora" / lang for lang in corpora]
    output_of("mine", *sides, "--output", tmp_path / "pair", "--threshold", "auto", "--precision", 0.9)
    assert json.loads((tmp_path / "pair/manifest.json").read_text())["details"]["choice"]["min_precision"] == 0.9
    for name in OUTPUTS:
        assert (tmp_path / "out/pairs/de-en" / name).read_bytes() == (tmp_path / "pair" / name).read_bytes()
    output = output_of("run", tmp_path / "run.yaml", "--set", "precision=0.95", "--dry-run")
    assert "1 of 3 stages to do" in output


def test_auto_needs_probabilities(texts: Path, toy_encoder: Path, tmp_path: Path) -> None:
    corpora = {lang: str(texts / f"{lang}.txt") for lang in LANGUAGES}
    config = write_config(tmp_path, output=str(tmp_path / "out"), corpora=corpora, threshold="auto")
    for change, reason in (("margin=absolute", "margin ratio or distance"), (f"encoder={toy_encoder}", "the encoder has no probabilities")):
        message = error_of("run", config, "--set", change)
        assert "threshold: auto chooses by the probabilities of pairs" in message
        assert reason in message
    assert "threshold: expected a number or 'auto', not 'best'" in error_of("run", config, "--set", "threshold=best")
    assert not (tmp_path / "out").exists()


def test_the_summary_names_the_deltas_of_a_rerun(texts: Path, tmp_path: Path) -> None:
    english = (texts / "en.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    for name, lines in (("old", english[:100]), ("new", english[100:])):
        (tmp_path / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    settings = {"output": str(tmp_path / "out"), "threshold": 0.5}
    corpora = {"en": [str(tmp_path / "old.txt")], "de": [str(texts / "de.txt")]}
    assert "since the previous run" not in output_of("run", write_config(tmp_path, corpora=corpora, **settings))
    corpora["en"].append(str(tmp_path / "new.txt"))
    printed = output_of("run", write_config(tmp_path, corpora=corpora, **settings))
    file = tmp_path / "out/pairs/en-de/deltas/00001.tsv.gz"
    changes = [line.partition("\t")[0] for line in gzip.decompress(file.read_bytes()).decode().splitlines()]
    assert changes == sorted(changes, key=("added", "removed", "changed").index)
    counts = [changes.count(change) for change in ("added", "removed", "changed")]
    assert min(counts[0], counts[2]) > 0
    assert f"en-de: since the previous run: {counts[0]} added, {counts[1]} removed, {counts[2]} changed ({file})" in printed
