"""The bugs that `make mutants` plants still fit the source: it takes minutes, so nobody runs it on every change."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from tools.mutants import MUTANTS, NETS, Mutant

SOURCE = Path(holdfast.__file__).parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_bug_can_be_planted_and_some_net_looks_there(mutant: Mutant) -> None:
    assert (SOURCE / mutant.file).read_text(encoding="utf-8").count(mutant.old) == 1
    assert mutant.old != mutant.new
    assert any(mutant.file.startswith(seen) for _, seen in NETS.values())
