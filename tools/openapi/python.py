"""Writes the generated part of the Python client: `types.py` (answers and what is asked) and `calls.py` (one function each)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.openapi.document import (
    KEY_HEADER,
    NOT_FOR_CLIENTS,
    Operation,
    Parameter,
    Schema,
    name_of,
    operations,
    reached,
    schemas,
)

ROOT = Path(__file__).resolve().parents[2]
_MADE = "Made by `python -m tools.openapi`: change the API, not this file."
#: Shapes that are a part of another: what a hand-written verb takes beside its own arguments.
_PARTS = {
    "JobOptions": ("JobRequest", {"task", "args"}),
    "OperationOptions": ("OperationRequest", {"action", "filter", "dry_run"}),
}
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def shapes(told: dict[str, Any]) -> str:
    every = [one for one in operations(told) if one.name not in NOT_FOR_CLIENTS]
    known = schemas(told)
    asked = reached(told, {one.body for one in every if one.body})
    for one in every:
        for given in one.parameters:
            asked |= reached(
                told, set(filter(None, [name_of(given.schema), name_of(given.schema.get("items", {}))]))
            )
    answered = reached(
        told,
        {name for one in every for schema in one.answers.values() if schema and (name := name_of(schema))},
    )
    words = sorted(name for name in asked if "enum" in known[name])
    parts = [f'"""The shapes of requests and answers.\n\n{_MADE}\n"""', _IMPORTS, _RULES]
    parts += [f"{name} = Literal[{', '.join(map(repr, known[name]['enum']))}]" for name in words]
    parts += [_typed_dict(name, known[name]) for name in _ordered(known, asked) if "enum" not in known[name]]
    parts += [
        _typed_dict(name, _without(known[whole], left_out)) for name, (whole, left_out) in _PARTS.items()
    ]
    parts += [_query(one) for one in every if one.of("query")]
    parts += [
        _struct(name, known[name], known) for name in _ordered(known, answered) if "enum" not in known[name]
    ]
    return formatted("\n\n".join(parts))


_IMPORTS = """from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Required, TypedDict

import msgspec
"""
_RULES = """# What is asked for is a TypedDict, whose words are checked by the type checker; what is answered is a Struct that takes words
# and fields which are newer than this client. Durations are written "30s" or "1h30m".
"""


def calls(told: dict[str, Any]) -> str:
    every = [one for one in operations(told) if one.name not in NOT_FOR_CLIENTS]
    body = "\n\n".join(_function(one) for one in every)
    used = sorted(
        {
            name
            for name in (*schemas(told), *(_query_name(one) for one in every))
            if any(f"{before}{name}{after}" in body for before in "[ |" for after in "],} ")
        }
    )
    head = f'''"""One function for each operation of the API, named as its document names it. They send nothing: give what they make to
`client.send`.

{_MADE}
"""
# ruff: noqa: PT028 - `test_webhook` is no test.

from __future__ import annotations

from typing import Any, Unpack

from holdfast.client.call import Call, StreamCall, part
from holdfast.client.types import {", ".join(used)}
'''
    return formatted(f"{head}\n\n{body}\n")


def formatted(text: str) -> str:
    for command in (["check", "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", "src/holdfast/client/made.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        if done.returncode:
            raise SystemExit(
                f"openapi: what was made is not as it must be: {done.stdout[-2000:]}{done.stderr}"
            )
        text = done.stdout
    return text


# -- functions ----------------------------------------------------------------------------------------------------------
def _function(one: Operation) -> str:
    given = [f"{path.name}: str" for path in one.of("path")]
    named = [f"{_word(header)}: str | None = None" for header in one.headers]
    rest = one.body or (_query_name(one) if one.of("query") else None)
    assert not (one.body and one.of("query")), f"{one.name}: a body and a query; say how they are given"
    if named:
        given += ["*", *named]
    if rest:
        given.append(f"**{'body' if one.body else 'query'}: Unpack[{rest}]")
    facts = [f"method={one.method!r}", f"path={_path(one)}"]
    if one.of("query"):
        facts.append("query=query")
    if one.headers:
        facts.append(
            "headers={" + ", ".join(f"{header.name!r}: {_word(header)}" for header in one.headers) + "}"
        )
    if one.body:
        facts.append("body=body")
    if one.is_stream:
        kind, answer = "StreamCall", "StreamCall"
    else:
        kinds = [_answer(schema) for schema in one.answers.values()]
        kind, answer = "Call", f"Call[{' | '.join(dict.fromkeys(kinds))}]"
        told = ", ".join(f"{status}: {name}" for status, name in zip(one.answers, kinds, strict=True))
        facts.append("answers={" + told + "}")
    if one.takes_key:
        facts.append("takes_key=True")
    summary = one.summary.strip().rstrip(".")
    return (
        f"def {one.name}({', '.join(given)}) -> {answer}:\n"
        f'    """{summary}."""\n'
        f"    return {kind}({', '.join(facts)})\n"
    )


def _path(one: Operation) -> str:
    if not one.of("path"):
        return repr(one.path)
    path = one.path
    for given in one.of("path"):
        path = path.replace(f"{{{given.name}}}", f"{{part({given.name})}}")
    return f'f"{path}"'


def _word(header: Parameter) -> str:
    return "idempotency_key" if header.name == KEY_HEADER else header.name.lower().replace("-", "_")


def _answer(schema: Schema | None) -> str:
    if schema is None:
        return "None"
    return name_of(schema) or ("str" if schema.get("type") == "string" else "dict[str, Any]")


# -- shapes -------------------------------------------------------------------------------------------------------------
def _ordered(known: dict[str, Schema], names: set[str]) -> list[str]:
    return [name for name in known if name in names]


def _without(schema: Schema, left_out: set[str]) -> Schema:
    fields = {name: one for name, one in schema["properties"].items() if name not in left_out}
    return {"properties": fields, "description": "Of a new one, what can be left out."}


def _typed_dict(name: str, schema: Schema) -> str:
    required = set(schema.get("required", ()))
    fields = [
        f"    {field}: {f'Required[{_asked(one)}]' if field in required else _asked(one)}{_said(one)}"
        for field, one in schema.get("properties", {}).items()
    ]
    return f"class {name}(TypedDict, total=False):\n{_doc(schema)}" + "\n".join(fields or ["    pass"])


def _query(one: Operation) -> str:
    fields = []
    for given in one.of("query"):
        kind = _asked(given.schema)
        if given.schema.get("type") == "array":
            kind = f"{kind} | {_asked(given.schema['items'])}"
        fields.append(f"    {given.name}: {kind}{_said({'description': given.description})}")
    doc = f'    """What `{one.name}` can be asked for."""\n\n'
    return f"class {_query_name(one)}(TypedDict, total=False):\n{doc}" + "\n".join(fields)


def _query_name(one: Operation) -> str:
    return "".join(word.capitalize() for word in one.name.split("_")) + "Query"


def _struct(name: str, schema: Schema, known: dict[str, Schema]) -> str:
    required = set(schema.get("required", ()))
    fields = []
    for field, one in schema.get("properties", {}).items():
        kind = _told(one, known)
        if kind == "Any" or kind.endswith("| None"):
            default = " = None"
        else:
            default = "" if field in required else " | None = None"
        fields.append(f"    {field}: {kind}{default}{_said(one)}")
    return f"class {name}(msgspec.Struct, frozen=True, kw_only=True):\n{_doc(schema)}" + "\n".join(fields)


def _doc(schema: Schema) -> str:
    said = " ".join(schema.get("description", "").split())
    return f'    """{said.rstrip(".")}."""\n\n' if said else ""


def _said(schema: Schema) -> str:
    said = " ".join(schema.get("description", "").split())
    return f"  #: {said}" if said else ""


def _asked(schema: Schema) -> str:
    return _type(schema, lambda name: name)


def _told(schema: Schema, known: dict[str, Schema]) -> str:
    return _type(schema, lambda name: "str" if "enum" in known[name] else name)


def _type(schema: Schema, ref: Any) -> str:
    if "$ref" in schema:
        return str(ref(schema["$ref"].rpartition("/")[2]))
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one, ref) for one in schema["anyOf"]))
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    kind = schema.get("type")
    if kind == "array":
        return f"list[{_type(schema.get('items', {}), ref)}]"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"dict[str, {_type(inner, ref) if isinstance(inner, dict) else 'Any'}]"
    if schema.get("format") == "date-time":
        return "datetime"
    return _PLAIN.get(str(kind), "Any")
