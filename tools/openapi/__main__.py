"""Write what is made from the API itself: `python -m tools.openapi`.

The OpenAPI document, the reference page, and the generated parts of the Python and the TypeScript client. With `--check` nothing
is written, and a file that is not current is an error; a test calls it so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.openapi import page, python, typescript
from tools.openapi.document import made

ROOT = Path(__file__).resolve().parents[2]


def files() -> dict[str, str]:
    told = made()
    return {
        "docs/reference/openapi.json": json.dumps(told, indent=1, ensure_ascii=False) + "\n",
        "docs/reference/http-api.md": page.page(told),
        "src/holdfast/client/types.py": python.shapes(told),
        "src/holdfast/client/calls.py": python.calls(told),
        "clients/typescript/operations.js": typescript.script(told),
        "clients/typescript/operations.d.ts": typescript.types(told),
    }


def main() -> None:
    stale = []
    for name, text in files().items():
        path = ROOT / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if "--check" in sys.argv and stale:
        raise SystemExit(f"openapi: not current: {', '.join(stale)}; run `python -m tools.openapi`")
    for name in stale:
        print(f"written: {name}")


if __name__ == "__main__":
    main()
