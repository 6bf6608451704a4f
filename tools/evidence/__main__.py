"""Write docs/explanation/evidence.md and its pictures from the records: `python -m tools.evidence`.

With `--check` nothing is written, and a page that is not what the records make is an error. With `--run` every record is made
again first, one after the other: about an hour.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from tools.evidence.page import COMMAND, page, troubles
from tools.evidence.plots import bars, curves
from tools.evidence.records import COMMANDS, KEPT, ROOT, load


def made() -> dict[Path, str]:
    """Everything that is made of the records: file → text."""
    records = load()
    return {
        KEPT.parent / "evidence.md": page(records),
        KEPT / "troubles.svg": bars("What was done to the simulated clusters", troubles(records)),
        KEPT / "recovery.svg": curves("Jobs of killed workers: how many ran again, after", records.tortures),
    }


def _run() -> None:
    for name, command in COMMANDS.items():
        words = shlex.split(command.format(file=(KEPT / f"{name}.json").relative_to(ROOT)))
        sys.stdout.write(f"{shlex.join(words)}\n")
        sys.stdout.flush()
        done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT)
        if done.returncode:
            raise SystemExit(
                f"evidence: {name} came to code {done.returncode}; look above, mend it, and run it again"
            )


def main() -> None:
    if "--run" in sys.argv:
        _run()
    for path, text in made().items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not current; run: {COMMAND}")


if __name__ == "__main__":
    main()
