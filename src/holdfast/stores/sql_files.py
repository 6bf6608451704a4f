"""SQL as text: one statement per file, named after its verb, with the same names in both dialects.

A file may have placeholders, which are filled once, when it is loaded:

- `{lease may complete}` becomes the condition that a job is in a state from which `MOVES` allows the verb. The word before
  `may` says where the state is read: a column on SQLite, a table on PostgreSQL.
- `{lease may}` names no verb, because several verbs share the statement. The first line of the file names them, and each verb
  gets a text of its own: `SQL["requeue.release"]` is `requeue.sql` for the verb `release`.
- `{spec columns}` and its like become the columns of a job that `stores/columns.py` lists.

`python -m tools.sql postgres claim` prints a statement as it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType

from holdfast.jobs.moves import MOVES, State

#: Return the SQL condition that the state which is read at a place is one of these.
Guard = Callable[[str, frozenset[State]], str]
Moves = Mapping[str, tuple[frozenset[State], frozenset[State]]]

_GUARD = re.compile(r"\{([\w.]+) may(?: (\w+))?\}")
_TEXT = re.compile(r"\{(\$?[\w ]+)\}")
_VERBS = re.compile(r"-- (\w+(?:, \w+)*):")


def load_sql(
    package: str, guard: Guard, moves: Moves = MOVES, texts: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the statements of *package* by name: `SQL["claim"]` is the text of `claim.sql`.

    *texts* are those of the placeholders that are the same in every file, by the name in the braces.
    """
    return {
        name: text
        for file in (files(package) / "sql").iterdir()
        if file.name.endswith(".sql")
        for name, text in _for_each_verb(
            file.name.removesuffix(".sql"), _put_in(texts, file.read_text("utf-8")), guard, moves
        )
    }


def _put_in(texts: Mapping[str, str], statement: str) -> str:
    return _TEXT.sub(lambda found: texts.get(found[1], found[0]), statement)


def _for_each_verb(name: str, text: str, guard: Guard, moves: Moves) -> Iterator[tuple[str, str]]:
    def fill(shared_by: str = "") -> str:
        return _GUARD.sub(lambda found: guard(found[1], moves[found[2] or shared_by][0]), text)

    if all(verb for _, verb in _GUARD.findall(text)):
        yield name, fill()
        return
    header = _VERBS.match(text)
    if header is None:
        raise ValueError(f"{name}.sql: begin with the verbs that share it, as in `-- fail, release: …`")
    for verb in header[1].split(", "):
        yield f"{name}.{verb}", fill(verb)
