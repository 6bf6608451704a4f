"""Write docs/explanation/evidence.md and its pictures from the records: `python -m tools.evidence`.

With `--check` nothing is written, and a page that differs from the records is an error. With `--run` all
records are made again first, one after the other, which takes about an hour. To try that in a few minutes,
with another folder:

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


def generated_files(folder: Path = KEPT) -> dict[Path, str]:
    """Return the text of each file that is generated from the records in *folder*."""
    records = load(folder)
    return {
        folder.parent / "evidence.md": page(records),
        folder / "troubles.svg": bars("What was done to the simulated clusters", troubles(records)),
        folder / "recovery.svg": curves(
            "Jobs of killed workers: how many ran again, after", records.tortures
        ),
    }


def _run(options: argparse.Namespace, folder: Path) -> None:
    sizes = {"seeds": options.seeds, "fifth": options.seeds // 5, "minutes": f"{options.minutes:g}"}
    for name, template in COMMANDS.items():
        file = folder / f"{name}.json"
        shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        command = shlex.split(template.format(**sizes, mutants=options.mutants, file=shlex.quote(str(shown))))
        sys.stdout.write(f"{shlex.join(command)}\n")
        sys.stdout.flush()
        done = subprocess.run([sys.executable, *command[1:]], cwd=ROOT)
        if done.returncode:
            raise SystemExit(
                f"evidence: {name} failed with code {done.returncode}; see its output above, fix it, and run this again"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page differs from the records"
    )
    parser.add_argument("--run", action="store_true", help="make all records again first")
    parser.add_argument("--seeds", type=int, default=1000, help="seeds in memory; a fifth of them on SQLite")
    parser.add_argument("--minutes", type=float, default=10.0, help="minutes of each torture run")
    parser.add_argument("--mutants", default="", help="words in the names of the bugs to plant (all)")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="write here instead of docs/explanation")
    options = parser.parse_args()
    folder = KEPT if options.into is None else options.into.resolve() / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    if options.run:
        _run(options, folder)
    for path, text in generated_files(folder).items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not current; run: {COMMAND}")


if __name__ == "__main__":
    main()
