"""Print statements as the stores send them, with their placeholders filled.

python -m tools.sql postgres         prints the names of the statements
python -m tools.sql postgres claim   prints `claim`
"""

from __future__ import annotations

import sys

from holdfast.stores.postgres.enqueue_plan import SQL as POSTGRES
from holdfast.stores.sqlite.move import SQL as SQLITE

STATEMENTS = {"postgres": POSTGRES, "sqlite": SQLITE}


def main(arguments: list[str]) -> None:
    """Print the statements that *arguments* name: a store, and a name of a statement."""
    match arguments:
        case [store] if store in STATEMENTS:
            print("\n".join(sorted(STATEMENTS[store])))
        case [store, name] if name in STATEMENTS.get(store, {}):
            print(STATEMENTS[store][name], end="")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
