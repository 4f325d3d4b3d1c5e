"""The graphs of real stages as Dataflow, Flink and Spark would receive them, built and checked without a cluster."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import object_servers
import pytest
import tiny
import torch
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import create_runner
from command import output_of
from object_servers import RequestLog

from miner.config.commands import EncoderSettings
from miner.errors import ConfigError
from miner.io.corpus import Corpus
from miner.search import faiss_index
from pipelines.beam import beam_job, workers
from pipelines.beam.options import parse_beam_options
from pipelines.beam.shuffle import StepOutput
from pipelines.beam.tasks import StageRun
from pipelines.corpus.embed import EmbedTask
from pipelines.mining.rescore import RescoredEdges, RescoredSide, RescoreTask

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


@pytest.fixture(scope="module", autouse=True)
def gcs() -> Iterator[None]:
    """The GCS that Dataflow's options ask about their bucket: without it, they would wait for a network."""
    server = object_servers.serve("gs", RequestLog())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", server.url)
        yield
    server.stop()


@pytest.fixture(scope="module")
def stages(toy_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StageRun]]:
    """Kind of stage -> the shards that its job writes, recorded from a run of `miner mine` on text."""
    folder = tmp_path_factory.mktemp("graph")
    (folder / "en.txt").write_text("one two\nthree four five\nsix\n")
    (folder / "fr.txt").write_text("un deux\ntrois quatre cinq\nsept\n")
    recorded: dict[str, list[StageRun]] = {}
    build_pipeline = beam_job.build_pipeline

    def record_job(missing, options):
        (kind,) = {shards.stage.stage for shards in missing}
        recorded[kind] = missing
        return build_pipeline(missing, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_job, "build_pipeline", record_job)
        options = ("--output", folder / "out", "--encoder", toy_encoder, "--shards", 2, "--engine", "exact")
        output_of("mine", folder / "en.txt", folder / "fr.txt", *options)
    assert set(recorded) == {"ranges", "sentences", "embeddings", "search", "neighbours", "candidates"}
    return recorded


def graph(stage: list[StageRun], engine: str) -> tuple[beam_runner_api_pb2.Pipeline, PipelineOptions]:
    options = parse_beam_options([f"--runner={engine}", *ENGINES[engine], *HINTS])
    return beam_job.build_pipeline(stage, options).to_runner_api(), options


@pytest.mark.parametrize("engine", ENGINES)
def test_options_are_valid_and_the_graph_round_trips(engine: str, stages: dict[str, list[StageRun]]) -> None:
    for stage in stages.values():
        proto, options = graph(stage, engine)
        assert PipelineOptionsValidator(options, create_runner(engine)).validate() == []
        round_trip = beam.Pipeline.from_runner_api(proto, create_runner(engine), options).to_runner_api()
        assert sorted(transform.unique_name for transform in round_trip.components.transforms.values()) == sorted(
            transform.unique_name for transform in proto.components.transforms.values()
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_only_steps_that_a_gpu_makes_faster_request_it(engine: str, stages: dict[str, list[StageRun]]) -> None:
    for kind, stage in stages.items():
        components = graph(stage, engine)[0].components
        hints = {
            transform.unique_name: dict(components.environments[transform.environment_id].resource_hints)
            for transform in components.transforms.values()
            if transform.environment_id
        }
        accelerated = {name for name, values in hints.items() if values.get("beam:resources:accelerator:v1") == ACCELERATOR.encode()}
        assert accelerated == ({"Make on accelerators"} if kind == "search" else set())  # the encoder is static, which no GPU makes faster
        assert {values["beam:resources:min_ram_bytes:v1"] for values in hints.values()} == {b"4000000000"}


def test_tasks_know_whether_a_gpu_makes_them_faster(toy_encoder: Path, tmp_path: Path) -> None:
    tiny.save_transformer(tmp_path / "model")
    transformer = EncoderSettings(encoder=str(tmp_path / "model"), pooling="mean")
    on_cpu, rounded = (transformer.model_copy(update=change) for change in ({"device": "cpu"}, {"dtype": "int8"}))
    encoders = (transformer, on_cpu, rounded, EncoderSettings(encoder=str(toy_encoder)))
    assert [EmbedTask("out", each, "", "und", ()).uses_accelerator for each in encoders] == [True, False, False, False]
    no_files, corpus = StepOutput("steps", (), 0, Counter()), Corpus("out", "eng", 8, "", None, None, (), {}, {}, None, {})
    sides = ([RescoredSide(corpus, {}, each, None)] * 2 for each in encoders)
    tasks = [RescoreTask("out", RescoredEdges(no_files, None), no_files, both, 4) for both in sides]
    assert [task.uses_accelerator for task in tasks] == [True, False, False, False]
    factories = {"Flat": True, "IVF64,SQfp16": True, "OPQ64,IVF64,PQ64": True, "HNSW32": False, "OPQ64,IVF64,PQ64x4fs": False}
    assert {factory: faiss_index.has_gpu_search(factory) for factory in factories} == factories


def test_the_options_describe_the_workers() -> None:
    on_dataflow = ["--runner=DataflowRunner", "--project=p", "--region=r"]
    assert workers.describe(["--direct_running_mode=multi_processing"]).is_here
    assert workers.describe([]).device_type("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert workers.describe(on_dataflow).device_type("auto") == "cpu"
    assert workers.describe([*on_dataflow, HINTS[0]]).device_type("auto") == "cuda"
    named = workers.describe([*on_dataflow, "--hardware=l4"])
    assert (named.device_type("auto"), named.device_type("cpu"), named.device_type("cuda"), named.cores) == ("cuda", "cpu", "cuda", 8)
    with pytest.raises(ConfigError, match="--hardware x9: no such machine"):
        workers.describe([*on_dataflow, "--hardware=x9"])


@pytest.mark.parametrize("engine", [*ENGINES, "PortableRunner", "DaskRunner", None])
def test_unknown_options_are_errors(engine: str | None) -> None:
    address = ["--dask_client_address=tcp://a:1"] if engine == "DaskRunner" else []  # an option only where Dask is imported
    runner = [] if engine is None else [f"--runner={engine}", *address, *ENGINES.get(engine, [])]
    with pytest.raises(ConfigError, match=r"^--paralelism: Beam has no such option; did you mean --parallelism\?"):
        parse_beam_options([*runner, "--paralelism=4"])


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_exchange_only_shard_names(engine: str, stages: dict[str, list[StageRun]]) -> None:
    for stage in stages.values():
        components = graph(stage, engine)[0].components
        leaves = (transform for transform in components.transforms.values() if not transform.subtransforms)
        steps = [step for step in leaves if set(step.inputs.values()) != set(step.outputs.values())]  # drop identity steps
        grouping = [step.unique_name for step in steps if step.spec.urn == common_urns.primitives.GROUP_BY_KEY.urn]
        assert len(grouping) == (sum(len(shards.shard_keys) for shards in stage) > 1)  # Beam does not reshuffle a single element
        assert all("/Reshuffle/" in name for name in grouping)
        payloads = [beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload) for step in steps if step.spec.urn == PAR_DO]
        assert not any(payload.side_inputs for payload in payloads)
        assert {step.spec.urn for step in steps} <= {PAR_DO, common_urns.primitives.GROUP_BY_KEY.urn, common_urns.primitives.IMPULSE.urn}
        functions = [payload.do_fn.payload for payload in payloads]
        assert all(len(function) < 5_000 for function in functions)  # names of files: no task, model or array
