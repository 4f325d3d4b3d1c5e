"""JSON schemas of configs, for editors and for the reference page. The comment of a setting becomes its description."""

import ast
import inspect
import io
import textwrap
import tokenize
from typing import Any

import pydantic
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from miner.config.base import Settings

DIALECT = GenerateJsonSchema.schema_dialect


def json_schema(model: type[Settings]) -> dict[str, Any]:
    """Return the JSON schema of a config: settings with types, bounds, defaults and descriptions; unknown keys are errors."""
    return {"$schema": DIALECT, **model.model_json_schema(schema_generator=_DescribedSchema)}


class _DescribedSchema(GenerateJsonSchema):
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        described = super().model_schema(schema)
        comments = setting_comments(schema["cls"])
        for name, setting in described.get("properties", {}).items():
            if name in comments and "description" not in setting:
                setting["description"] = comments[name]
        return described


def setting_comments(model: type[pydantic.BaseModel]) -> dict[str, str]:
    """Return the comment of each setting of a model, inherited ones too: that at the end of its line, or that in the lines above it."""
    comments: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if issubclass(owner, Settings) and owner is not Settings:
            comments |= _own_comments(owner)
    return comments


def _own_comments(model: type[Settings]) -> dict[str, str]:
    source = textwrap.dedent(inspect.getsource(model))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    is_alone = {number: line.lstrip().startswith("#") for number, line in enumerate(source.splitlines(), start=1)}
    comments = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        first, end = node.lineno - 1, node.end_lineno or node.lineno
        while is_alone.get(first):
            first -= 1
        lines = [end] if end in texts else range(first + 1, node.lineno)
        if text := " ".join(texts[line] for line in lines):
            comments[node.target.id] = text.replace("None: ", "null: ")  # as YAML and JSON spell it
    return comments
