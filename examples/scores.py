"""Print one line of scores per result of `miner mine --gold GOLD --json FILE`: `python examples/scores.py FILE...`."""

import json
import sys
from pathlib import Path


def main(paths: list[str]) -> None:
    """Print a table of the results in these JSON files, named by their stems."""
    print(f"{'':12}{'lines':>14}{'pairs':>7}{'precision':>11}{'recall':>8}{'F1':>7}{'seconds':>9}")
    for path in map(Path, paths):
        figures = json.loads(path.read_text(encoding="utf-8"))
        lines = f"{figures['sentences']['source']} x {figures['sentences']['target']}"
        scores = f"{figures['precision']:11.3f}{figures['recall']:8.3f}{figures['f1']:7.3f}"
        print(f"{path.stem:12}{lines:>14}{figures['pairs']:7}{scores}{sum(figures['seconds'].values()):9.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
