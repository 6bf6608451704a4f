"""Failures of one cause have one fingerprint."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.fingerprint import fingerprint, mask

A_UUID, B_UUID = "0190a0b0-1111-7abc-8def-0123456789ab", "0190A0B0-2222-7ABC-8DEF-FFFFFFFFFFFF"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"job {A_UUID} was refused", f"job {B_UUID} was refused"),
        ("line 12, column 3", "line 4056, column 17"),
        ("took 1.5 s", "took 30 s"),
        ("cannot open /srv/a/b.pdf", "cannot open /home/ann/docs/c.pdf"),
        ("GET https://a.example/x?token=1 failed", "GET http://b.example:8080/y failed"),
        ("connect to 10.0.0.1:5432 failed", "connect to 192.168.1.77 failed"),
        ("no such key 'abc'", "no such key 'a longer one'"),
        ('no such key "abc"', 'no such key ""'),
        ("object at 0x7f31c0ffee00", "object at 0xdeadbeef"),
        ("digest 0123456789abcdef differs", "digest ffffffffffffffffffff differs"),
        ("at 2026-01-01T10:00:00Z", "at 2025-12-31T23:59:59Z"),
    ],
)
def test_what_differs_between_two_occurrences_is_masked(one: str, other: str) -> None:  # E70
    assert mask(one) == mask(other)
    assert fingerprint("t", "C", "E", one) == fingerprint("t", "C", "E", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("connection refused", "connection reset"),
        ("cannot open /srv/a/b", "cannot write /srv/a/b"),
        ("can't read the page, won't retry", "can't reach the host, won't retry"),
        ("no such key 'a'", "no such table 'a'"),
        ("", "x"),
    ],
)
def test_words_tell_causes_apart(one: str, other: str) -> None:  # E70
    assert fingerprint("t", "C", "E", one) != fingerprint("t", "C", "E", other)


def test_task_code_and_type_tell_causes_apart() -> None:  # E70
    prints = {
        fingerprint("t", "C", "E", ""),
        fingerprint("u", "C", "E", ""),
        fingerprint("t", "D", "E", ""),
        fingerprint("t", "C", "F", ""),
        fingerprint("tC", "", "E", ""),
    }
    assert len(prints) == 5


@given(st.text(max_size=600), st.text(max_size=20))
def test_any_text_has_a_short_print_that_stays_the_same(message: str, task: str) -> None:  # E70
    first = fingerprint(task, "C", "E", message)
    fingerprint.cache_clear()
    assert fingerprint(task, "C", "E", message) == first
    assert len(first) == 12
    assert int(first, 16) >= 0


@given(st.integers(min_value=0), st.uuids(), st.ip_addresses(v=4))
def test_numbers_ids_and_addresses_never_matter(number: int, uuid: object, address: object) -> None:  # E70
    assert mask(f"step {number} of {uuid} at {address} failed") == "step <n> of <id> at <address> failed"


def test_masking_twice_changes_nothing_more() -> None:  # E70
    text = f"GET https://a.example/x/{A_UUID} from 10.0.0.1 took 3.5 s: 'no' /srv/a/b 0xff"
    assert mask(mask(text)) == mask(text)


def test_a_print_is_the_same_in_another_process() -> None:  # E70
    code = "from holdfast.jobs.fingerprint import fingerprint as f; print(f('t', 'C', 'E', 'boom 7'))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == fingerprint("t", "C", "E", "boom 8")
