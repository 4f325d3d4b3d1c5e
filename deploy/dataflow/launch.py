"""The Flex Template: a Dataflow job that drives `miner run`.

A template is one job, but a run is one job per stage. So this job has one element, the config, and its one worker does what `miner run
CONFIG --profile PROFILE` does: it submits every stage to the runner of the profile, which may be Dataflow, or runs the stages itself
without a profile. If the worker dies, Dataflow gives the config to another worker, and the run resumes where it stopped.
"""

import argparse
import logging
import sys
from collections.abc import Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions


class Drive(beam.DoFn):
    """Run `miner run` on the URI of a config."""

    def __init__(self, profile: str | None, strict: bool) -> None:
        self.profile = profile
        self.strict = strict

    def process(self, config: str) -> None:
        from miner.config.base import load_yaml
        from miner.config.runs import RunConfig
        from pipelines.runs import run

        settings = load_yaml(RunConfig, config, ["strict=true"] if self.strict else [])
        result = run.run(settings, settings.runner.options(self.profile))
        for path, reason in result.skipped.items():
            logging.warning("skipped: %s: %s", path, reason)
        pairs = sum(pair["pairs"] for pair in result.pairs.values())
        logging.info("%d pairs of %d pairs of corpora, in %s", pairs, len(result.pairs), result.output)


def main(arguments: Sequence[str]) -> None:
    """Launch the job without waiting for it, as a template must."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="URI of a config of `miner run`")
    parser.add_argument("--profile", help="profile of the config's runner section; by default, the one that the config uses")
    parser.add_argument("--strict", choices=["true", "false"], default="false", help="stop instead of skipping what fails")
    options, beam_options = parser.parse_known_args(arguments)
    pipeline = beam.Pipeline(options=PipelineOptions(beam_options))
    step = beam.ParDo(Drive(options.profile or None, options.strict == "true"))
    _ = pipeline | "Config" >> beam.Create([options.config], reshuffle=False).with_output_types(str) | "Drive" >> step
    pipeline.run()


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    main(sys.argv[1:])
