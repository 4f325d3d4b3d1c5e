"""The HTML of a report: one file that asks nothing of a network.

It is built as a tree, which the standard library writes: that escapes all text and all attributes, whatever they hold.
"""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, tostring

ASSETS = Path(__file__).parent / "assets"

Child = Element | str


@dataclass(frozen=True)
class Section:
    """A part of a report: its heading, what is to be seen in it, and what follows."""

    title: str
    note: str
    body: Sequence[Element]


def element(tag: str, *children: Child, **attributes: str) -> Element:
    """An element; of an attribute's name a `_` at the end goes and others become `-`: `class_`, `aria_label`."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made


def table(heads: Sequence[str], rows: Sequence[Sequence[Child]]) -> Element:
    """Cells below their heads; it scrolls by itself where it is wider than the screen."""
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = (element("tr", *(element("td", cell) for cell in row)) for row in rows)
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


def text(value: str) -> Element:
    """A sentence of any language, set in the direction of its script."""
    return element("bdi", value, dir="auto", class_="text")


def page(title: str, facts: Sequence[str], sections: Sequence[Section]) -> bytes:
    """The whole file. A policy in its head forbids whatever it does not hold itself: scripts but its own, images, requests."""
    style, script = ((ASSETS / name).read_text(encoding="utf-8") for name in ("report.css", "report.js"))
    known = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{known}'; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    )
    links = [element("a", section.title, href=f"#{_anchor(number)}") for number, section in enumerate(sections)]
    body = element(
        "body",
        element("header", element("h1", title), *(element("p", fact) for fact in facts), element("nav", *links)),
        element("main", *(_section(number, section) for number, section in enumerate(sections))),
        element("script", script),
    )
    written: bytes = tostring(element("html", head, body, lang="en"), encoding="utf-8", method="html")
    return b"<!doctype html>\n" + written + b"\n"


def _anchor(number: int) -> str:
    return f"section-{number}"


def _section(number: int, section: Section) -> Element:
    return element("section", element("h2", section.title), element("p", section.note), *section.body, id=_anchor(number))
