"""Configs that a person writes: hints for typing errors, lists of one, all defaults as YAML, recipes, and schemas for editors."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pydantic
import pytest
import yaml
from command import error_of, miner, output_of

from miner.config.base import OneOrMore, Settings, Strings, dump_yaml, json_schema, load_values, load_yaml
from miner.config.recipes import recipes
from miner.config.runs import RunConfig
from miner.errors import ConfigError
from miner.evaluation.suite import SuiteConfig
from miner.loop.settings import LoopConfig
from miner.research.reproduction.registry import PaperSettings
from miner.training.config import TrainConfig

ROOT = Path(__file__).parents[3]
MODELS: dict[str, type[Settings]] = {
    "train": TrainConfig,
    "loop": LoopConfig,
    "run": RunConfig,
    "eval suite": SuiteConfig,
    "reproduce": PaperSettings,
}
RECIPES = recipes()
EXAMPLE_RUN = {"output": "out", "corpora": {"en": "en.txt", "de": ["de.txt"], "fi": {"files": "fi.txt", "lang": "fin"}}}


class Part(Settings):
    """A group of settings."""

    words: Strings = pydantic.Field((), description="Words of the language.")


class Whole(Settings):
    """A config."""

    size: int = pydantic.Field(3, ge=1, description="Number of parts, without --by-name.")
    parts: Annotated[tuple[Part, ...], OneOrMore()] = ()
    by_name: Mapping[str, Strings] = {}
    stated: str = ""


def test_schemas_spell_settings_as_yaml() -> None:
    schema = json_schema(Whole)
    description = "Number of parts, without by_name."
    assert schema["properties"]["size"] == {"default": 3, "minimum": 1, "title": "Size", "type": "integer", "description": description}
    assert schema["$defs"]["Part"]["description"] == "A group of settings."
    assert schema["$defs"]["Part"]["properties"]["words"]["description"] == "Words of the language."


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sise": 1}, "unknown setting 'sise'; did you mean 'size'?"),
        ({"by-name": {}}, "unknown setting 'by-name'; did you mean 'by_name'?"),
        ({"zzz": 1}, "unknown setting 'zzz'; one of size, parts, by_name, stated"),
        ({"parts": [{}, {"word": "a"}]}, "unknown setting 'parts.1.word'; did you mean 'words'?"),
        ({"size": 0, "state": ""}, "unknown setting 'state'; did you mean 'stated'?"),
        ({"size": 0}, "size: expected at least 1, not 0"),
    ],
)
def test_an_unknown_setting_is_an_error_with_the_one_that_it_resembles(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Whole.check(**values)
    assert str(error.value) == message


def test_a_list_of_one_needs_no_list() -> None:
    written = Whole.check(parts={"words": "a"}, by_name={"x": "b"})
    assert written == Whole.check(parts=[{"words": ["a"]}], by_name={"x": ["b"]})
    assert Whole.check(parts=Part()).parts == (Part(),)
    validator = jsonschema.Draft202012Validator(json_schema(Whole))
    assert validator.is_valid({"parts": {"words": "a"}, "by_name": {"x": ["b"]}})
    assert not validator.is_valid({"parts": {"words": 1}})
    assert not validator.is_valid({"part": []})


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_fits_its_schema_and_is_the_same_with_all_defaults(name: str, tmp_path: Path) -> None:
    recipe = RECIPES[name]
    model = MODELS[recipe.command()]
    jsonschema.Draft202012Validator(json_schema(model)).validate(load_values(str(recipe.path)))
    settings = load_yaml(model, str(recipe.path))
    if recipe.command() in ("train", "loop", "run"):  # which have --print-config
        (tmp_path / "printed.yaml").write_text(dump_yaml(settings), encoding="utf-8")
        assert load_yaml(model, str(tmp_path / "printed.yaml")) == settings
    assert recipe.description()


@pytest.mark.parametrize("command", ["run", "train", "loop", "suite", "reproduce"])
def test_schemas_are_printed(command: str) -> None:
    schema = json.loads(output_of("config", "schema", command))
    jsonschema.Draft202012Validator.check_schema(schema)
    groups = [schema, *schema["$defs"].values()]
    settings = [setting for group in groups for setting in group.get("properties", {}).values()]
    assert sum("description" in setting for setting in settings) > len(settings) / 2


def test_the_schema_of_runs_accepts_what_the_command_accepts() -> None:
    validator = jsonschema.Draft202012Validator(json_schema(RunConfig))
    for changes, is_valid in [
        ({}, True),
        ({"pair_filters": {"hubs": True, "numbers": 0}}, True),
        ({"k": 0}, False),
        ({"corpora": {"en": {"file": "en.txt"}}}, False),
        ({"pair_filters": {"hub": True}}, False),
    ]:
        values = {**EXAMPLE_RUN, **changes}
        assert validator.is_valid(values) == is_valid, changes
        if is_valid:
            RunConfig.check(**values)
        else:
            with pytest.raises(ConfigError):
                RunConfig.check(**values)


def test_a_change_of_an_anchor_leaves_its_aliases_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("first: &part {steps: 1, rows: [1, 2]}\nsecond: *part\n")
    values = load_values(str(tmp_path / "config.yaml"), ["first.steps=5", "second.rows.0=7"])
    assert values == {"first": {"steps": 5, "rows": [1, 2]}, "second": {"steps": 1, "rows": [7, 2]}}


def test_configs_are_printed_with_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(EXAMPLE_RUN))
    printed = yaml.safe_load(output_of("run", tmp_path / "run.yaml", "--print-config", "--set", "k=8"))
    assert (printed["k"], printed["engine"], printed["corpora"]["en"]["files"]) == (8, "auto", ["en.txt"])
    assert set(printed) == set(RunConfig.model_fields)
    assert yaml.safe_load(output_of("train", "mpcl/single", "--print-config"))["training"]["schedule"] == "linear"
    assert yaml.safe_load(output_of("loop", "loop-news", "--print-config"))["stop"]["patience"] == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "run.yaml"]


@pytest.mark.parametrize("command", ["train", "loop"])
def test_an_output_is_required_to_run(command: str) -> None:
    result = miner(command, ROOT / "configs" / ("builtin.yaml" if command == "train" else "loop-news.yaml"))
    assert result.exit_code == 2
    assert "--output: missing, and required" in result.stderr


def test_recipes_are_listed_and_shown() -> None:
    assert set(RECIPES) == {path.relative_to(ROOT / "configs").with_suffix("").as_posix() for path in (ROOT / "configs").rglob("*.yaml")}
    lines = output_of("config", "list").splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(RECIPES)
    assert next(line for line in lines if line.startswith("mined ")).split(maxsplit=2)[1:] == [
        "train",
        "Fine-tune a transformer on mined pairs, weighted by their margin",
    ]
    assert output_of("config", "show", "mpcl/labse") == (ROOT / "configs" / "mpcl" / "labse.yaml").read_text(encoding="utf-8")
    assert error_of("config", "show", "mpcl/lapse") == "unknown recipe 'mpcl/lapse'; did you mean mpcl/labse?"


def test_a_recipe_can_take_the_place_of_a_file_but_a_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "examples/en.txt" in output_of("run", "run", "--print-config")
    (tmp_path / "run").write_text(yaml.safe_dump(EXAMPLE_RUN))
    assert "- fi.txt" in output_of("run", "run", "--print-config")
    assert "no such file" in error_of("run", "no-recipe", "--print-config")
