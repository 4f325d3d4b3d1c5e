"""What a table needs, and what would be run, as figures and as text. Reads configs only, so it is fast."""

from collections.abc import Mapping
from typing import Any

from miner.research.reproduction.plan import (
    NOT_SELECTED,
    ReproductionOptions,
    ReproductionPlan,
    missing_data,
    plan_table,
    task_paths,
    unique,
)
from miner.research.reproduction.registry import OURS, UNKNOWN, Registry


def describe_table(registry: Registry, name: str) -> dict[str, Any]:
    """Return the title, the rows, the seeds, and the data and models that a table needs."""
    plan = plan_table(registry, name, ReproductionOptions())
    runs = plan.runs()
    paths = [*(path for run in runs for path in run.data), *(path for task in plan.tasks.values() for path in task_paths(task))]
    by_path: dict[str, set[str]] = {}  # path -> the datasets that it is read as; none for a folder or pattern of plain files
    for path in paths:
        by_path.setdefault(path.path, set()).update([path.dataset] if path.dataset else [])
    settings = {name: row.setting for name, row in plan.table.rows.items()} | {
        name: column.setting for name, column in plan.table.columns.items()
    }
    return {
        "paper": registry.papers[name],
        "title": plan.table.title,
        "columns": list(plan.table.columns),
        "rows": list(plan.rows),
        "seeds": plan.table.seeds,
        "data": {path: sorted(by_path[path]) for path in sorted(by_path)},
        "settings": {setting: [name for name in settings if settings[name] == setting] for setting in (OURS, UNKNOWN)},
        "models": list(dict.fromkeys(model for run in runs for model in run.models)),
    }


def description_text(name: str, figures: Mapping[str, Any], max_rows: int | None = None) -> str:
    """Return the description of a table in a few lines, with the names of at most `max_rows` rows."""
    rows = figures["rows"][:max_rows]
    rows += [f"... ({len(figures['rows'])} rows)"] if len(rows) < len(figures["rows"]) else []
    data = [f"{path} ({', '.join(datasets)})" if datasets else path for path, datasets in figures["data"].items()]
    seeds = "" if figures["seeds"] == 1 else f", {figures['seeds']} seeds"
    lines = [
        f"{name}: {figures['title']}",
        f"  paper    {figures['paper']}",
        f"  columns  {', '.join(figures['columns'])}",
        f"  rows     {', '.join(rows)}{seeds}",
        f"  data     {', '.join(data)}",
        f"  models   {', '.join(figures['models'])}",
    ]
    lines += [f"  {setting:7}  settings of {', '.join(names[:max_rows])}" for setting, names in figures["settings"].items() if names]
    return "\n".join(lines)


def dry_run_text(plan: ReproductionPlan) -> str:
    """Return the commands that train the rows, the tasks that evaluate them, and the data that is missing."""
    lines: list[str] = []
    folder = plan.options.data
    for key, row in plan.rows.items():
        if row.reason == NOT_SELECTED:
            continue
        lines.append(f"{key}: {row.reason}".rstrip(" "))
        for run in unique(run for final in row.runs for run in final.chain()):
            lines.append(f"  evaluate {run.encoder}" if run.recipe is None else f"  {run.command()}")
            lines += [f"  missing: {path}" for path in dict.fromkeys(path.below(folder) for path in missing_data(run.data, folder))]
    missing = {title: missing_data(task_paths(task), folder) for title, task in plan.tasks.items()}
    lines.append("tasks:")
    for title, paths in missing.items():
        lines.append(f"  {title}{''.join(f', missing: {path.below(folder)}' for path in paths)}")
    return "\n".join(lines)
