"""What deploy/ names exists: files, versions, extras, Beam's options, and every command with its options."""

import argparse
import ast
import configparser
import contextlib
import gzip
import itertools
import json
import logging
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.dask.dask_runner import DaskOptions
from command import error_of
from distributed.cli.dask_scheduler import main as dask_scheduler
from distributed.cli.dask_worker import main as dask_worker
from documents import parse_command
from scripts import load_script

from miner.config import recipes
from miner.config.base import load_yaml
from miner.config.runs import RunConfig
from pipelines.beam.options import WorkerOptions

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BEAM = re.search(r"^apache-beam==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
DASK = {"scheduler": dask_scheduler, "worker": dask_worker}


def text(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def compose(name: str) -> dict[str, Any]:
    return yaml.safe_load(text(f"{name}/docker-compose.yaml"))["services"]


def dag_commands() -> list[str]:
    """The strings of Airflow's operators, with the constants of the module filled in."""
    tree = ast.parse(text("schedule/miner_nightly.py"))
    names = {node.targets[0].id: node.value.value for node in tree.body if isinstance(node, ast.Assign)}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    values = [keyword.value for call in calls for keyword in call.keywords if keyword.arg == "bash_command"]
    return [eval(compile(ast.Expression(value), "dag", "eval"), {}, names) for value in values]


def commands() -> Iterator[list[str]]:
    """Every `miner` and `dask` command of deploy/."""
    for block in re.findall(r"^```bash\n(.*?)^```", text("README.md"), flags=re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["docker"]:
                words = ["miner", *words[words.index("driver") + 1 :]] if "driver" in words else []
            yield words
    yield shlex.split(configparser_of("schedule/miner.service")["Service"]["ExecStart"])
    (line,) = (line for line in text("schedule/miner.cron").splitlines() if " miner miner " in line)
    yield shlex.split(line.partition(" miner ")[2])
    yield from (shlex.split(command.replace("{{ ds }}", "DATE")) for command in dag_commands())
    yield from (service["entrypoint"] for service in compose("dask").values())


def configparser_of(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(text(name))
    return parser


def test_every_command_has_the_options_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipes, "config_path", lambda path: path)  # as if the configs existed
    seen = []
    for words in commands():
        program = Path(words[0]).name if words else ""
        if program not in ("miner", "dask"):
            continue
        ours = words[1 : words.index("--")] if "--" in words else words[1:]
        if not ours or ours == ["--help"]:
            continue
        if program == "dask":
            known = {name for parameter in DASK[ours[0]].params for name in (*parameter.opts, *parameter.secondary_opts)}
            assert {word for word in ours if word.startswith("--")} <= known, words
        else:
            parse_command(ours)
        beams = words[words.index("--") + 1 :] if "--" in words else []
        assert unknown(beams) == set()
        seen.append(f"{program} {ours[0]}")
    assert {"miner run", "miner verify", "dask scheduler", "dask worker"} <= set(seen)
    assert seen.count("miner run") >= 7


def unknown(options: list[str]) -> set[str]:
    """Of Beam's options, those that it does not know."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for group in (PipelineOptions, DaskOptions, WorkerOptions, *PipelineOptions.__subclasses__()):
        with contextlib.suppress(argparse.ArgumentError):  # groups that are listed twice
            group._add_argparse_args(parser)
    return set(parser.parse_known_args(options)[1])


def test_the_config_of_the_night_is_one_and_its_profiles_are_beams() -> None:
    config = load_yaml(RunConfig, str(DEPLOY / "schedule/nightly.yaml"))
    assert set(config.named_pairs()) == {"en-de", "en-fr"}
    output_of = text("README.md")
    for name in config.runner.profiles:
        assert unknown(list(config.runner.options(name))) == set(), name
        assert name == "processes" or f"--profile {name}" in output_of
    constants = ast.parse(text("schedule/miner_nightly.py")).body
    named = {node.targets[0].id: node.value.value for node in constants if isinstance(node, ast.Assign)}
    assert named["OUTPUT"] == config.output
    paths = {named["CONFIG"], *re.findall(r"miner run (\S+)", text("schedule/miner.service") + text("schedule/miner.cron"))}
    assert paths == {"/etc/miner/nightly.yaml"}
    assert paths <= set(output_of.split())


@pytest.mark.parametrize("name", ["Dockerfile", "dataflow/Dockerfile", "miner/Dockerfile", "spark/Dockerfile"])
def test_images_are_made_of_what_is_there(name: str) -> None:
    lines = text(name).replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert {step for step, _ in steps} <= {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "ENTRYPOINT"}
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    stages = {rest.rpartition(" AS ")[2] for step, rest in steps if step == "FROM"}
    for step, rest in steps:
        words = rest.split()
        if step == "COPY" and not words[0].startswith("--from="):
            for source in words[:-1]:
                assert (ROOT / source).exists(), source
                assert f"!{source.split('/')[0]}" in sent, source
        elif step == "COPY":
            assert words[0].removeprefix("--from=") in stages
    assert steps[-1][0] == "ENTRYPOINT"
    assert json.loads(steps[-1][1]) in (
        ["miner"],
        ["/opt/apache/beam/boot"],
        ["/opt/google/dataflow/python_template_launcher"],
        ["/opt/spark/bin/spark-class"],
    )


def test_the_image_with_an_encoder_extends_the_worker_image_by_one_layer() -> None:
    lines = [line for line in text("encoder/Dockerfile").splitlines() if line and not line.startswith("#")]
    assert [line.split()[0] for line in lines] == ["ARG", "FROM", "ARG", "RUN"]  # with the entry point of the worker image
    assert lines[1] == "FROM ${WORKER}"
    words = shlex.split(lines[-1])
    assert words[:4] == ["RUN", "miner", "fetch", "$ENCODER"]
    parse_command(words[2:])
    assert f"--encoder {words[-1]}" in text("encoder/Dockerfile")
    assert f"--encoder {words[-1]}" in text("README.md")


def test_the_worker_image_has_the_versions_and_extras_of_the_project() -> None:
    output_of = text("Dockerfile")
    assert f"ARG BEAM={BEAM}\n" in output_of
    assert f"_job_server:{BEAM}\n" in text("flink/docker-compose.yaml")
    (extras,) = re.findall(r"\.\[(.+?)\]", output_of)
    for kind in ("cpu", "gpu"):
        assert set(extras.replace("${TORCH}", ",transformers,train").replace("${KIND}", kind).split(",")) <= set(
            PROJECT["optional-dependencies"]
        )
    python = re.search(r"^FROM python:(\d\.\d+)-", output_of, re.MULTILINE)[1]
    assert f"apache/beam_python{python}_sdk" in output_of
    assert f"python{python.replace('.', '')}-template-launcher-base" in text("dataflow/Dockerfile")
    assert python >= PROJECT["requires-python"].removeprefix(">=")
    assert "miner" in PROJECT["scripts"]


def test_pip_extras_that_are_named_exist() -> None:
    documents = [*DEPLOY.rglob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    for extras in itertools.chain.from_iterable(re.findall(r"bitext-miner\[(.+?)\]", path.read_text()) for path in documents):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_compose_files_hold_together() -> None:
    flink, dask, spark = compose("flink"), compose("dask"), compose("spark")
    for services in (flink, dask, spark):
        for service in services.values():
            assert set(service.get("depends_on", [])) <= set(services)
    profiles = load_yaml(RunConfig, str(DEPLOY / "schedule/nightly.yaml")).runner.profiles
    assert profiles["flink"]["job_endpoint"].partition(":")[0] in flink
    assert flink["workers"]["network_mode"] == "service:taskmanager"  # so that localhost:50000 is the pool
    assert profiles["dask"]["dask_client_address"] == dask["workers"]["entrypoint"][2]
    version = flink["jobmanager"]["image"].partition(":")[2]
    assert flink["jobserver"]["image"] == f"apache/beam_flink{version}_job_server:{BEAM}"
    assert flink["taskmanager"]["image"] == flink["jobmanager"]["image"]
    assert profiles["spark"]["job_endpoint"].partition(":")[0] in spark
    assert spark["jobserver"]["image"].endswith(f":{BEAM}")
    assert spark["worker"]["command"].split()[-1] in spark["jobserver"]["command"]
    version = re.search(r"^ARG SPARK=(.+)$", text("spark/Dockerfile"), re.MULTILINE)[1]
    assert version == load_script("clusters", DEPLOY / "clusters").SOURCE_PACKAGES["spark"][1]


def test_no_cluster_is_open_to_the_network() -> None:
    published = [port for name in ("flink", "spark", "dask") for service in compose(name).values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)
    scheduler, workers = (compose("dask")[name] for name in ("scheduler", "workers"))
    assert scheduler["entrypoint"][2:4] == ["--protocol", "tls"]
    assert workers["entrypoint"][2].startswith("tls://")
    for service in (scheduler, workers):
        assert service["environment"]["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"


def test_flink_has_one_version_and_a_stated_parallelism_everywhere() -> None:
    version = compose("flink")["jobmanager"]["image"].partition(":")[2]
    documents = [DEPLOY / "README.md", *(ROOT / "docs").glob("*.md")]
    snippets = re.findall(r"--runner=FlinkRunner(?:[^`\n]|\n  ?--|\\\n)*", "".join(path.read_text(encoding="utf-8") for path in documents))
    assert len(snippets) >= 2
    for snippet in snippets:
        assert f"--flink_version={version} " in snippet
        assert re.search(r"--parallelism=\d+", snippet)
        assert "--environment_config=REGISTRY/miner:" in snippet
    slots = re.search(r"numberOfTaskSlots: (\d+)", compose("flink")["taskmanager"]["environment"]["FLINK_PROPERTIES"])[1]
    profile = load_yaml(RunConfig, str(DEPLOY / "schedule/nightly.yaml")).runner.profiles["flink"]
    assert profile["parallelism"] == int(slots)


def test_dataflow_asks_for_a_gpu_only_where_one_helps_and_limits_its_workers() -> None:
    profiles = load_yaml(RunConfig, str(DEPLOY / "schedule/nightly.yaml")).runner.profiles
    cpu, gpu = profiles["dataflow"], profiles["dataflow-gpu"]
    assert "resource_hint" not in cpu
    assert "machine_type:g2-standard-8" in gpu["resource_hint"][0]
    assert gpu["machine_type"] == cpu["machine_type"] == "n2-standard-8"  # of the other steps
    for profile in (cpu, gpu):
        assert profile["max_num_workers"] == profile["workers"]
        assert "no_use_multiple_sdk_containers" in profile["experiments"]


def test_kubernetes_runs_the_cluster_of_the_compose_file() -> None:
    documents = list(yaml.safe_load_all(text("kubernetes/dask.yaml")))
    named = {(document["kind"], document["metadata"]["name"]): document for document in documents}
    assert {kind for kind, _ in named} == {"Service", "Deployment", "ConfigMap", "Job"}
    assert named["ConfigMap", "miner-tls-settings"]["data"] == compose("dask")["scheduler"]["environment"]
    pods = {key: document["spec"]["template"] for key, document in named.items() if "template" in document.get("spec", {})}
    for (kind, name), pod in pods.items():
        (container,) = pod["spec"]["containers"]
        assert container["image"] == "REGISTRY/miner:cpu"
        assert container["envFrom"] == [{"configMapRef": {"name": "miner-tls-settings"}}]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["spec"]["volumes"]}
        if kind == "Deployment":
            assert named[kind, name]["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    scheduler, workers = (pods["Deployment", f"miner-{name}"]["spec"]["containers"][0]["command"] for name in ("scheduler", "workers"))
    assert scheduler == compose("dask")["scheduler"]["entrypoint"]
    assert workers[2] == compose("dask")["workers"]["entrypoint"][2]
    assert named["Service", "scheduler"]["spec"]["selector"] == pods["Deployment", "miner-scheduler"]["metadata"]["labels"]


def test_units_of_systemd_name_each_other() -> None:
    service, timer = configparser_of("schedule/miner.service"), configparser_of("schedule/miner.timer")
    assert service["Service"]["Type"] == "oneshot"
    assert "Unit" not in timer["Timer"]  # so it starts the service of its own name
    assert (DEPLOY / "schedule/miner.service").exists()
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_the_dag_keeps_runs_apart_and_in_order() -> None:
    tree = ast.parse(text("schedule/miner_nightly.py"))
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "DAG")
    output_of = {keyword.arg: keyword.value for keyword in call.keywords}
    assert (ast.literal_eval(output_of["max_active_runs"]), ast.literal_eval(output_of["catchup"])) == (1, False)
    assert ast.unparse(tree).endswith("plan >> mine >> verify")


class TestTemplate:
    """The Flex Template."""

    def test_its_parameters_are_those_of_the_launcher(self) -> None:
        output_of = json.loads(text("dataflow/metadata.json"))
        assert {"name", "description", "parameters"} <= set(output_of)
        options = set(re.findall(r'add_argument\("--(\w+)"', text("dataflow/launch.py")))
        assert {each["name"] for each in output_of["parameters"]} == options
        for each in output_of["parameters"]:
            assert {"name", "label", "helpText"} <= set(each)
            assert all(re.compile(pattern) for pattern in each.get("regexes", []))
        config = next(each for each in output_of["parameters"] if each["name"] == "config")
        assert re.fullmatch(config["regexes"][0], "gs://bucket/nightly.yaml")
        assert not config["isOptional"]
        assert "ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/launch.py" in text("dataflow/Dockerfile")

    def test_a_config_that_cannot_be_fetched_is_one_line(self) -> None:
        assert error_of("run", "nowhere://bucket/run.yaml").startswith("nowhere://bucket/run.yaml: Protocol not known")
        assert error_of("run", "memory://bucket/run.yaml") == "memory://bucket/run.yaml: no such file; check the name"

    def test_its_job_makes_the_run(self, toy_encoder: Path, tmp_path: Path) -> None:
        (tmp_path / "en.txt").write_text("one two\nthree\n")
        (tmp_path / "fr.txt").write_text("un deux\ntrois\n")
        corpora = {lang: str(tmp_path / f"{lang}.txt") for lang in ("en", "fr")}
        settings = {"output": str(tmp_path / "out"), "corpora": corpora, "encoder": str(toy_encoder), "engine": "exact", "threshold": 0.5}
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
        level = logging.getLogger().level
        launch = runpy.run_path(str(DEPLOY / "dataflow/launch.py"))["main"]
        launch([f"--config=file://{tmp_path}/run.yaml", "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner"])
        assert logging.getLogger().level == level
        pairs = gzip.decompress((tmp_path / "out/pairs/en-fr/bitext.tsv.gz").read_bytes()).decode().splitlines()
        assert {tuple(line.split("\t")[1:]) for line in pairs} == {("one two", "un deux"), ("three", "trois")}
