"""Settings: keywords over environment over defaults, and a clear word about nonsense."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import UsageError
from holdfast.tasks.settings import Settings


def test_keywords_win_over_the_environment_and_that_over_defaults() -> None:
    settings = Settings.read(
        {"lease": "30s"}, {"HOLDFAST_LEASE": "60s", "HOLDFAST_CONCURRENCY": "3", "HOLDFAST_POLL": ""}
    )
    assert (settings.lease, settings.concurrency) == (timedelta(seconds=30), 3)
    assert (settings.poll, settings.payload_limit) == (timedelta(seconds=1), 1_000_000)


def test_a_heart_beats_three_times_in_a_lease_unless_told() -> None:
    assert Settings.read({"lease": "90s"}, {}).beat_every == timedelta(seconds=30)
    assert Settings.read({"lease": "90s", "heartbeat": "10s"}, {}).beat_every == timedelta(seconds=10)
    for lease in ("1s", "2s", "90s"):  # a third of it need not be a whole number of microseconds
        Settings.read({"lease": lease}, {})
    Settings.read({"lease": "9s", "heartbeat": "3s"}, {})
    with pytest.raises(UsageError, match="at most a third of the lease"):
        Settings.read({"lease": "9s", "heartbeat": "3001ms"}, {})


@pytest.mark.parametrize(
    ("given", "environment", "words"),
    [
        ({"leese": "1s"}, {}, "no setting leese; did you mean lease?"),
        ({"xyz": 1}, {}, "no setting xyz; there are: artifacts, broker, child_jobs, child_memory,"),
        ({"artifacts": "ftp://x/y"}, {}, "artifacts: artifacts cannot be stored in 'ftp'; use a folder,"),
        ({}, {"HOLDFAST_ARTIFACTS": "gs://bucket"}, "HOLDFAST_ARTIFACTS: artifacts cannot be stored in 'gs'"),
        ({"keep_logs": "sometimes"}, {}, "keep_logs is 'sometimes'; it is one of failed, always, never"),
        (
            {},
            {"HOLDFAST_KEEP_LOGS": "yes"},
            "HOLDFAST_KEEP_LOGS is 'yes'; it is one of failed, always, never",
        ),
        (
            {},
            {"HOLDFAST_DISPATCH": "kafka://u:secret@h"},
            "HOLDFAST_DISPATCH: 'kafka' cannot dispatch jobs; use redis",
        ),
        ({"lease": "soon"}, {}, "lease: 'soon' is not a duration"),
        ({}, {"HOLDFAST_LEASE": "soon"}, "HOLDFAST_LEASE: 'soon' is not a duration"),
        ({"lease": 0}, {}, "lease is 0; it must be longer"),
        ({"poll": "0s"}, {}, "poll is 0; it must be longer"),
        ({"heartbeat": timedelta()}, {}, "heartbeat is 0; it must be longer"),
        ({"lease": -1}, {}, "lease: -1 is out of range"),
        ({"concurrency": 0}, {}, "concurrency is 0; it must be at least 1"),
        ({"concurrency": 2.5}, {}, "concurrency is 2.5; it must be a whole number"),
        ({"concurrency": float("inf")}, {}, "concurrency is inf; it must be a whole number"),
        ({}, {"HOLDFAST_CONCURRENCY": "many"}, "HOLDFAST_CONCURRENCY is 'many'; it must be a whole number"),
        ({"payload_limit": -5}, {}, "payload_limit is -5; it must be at least 1"),
    ],
)
def test_nonsense_is_named_with_its_source(
    given: dict[str, Any], environment: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError) as refused:
        Settings.read(given, environment)
    assert str(refused.value).startswith(words)
    assert "\n" not in str(refused.value)


def test_artifacts_go_to_a_folder_or_a_bucket_and_nowhere_by_default() -> None:  # E42
    assert (Settings.read({}, {}).artifacts, Settings.read({}, {}).keep_logs) == (None, "failed")
    assert Settings.read({"artifacts": Path("/srv/results")}, {}).artifacts == "/srv/results"
    for place in ("results", "file:///srv/results", "s3://bucket/prefix", "memory://"):
        assert Settings.read({}, {"HOLDFAST_ARTIFACTS": place}).artifacts == place


def test_no_grace_at_all_is_a_choice() -> None:
    assert Settings.read({"grace": 0}, {}).grace == timedelta()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "url is empty; name a store"),
        (" ", "url is empty; name a store"),
        ("jobs.db", r"'jobs\.db' is not a store; use sqlite:///file\.db"),
        ("mysql://me:secret@host/jobs", r"'mysql' is not a store; use sqlite:///file\.db"),
    ],
)
def test_a_url_that_names_no_store_is_refused_when_the_app_is_made(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        Holdfast(url)
    assert "secret" not in str(refused.value)
