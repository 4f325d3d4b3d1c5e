"""MkDocs hook: write the page of all settings, derived from the models when the site is built."""

import json
from importlib import import_module
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from miner.cli.config import MODELS
from miner.config.base import json_schema

PAGE = "settings.md"
INTRODUCTION = """# Settings

All options of commands and of their Python functions, and all settings of the YAML files that commands read, with types, defaults and
bounds. The option `--source-lang` is `source_lang` in Python and in a file. A list of one needs no brackets. `miner config schema COMMAND`
prints the settings of a file as JSON schema, for editors; `miner run CONFIG --print-config` prints a config with all defaults.
"""
COMMANDS = {
    "`miner mine`, `miner.mine`": "miner.config.commands:MineConfig",
    "`miner score`, `miner.score`": "miner.config.commands:ScoreConfig",
    "`miner embed`, `miner.embed`": "miner.config.commands:EmbedConfig",
    "`miner index`": "miner.config.commands:IndexConfig",
    "`miner export`": "miner.export.settings:ExportConfig",
    "Files of `miner run` and `miner plan`": MODELS["run"],
    "Files of `miner train`": MODELS["train"],
    "Files of `miner loop`": MODELS["loop"],
    "Files of `miner eval suite`": MODELS["suite"],
    "Tables of `miner reproduce`": MODELS["reproduce"],
}
NARROWEST = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "minItems": "items ≥"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page to the files of the site."""
    files.append(File.generated(config, PAGE, content=page_text()))
    return files


def page_text() -> str:
    """Return the page: a part per command, a section per group of settings; a group of several commands is in the first one."""
    parts, written = [INTRODUCTION], set()
    for title, model in COMMANDS.items():
        module, _, name = model.partition(":")
        schema = json_schema(getattr(import_module(module), name))
        groups = {schema["title"]: schema, **schema.get("$defs", {})}
        parts.append(f"## {title}\n")
        for group, definition in groups.items():
            settings = next((part for part in (definition, *definition.get("anyOf", ())) if "properties" in part), None)
            if settings is not None and group not in written:
                parts.append(section_text(group, settings))
                written.add(group)
    return "\n".join(parts)


def section_text(name: str, schema: dict[str, Any]) -> str:
    """Return the section of a group of settings: its description, and a table."""
    description = schema.get("description", "").partition("\b")[0].strip()
    lines = [f"### {name}", "", description, "", "| setting | type | default | |", "|---|---|---|---|"]
    for setting, definition in sorted(schema["properties"].items(), key=lambda item: item[0] not in schema.get("required", ())):
        default = f"`{default_text(definition['default'])}`" if "default" in definition else ""
        is_required = setting in schema.get("required", ())
        cells = (f"`{setting}`", type_text(definition), "required" if is_required else default, definition.get("description", ""))
        lines.append(f"| {' | '.join(cell.replace('|', '&#124;').replace(chr(10), ' ') for cell in cells)} |")
    return "\n".join([*lines, ""])


def default_text(value: Any) -> str:
    """Return a default as YAML; that of a group of settings is in its own section."""
    if isinstance(value, dict) and value:
        return "{...}"
    return value if isinstance(value, str) and value else json.dumps(value)


def type_text(schema: dict[str, Any]) -> str:
    """Return the type of a setting in words, with a link for a group of settings."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            choices = [part for part in schema[key] if part.get("type") != "null"]
            if len(choices) == 2 and choices[1].get("items") == choices[0]:  # one, or a list
                return type_text(choices[1])
            return " or ".join(dict.fromkeys(map(type_text, choices)))
    bounds = "".join(f", {sign} {schema[key]}" for key, sign in NARROWEST.items() if key in schema)
    if schema.get("type") == "array":
        items = schema.get("items") or {"anyOf": schema.get("prefixItems", [])}
        return f"list of {type_text(items)}{bounds}"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"mapping to {type_text(values)}{bounds}" if isinstance(values, dict) else "mapping"
    return f"{schema.get('type', 'any')}{bounds}"
