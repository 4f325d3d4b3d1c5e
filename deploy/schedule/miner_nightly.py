"""An Airflow DAG: every night, new crawl files in, new pairs out. It goes into Airflow's folder of DAGs.

The workers of Airflow need the `miner` command, and the config where NIGHTLY says. A try that fails is followed by another, which goes
on where the first stopped, and tries again what that set aside (status 3).
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

CONFIG = "/etc/miner/nightly.yaml"
OUTPUT = "/data/mined"  # the `output` of CONFIG
SUMMARIES = "/data/summaries"

with DAG(
    "miner_nightly",
    description="Mine the pairs of new crawl files",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # one run takes all files that are there
    max_active_runs=1,  # and holds its folder
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10)},
    tags=["miner"],
) as dag:
    plan = BashOperator(task_id="plan", bash_command=f"miner run {CONFIG} --dry-run")
    mine = BashOperator(
        task_id="mine",
        bash_command=f"miner run {CONFIG} --log-format json --json {SUMMARIES}/{{{{ ds }}}}.json",
        execution_timeout=timedelta(hours=20),
    )
    verify = BashOperator(task_id="verify", bash_command=f"miner verify {OUTPUT}")
    plan >> mine >> verify
