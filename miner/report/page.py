"""The HTML of a report: one file that loads nothing.

It is built as an element tree, whose writer in the standard library escapes all text and attributes.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

from miner.io import outputs
from miner.text import streams

ASSETS = Path(__file__).parent / "assets"

REPORT = "report.html"
GENERATOR = "bitext-miner"
HEAD_BYTES = 1000  # of a page, which have its generator

Child = Element | str

# What figures with keys or values of other types raise.
MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Section:
    """A section of a report."""

    title: str
    note: str  # how to read it
    body: Sequence[Element]


@dataclass(frozen=True)
class Part:
    """The part of a report on one kind of content, such as a training run."""

    title: str
    facts: Sequence[str]
    sections: Sequence[Section]


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """Return an element. In attribute names a trailing `_` is dropped and others become `-`: `class_`, `aria_label`."""
    parent = Element(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + child
        else:
            parent.text = (parent.text or "") + child
    return parent


def table(heads: Sequence[str], rows: Sequence[Sequence[Child]]) -> Element:
    """Return a table, which scrolls by itself if it is wider than the screen."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


def text(value: str) -> Element:
    """Return a sentence of any language, set in the direction of its script."""
    return element("bdi", value, dir="auto", class_="text")


def claim_page(uri: str) -> None:
    """Raise ConfigError if there is another file than a report where one is to be written."""
    outputs.claim_file(uri, [], _is_page, other="rename it")


def _is_page(uri: str) -> bool:
    with streams.open_bytes(uri, "") as handle:
        return f'name="generator" content="{GENERATOR}"'.encode() in handle.read(HEAD_BYTES)


def page(parts: Sequence[Part]) -> bytes:
    """Return the HTML file, with the title of the first part.

    A policy in its head forbids requests, images from elsewhere, and all scripts but its own.
    """
    style, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{script_hash}'; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="generator", content=GENERATOR),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", parts[0].title),
        element("style", style),
    )
    facts = [element("p", fact) for part in parts for fact in part.facts]
    links, sections = [], []
    for number, section in enumerate(section for part in parts for section in part.sections):
        anchor = f"section-{number}"
        links.append(element("a", section.title, href=f"#{anchor}"))
        sections.append(element("section", element("h2", section.title), element("p", section.note), *section.body, id=anchor))
    header = element("header", element("h1", parts[0].title), *facts, element("nav", *links))
    body = element("body", header, element("main", *sections), element("script", script))
    html: bytes = tostring(element("html", head, body, lang="en"), encoding="utf-8", method="html")
    return b"<!doctype html>\n" + html + b"\n"
