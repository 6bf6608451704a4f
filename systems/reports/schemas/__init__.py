"""JSON schemas: given by name or in full, checked before any call, and resolved without network access.

A name is that of a file in `SCHEMAS_DIR`, or of one beside this module.
"""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema_rs

from systems.reports.codes import Code
from systems.reports.failures import Trouble

Schema = dict[str, Any]

_OWN = Path(__file__).parent
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MOST_BYTES = 64_000
#: How many errors of one answer are kept, and how many characters of each.
MOST_ERRORS, LONGEST_ERROR = 20, 300


def find_schema(given: str | Schema, folder: Path) -> Schema:
    """Return the schema named *given*, or *given* itself.

    Raises `Trouble` with INVALID_SCHEMA if it is not a schema.
    """
    schema = _read(given, folder) if isinstance(given, str) else given
    check_schema(schema)
    return schema


def schema_names(folder: Path) -> list[str]:
    """Return the names of the schemas that can be given by name."""
    found = {file.stem for place in (folder, _OWN) for file in place.glob("*.json")}
    return sorted(name for name in found if _NAME.fullmatch(name))


def check_schema(schema: Any) -> None:
    """Raise `Trouble` with INVALID_SCHEMA if *schema* is not a JSON schema that can be used."""
    if not isinstance(schema, dict):
        raise Trouble(Code.INVALID_SCHEMA, "a schema is a JSON object")
    _validator(canonical(schema))


def violations(schema: Schema, value: Any) -> list[dict[str, str]]:
    """Return up to `MOST_ERRORS` errors of *value*, each with its path (a JSON pointer) and a message."""
    found = []
    for error in _validator(canonical(schema)).iter_errors(value):
        path = "".join(f"/{_escaped(part)}" for part in error.instance_path)
        found.append({"path": path[:LONGEST_ERROR], "message": error.message[:LONGEST_ERROR]})
        if len(found) >= MOST_ERRORS:
            break
    return found


def canonical(schema: Schema) -> str:
    """Return the canonical JSON text of *schema*. Raises `Trouble` when it is too large or not JSON."""
    try:
        text = json.dumps(schema, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise Trouble(Code.INVALID_SCHEMA, "the schema is not JSON") from None
    if len(text) > MOST_BYTES:
        raise Trouble(Code.INVALID_SCHEMA, f"a schema has at most {MOST_BYTES:,} bytes")
    return text


def digest(schema: Schema) -> str:
    """Return the SHA-256 of the canonical text of *schema*."""
    return hashlib.sha256(canonical(schema).encode()).hexdigest()


def _read(name: str, folder: Path) -> Any:
    if not _NAME.fullmatch(name):
        raise Trouble(Code.INVALID_SCHEMA, "this is not the name of a schema")
    for place in (folder, _OWN):
        try:
            return json.loads((place / f"{name}.json").read_bytes())
        except FileNotFoundError:
            continue
        except (ValueError, RecursionError):
            raise Trouble(Code.INVALID_SCHEMA, f"the schema {name} is not JSON") from None
    raise Trouble(Code.INVALID_SCHEMA, f"there is no schema {name}")


def _no_network(uri: str) -> Any:
    """Refuse a `$ref` to another document, which the library would fetch from our network or disk."""
    raise ValueError("a $ref to another document")


@lru_cache(maxsize=256)
def _validator(text: str) -> Any:
    try:
        return jsonschema_rs.validator_for(
            json.loads(text),
            retriever=_no_network,
            validate_formats=True,
            pattern_options=jsonschema_rs.RegexOptions(),  # linear in time: no pattern can hang a worker
        )
    except (
        jsonschema_rs.ValidationError,
        jsonschema_rs.ReferencingError,
        ValueError,
        RecursionError,
    ) as error:
        reason = str(error).strip().split("\n", 1)[0][:200]
        raise Trouble(Code.INVALID_SCHEMA, f"the schema cannot be used: {reason}") from None


def _escaped(part: str | int) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
