"""What an index or an installer reads of the package."""

from __future__ import annotations

import subprocess
import sys
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys, hatchling.build as b; print(b.prepare_metadata_for_build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Message:
    folder = tmp_path_factory.mktemp("metadata")
    command = [sys.executable, "-c", BUILD, str(folder)]
    name = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()[-1]
    return message_from_string((folder / name / "METADATA").read_text())


def test_the_metadata_of_the_wheel_carries_the_readme(metadata: Message) -> None:
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text().strip()


def test_users_get_a_typer_that_does_not_bring_pydantic(metadata: Message) -> None:
    [typer] = [need for need in metadata.get_all("Requires-Dist", []) if need.startswith("typer")]
    assert "<0.29" in typer
    base = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert not any(need.startswith("pydantic") for need in base)
