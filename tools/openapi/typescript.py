"""Writes the generated part of the TypeScript client: a class with one method for each operation, and its types."""

from __future__ import annotations

import json
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

_MADE = "// Made by `python -m tools.openapi`: change the API, not this file.\n"
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def script(told: dict[str, Any]) -> str:
    known = schemas(told)
    methods = "\n".join(_method(one, known) for one in _every(told))
    return f"""{_MADE}
/** One part of a path, whatever is in it. */
function part(value) {{
  const text = String(value);
  if (text === "" || text === "." || text === "..") {{
    throw new TypeError(`"${{text}}" is no id and no name; give the one that the API told`);
  }}
  return encodeURIComponent(text);
}}

/** The operations of the API. `Client` sends them. */
export class Operations {{
{methods}}}
"""


def types(told: dict[str, Any]) -> str:
    known, every = schemas(told), _every(told)
    used = {"Problem"}
    for one in every:
        used |= {one.body} if one.body else set()
        for schema in one.answers.values():
            used |= {name} if schema and (name := name_of(schema)) else set()
        for given in one.parameters:
            for schema in (given.schema, given.schema.get("items", {})):
                used |= {name} if (name := name_of(schema)) else set()
    shapes = [_shape(name, known[name]) for name in known if name in reached(told, used)]
    queries = [_query(one) for one in every if one.of("query")]
    methods = "\n".join(_declared(one, known) for one in every)
    return f"""{_MADE}
/** What every call takes beside its own arguments. */
export interface CallOptions {{
  /** Ends the call. */
  signal?: AbortSignal;
}}

export interface NamedOptions extends CallOptions {{
  /** A name for this request: sent again with it, it is answered again and done once. Without it one is made. */
  idempotencyKey?: string;
}}

export interface GuardedOptions extends CallOptions {{
  /** The `ETag` it was read with: refused with 412 when it has changed since. */
  ifMatch?: string;
}}

{"".join(shapes)}{"".join(queries)}/** The operations of the API. */
export declare class Operations {{
{methods}}}
"""


def _every(told: dict[str, Any]) -> list[Operation]:
    """Without streams: `client.events` follows them."""
    return [one for one in operations(told) if one.name not in NOT_FOR_CLIENTS and not one.is_stream]


# -- methods ------------------------------------------------------------------------------------------------------------
def _method(one: Operation, known: dict[str, Schema]) -> str:
    given = [_camel(path.name) for path in one.of("path")]
    rest = "body" if one.body else "query" if one.of("query") else None
    if rest:
        given.append(rest if _is_needed(one, known) else f"{rest} = {{}}")
    given.append("options = {}")
    path = json.dumps(one.path)
    if one.of("path"):
        text = one.path
        for parameter in one.of("path"):
            text = text.replace(f"{{{parameter.name}}}", f"${{part({_camel(parameter.name)})}}")
        path = f"`{text}`"
    facts = [f'method: "{one.method}"', f"path: {path}"]
    if rest:
        facts.append(rest)
    if one.headers:
        told = ", ".join(f'"{header.name}": options.{_option(header)}' for header in one.headers)
        facts.append(f"headers: {{ {told} }}")
    if one.takes_key:
        facts.append("takesKey: true")
    kinds = {status: _kind(one, status) for status in one.answers}
    facts.append("answers: { " + ", ".join(f'{status}: "{kind}"' for status, kind in kinds.items()) + " }")
    inside = ",\n      ".join(facts)
    return f"""  {_camel(one.name)}({", ".join(given)}) {{
    return this.send({{
      {inside},
    }}, options);
  }}
"""


def _declared(one: Operation, known: dict[str, Schema]) -> str:
    given = [f"{_camel(path.name)}: string" for path in one.of("path")]
    rest = one.body or (_query_name(one) if one.of("query") else None)
    if rest:
        mark = "" if _is_needed(one, known) else "?"
        given.append(f"{'body' if one.body else 'query'}{mark}: {rest}")
    names = [header.name for header in one.headers]
    kinds_of = {KEY_HEADER: "NamedOptions", "If-Match": "GuardedOptions"}
    options = " & ".join(kinds_of[name] for name in names if name in kinds_of) or "CallOptions"
    given.append(f"options?: {options}")
    kinds = dict.fromkeys("void" if schema is None else _type(schema) for schema in one.answers.values())
    return f"  /** {_line(one.summary)} */\n  {_camel(one.name)}({', '.join(given)}): Promise<{' | '.join(kinds)}>;\n"


def _kind(one: Operation, status: int) -> str:
    if one.answers[status] is None:
        return "none"
    return "text" if status in one.texts else "json"


def _is_needed(one: Operation, known: dict[str, Schema]) -> bool:
    return bool(one.body and known[one.body].get("required"))


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _option(header: Parameter) -> str:
    return _camel(header.name.lower().replace("-", "_"))


# -- types --------------------------------------------------------------------------------------------------------------
def _shape(name: str, schema: Schema) -> str:
    if "enum" in schema:
        return f"export type {name} = {_words(schema['enum'])};\n\n"
    required = set(schema.get("required", ()))
    fields = [
        _field(field, one, required=field in required) for field, one in schema.get("properties", {}).items()
    ]
    return f"{_doc(schema, '')}export interface {name} {{\n{''.join(fields)}}}\n\n"


def _query(one: Operation) -> str:
    fields = []
    for given in one.of("query"):
        schema = given.schema | {"description": given.description}
        if given.schema.get("type") == "array":
            schema = {"anyOf": [given.schema, given.schema["items"]], "description": given.description}
        fields.append(_field(given.name, schema, required=False))
    return f"export interface {_query_name(one)} {{\n{''.join(fields)}}}\n\n"


def _query_name(one: Operation) -> str:
    return "".join(word.capitalize() for word in one.name.split("_")) + "Query"


def _field(name: str, schema: Schema, *, required: bool) -> str:
    return f"{_doc(schema, '  ')}  {name}{'' if required else '?'}: {_type(schema)};\n"


def _doc(schema: Schema, indent: str) -> str:
    said = _line(schema.get("description", ""))
    return f"{indent}/** {said} */\n" if said else ""


def _line(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /")


def _words(words: list[str]) -> str:
    return " | ".join(json.dumps(word) for word in words)


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return _words(schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"Array<{_type(schema.get('items', {}))}>"
    if kind == "object" and "properties" in schema:
        required = set(schema.get("required", ()))
        inside = [
            f"{name}{'' if name in required else '?'}: {_type(one)}"
            for name, one in schema["properties"].items()
        ]
        return "{ " + "; ".join(inside) + " }"
    if kind == "object":
        inner = schema.get("additionalProperties")
        return f"Record<string, {_type(inner) if isinstance(inner, dict) else 'unknown'}>"
    return _PLAIN.get(str(kind), "unknown")
