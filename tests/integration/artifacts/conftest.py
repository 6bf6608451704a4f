"""An app that keeps large results and files in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.apps import Database, new_app


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.fixture
def app(db: Database, kept: Path) -> Holdfast:
    return new_app(db.url, result_limit=1000, artifacts=kept)
