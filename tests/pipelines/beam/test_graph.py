"""The graphs of real stages, as Dataflow, Flink and Spark would be given them: built and looked at, without a cluster."""

import pickle
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import create_runner
from command import miner

from pipelines.beam import runner

PAR_DO = common_urns.primitives.PAR_DO.urn
ACCELERATOR = "type:nvidia-l4;count:1;install-nvidia-driver"
HINTS = [f"--resource_hint=accelerator={ACCELERATOR}", "--resource_hint=min_ram=4GB"]
ENGINES = {
    "DataflowRunner": [
        "--project=some-project", "--region=europe-west4", "--temp_location=gs://bucket/tmp", "--staging_location=gs://bucket/staging",
        "--job_name=mine", "--sdk_container_image=registry.example/miner:latest", "--experiments=use_runner_v2",
    ],
    "FlinkRunner": ["--flink_master=localhost:8081", "--environment_type=DOCKER", "--environment_config=registry.example/miner:latest"],
    "SparkRunner": ["--spark_master_url=spark://localhost:7077", "--environment_type=LOOPBACK"],
}  # fmt: skip


@pytest.fixture(scope="module")
def stages(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[str], object]]:
    """Kind of stage -> its shards and what makes them, of `miner mine` from text, as it ran here."""
    folder = tmp_path_factory.mktemp("graph")
    (folder / "en.txt").write_text("one two\nthree four five\nsix\n")
    (folder / "fr.txt").write_text("un deux\ntrois quatre cinq\nsept\n")
    seen: dict[str, tuple[list[str], object]] = {}
    build = runner.build

    def watched(names, make, options):
        seen[make.stage.stage] = (list(names), make)
        return build(names, make, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "build", watched)
        options = ("--output", folder / "out", "--encoder", toy_encoder, "--shards", 2, "--engine", "exact")
        result = miner("mine", folder / "en.txt", folder / "fr.txt", *options)
        assert result.exit_code == 0, result.output
    assert set(seen) == {"ranges", "sentences", "embeddings", "search", "neighbours", "candidates"}
    return seen


def graph(stage: tuple[list[str], object], engine: str) -> tuple[beam_runner_api_pb2.Pipeline, PipelineOptions]:
    options = runner._parse([f"--runner={engine}", *ENGINES[engine], *HINTS])
    return runner.build(*stage, options).to_runner_api(), options


@pytest.mark.parametrize("engine", ENGINES)
def test_options_are_valid_and_the_graph_is_whole(engine: str, stages: dict[str, tuple[list[str], object]]) -> None:
    for stage in stages.values():
        proto, options = graph(stage, engine)
        assert PipelineOptionsValidator(options, create_runner(engine)).validate() == []
        again = beam.Pipeline.from_runner_api(proto, create_runner(engine), options).to_runner_api()
        assert sorted(each.unique_name for each in again.components.transforms.values()) == sorted(
            each.unique_name for each in proto.components.transforms.values()
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_accelerators_are_asked_for_where_vectors_are_made_and_compared(engine: str, stages: dict[str, tuple[list[str], object]]) -> None:
    for kind, stage in stages.items():
        components = graph(stage, engine)[0].components
        hints = {
            each.unique_name: dict(components.environments[each.environment_id].resource_hints)
            for each in components.transforms.values()
            if each.environment_id
        }
        accelerated = {name for name, told in hints.items() if told.get("beam:resources:accelerator:v1") == ACCELERATOR.encode()}
        assert accelerated == ({"Make"} if kind in ("embeddings", "search") else set())
        assert {told["beam:resources:min_ram_bytes:v1"] for told in hints.values()} == {b"4000000000"}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_step_gathers_more_than_names(engine: str, stages: dict[str, tuple[list[str], object]]) -> None:
    for names, make in stages.values():
        components = graph((names, make), engine)[0].components
        leaves = (each for each in components.transforms.values() if not each.subtransforms)
        steps = [each for each in leaves if set(each.inputs.values()) != set(each.outputs.values())]  # others pass on what they get
        grouping = [each.unique_name for each in steps if each.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn]
        assert len(grouping) == (len(names) > 1)  # one name need not be spread
        assert all("/Reshuffle/" in name for name in grouping)
        work = [beam_runner_api_pb2.ParDoPayload.FromString(each.spec.payload) for each in steps if each.spec.urn == PAR_DO]
        assert not any(payload.side_inputs for payload in work)
        assert {each.spec.urn for each in steps} <= {PAR_DO, common_urns.primitives.GROUP_BY_KEY.urn, common_urns.primitives.IMPULSE.urn}
        assert len(pickle.dumps(make)) < 20_000 + 1_000 * len(names)  # names and settings, no lambda, no model, no array
        assert all(isinstance(name, str) for name in names)
