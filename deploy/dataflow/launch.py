"""The Flex Template: a Dataflow job that drives `miner run`.

A template is one job, and a run is many, a job for each stage, each begun when another is done. So this job has one element, the
config, and its one worker does as `miner run CONFIG --profile PROFILE` does: it hands every stage to the runner that the profile
names, which may be Dataflow again, and without a profile it does them all itself. Where that worker dies, Dataflow gives the config to
another one, and the run goes on where it stopped.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


class Drive(beam.DoFn):
    """The URI of a config -> its run."""

    def __init__(self, profile: str | None, strict: bool) -> None:
        self.profile = profile
        self.strict = strict

    def process(self, config: str) -> None:
        from miner.config.base import load_yaml
        from miner.config.runs import RunConfig
        from pipelines.runs import run

        settings = load_yaml(RunConfig, config, ["strict=true"] if self.strict else [])
        result = run.run(settings, settings.runner.options(self.profile))
        for place, reason in result.set_aside.items():
            logging.warning("set aside: %s: %s", place, reason)
        pairs = sum(pair["pairs"] for pair in result.pairs.values())
        logging.info("%d pairs of %d pairs of corpora, in %s", pairs, len(result.pairs), result.output)


def main(arguments: Sequence[str]) -> None:
    """Launch the job; a template's launcher must not wait for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="URI of a config of `miner run`")
    parser.add_argument("--profile", help="of its runner section: where the stages run; without it, as the config says")
    parser.add_argument("--strict", choices=["true", "false"], default="false", help="stop where something would be set aside")
    ours, beams = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(beams))
    step = beam.ParDo(Drive(ours.profile or None, ours.strict == "true"))
    _ = pipeline | "Config" >> beam.Create([ours.config], reshuffle=False).with_output_types(str) | "Drive" >> step
    pipeline.run()


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    main(sys.argv[1:])
