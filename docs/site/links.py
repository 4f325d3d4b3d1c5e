"""MkDocs hook: links to files outside docs/ become links to the repository, so the same pages work in both."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/bitext-miner/bitext-miner"  # as in pyproject.toml
OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite the links of one page. Raise FileNotFoundError for a file that the repository does not have."""

    def absolute(match: re.Match[str]) -> str:
        path = ROOT / match[1]
        if not path.exists():
            raise FileNotFoundError(f"{match[1]}: a page links to this file; correct the link")
        return f"]({REPOSITORY}/{'tree' if path.is_dir() else 'blob'}/main/{match[1]}"

    return OUTSIDE.sub(absolute, markdown)
