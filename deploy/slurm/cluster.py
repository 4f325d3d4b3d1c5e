"""Run `miner` on SLURM: the driver and a Dask scheduler in this process, the workers as jobs of the queue, by dask-jobqueue.

    sbatch --time=24:00:00 --mem=8G --wrap "python deploy/slurm/cluster.py --jobs 8 --section cpu -- run run.yaml"

The sections of cluster.yaml say what a job has. The driver connects to the workers by TLS, with keys of this run. The texts, the output and
the environment of Python must be on a disk that all nodes share.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import yaml
from dask_jobqueue import SLURMCluster
from dask_jobqueue.local import LocalCluster
from distributed.security import Security

SYSTEMS = {"slurm": SLURMCluster, "local": LocalCluster}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, help="number of jobs with workers (default: 4)")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("cluster.yaml"))
    parser.add_argument("--section", default="cpu", help="of the config: cpu, gpu or your own (default: cpu)")
    parser.add_argument("--system", choices=SYSTEMS, default="slurm", help="local starts the jobs on this machine, for a trial")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="of miner, with its options, but none of Beam")
    arguments = parser.parse_args()
    settings, security = yaml.safe_load(arguments.config.read_text())[arguments.section], Security.temporary()
    keys = Path.cwd() / f".miner-keys-{os.getpid()}"  # workers read them from the shared disk
    keys.mkdir(mode=0o700)
    try:
        with SYSTEMS[arguments.system](**settings, protocol="tls://", security=security, shared_temp_directory=str(keys)) as cluster:
            cluster.scale(jobs=arguments.jobs)
            beam = ["--runner=DaskRunner", f"--dask_client_address={cluster.scheduler_address}"]
            command = [sys.executable, "-m", "miner", *arguments.command, "--", *beam]
            return subprocess.call(command, env={**os.environ, **client_environment(security)})
    finally:
        for path in keys.iterdir():
            path.unlink()
        keys.rmdir()


def client_environment(security: Security) -> dict[str, str]:
    """Return the keys of a client as Dask reads them from the environment."""
    tls = security.get_tls_config_for_role("client")
    values = {"CA_FILE": tls["ca_file"], "CLIENT__CERT": tls["cert"], "CLIENT__KEY": tls["key"]}
    return {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True"} | {f"DASK_DISTRIBUTED__COMM__TLS__{k}": v for k, v in values.items()}


if __name__ == "__main__":
    sys.exit(main())
