"""What the handlers of a test write down, all of them in one file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


def note(what: str, name: str = "", **facts: Any) -> None:
    """One line in the journal that all processes of a test share. Who reads meanwhile may see half of it."""
    line = json.dumps({"what": what, "name": name, "pid": os.getpid(), "at": time.monotonic(), **facts})
    journal = os.open(Path(os.environ["FAULTS_FOLDER"]) / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(journal, f"{line}\n".encode())
    finally:
        os.close(journal)
