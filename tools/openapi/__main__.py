"""Write the files that are generated from the API: `python -m tools.openapi`.

They are the OpenAPI document, the reference page, and the generated parts of the Python and the TypeScript
client. With `--check` nothing is written, and a file that is not current is an error; a test runs this.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tools.openapi import page, python, typescript
from tools.openapi.document import make_document

ROOT = Path(__file__).resolve().parents[2]


def files() -> dict[str, str]:
    """Return the current text of each generated file."""
    api = make_document()
    return {
        "docs/reference/openapi.json": json.dumps(api, indent=1, ensure_ascii=False) + "\n",
        "docs/reference/http-api.md": page.page(api),
        "src/holdfast/client/types.py": python.shapes(api),
        "src/holdfast/client/calls.py": python.calls(api),
        "clients/typescript/operations.js": typescript.script(api),
        "clients/typescript/operations.d.ts": typescript.types(api),
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
