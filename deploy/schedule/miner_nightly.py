"""An Airflow DAG that mines new crawl files every night. Copy it into Airflow's DAGs directory.

Airflow's workers need the `miner` command and the file CONFIG. A failed task is retried; it resumes where it stopped, and tries again what
it skipped (status 3). A task that is stopped cancels its job on the cluster. The retry of a worker that was lost waits for the job it left.
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
    catchup=False,  # one run processes all files
    max_active_runs=1,  # a run locks its output
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
