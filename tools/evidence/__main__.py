"""Write docs/explanation/evidence.md and its pictures from the records: `python -m tools.evidence`.

With `--check` nothing is written, and a page that is not what the records make is an error. With `--run` every record is made
again first, one after the other: about an hour. To try that in some minutes, with records and page somewhere else:

    python -m tools.evidence --run --seeds 100 --minutes 0.5 --mutants fence --into /tmp/evidence
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from pathlib import Path

from tools.evidence.page import COMMAND, page, troubles
from tools.evidence.plots import bars, curves
from tools.evidence.records import COMMANDS, KEPT, ROOT, load


def made(folder: Path = KEPT) -> dict[Path, str]:
    """Everything that is made of the records in *folder*: file → text."""
    records = load(folder)
    return {
        folder.parent / "evidence.md": page(records),
        folder / "troubles.svg": bars("What was done to the simulated clusters", troubles(records)),
        folder / "recovery.svg": curves(
            "Jobs of killed workers: how many ran again, after", records.tortures
        ),
    }


def _run(given: argparse.Namespace, folder: Path) -> None:
    sizes = {"seeds": given.seeds, "fifth": given.seeds // 5, "minutes": f"{given.minutes:g}"}
    for name, command in COMMANDS.items():
        file = folder / f"{name}.json"
        told = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        words = shlex.split(command.format(**sizes, mutants=given.mutants, file=shlex.quote(str(told))))
        sys.stdout.write(f"{shlex.join(words)}\n")
        sys.stdout.flush()
        done = subprocess.run([sys.executable, *words[1:]], cwd=ROOT)
        if done.returncode:
            raise SystemExit(
                f"evidence: {name} came to code {done.returncode}; look above, mend it, and run it again"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; is the page what the records make?"
    )
    parser.add_argument("--run", action="store_true", help="make every record again first")
    parser.add_argument("--seeds", type=int, default=1000, help="in memory; a fifth of them on SQLite")
    parser.add_argument("--minutes", type=float, default=10.0, help="of torture, each")
    parser.add_argument("--mutants", default="", help="words in the names of those to plant; all, if none")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="not docs/explanation, but there")
    given = parser.parse_args()
    folder = KEPT if given.into is None else given.into.resolve() / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    if given.run:
        _run(given, folder)
    for path, text in made(folder).items():
        if not given.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not current; run: {COMMAND}")


if __name__ == "__main__":
    main()
