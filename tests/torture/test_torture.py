"""A short torture, so that the long one is known to work: `make torture MINUTES=10`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from devservices.postgres import find_binaries
from devservices.rabbitmq import RabbitMq
from holdfast.jobs.job import Event, JobId
from holdfast.outbox.relay import route
from tests.conftest import installed
from tests.e2e.faults.relay_app import TOPIC
from tests.e2e.faults.world import Site
from tests.torture import brokers
from tests.torture.audit import Summary, audit, percentile
from tests.torture.run import torture

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 5.0


@pytest.fixture(autouse=True)
def route_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site with brokers shortens the waits of all relays of this process: only until the end of its test."""
    for name in ("TAKEN_FOR", "DELIVER_WITHIN"):
        monkeypatch.setattr(route, name, getattr(route, name))


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.service)])
async def test_a_short_torture_loses_nothing(store: str, tmp_path: Path) -> None:  # E5 E30 E50
    if store == "postgres":
        installed(find_binaries)
    summary = await torture(store, SECONDS / 60, 3, tmp_path)
    assert summary.acknowledged > 1  # as many as came while the store was there
    assert summary.blows
    assert (summary.lost, summary.second_ends, summary.stuck, summary.broken) == ([], [], [], [])
    assert sum(summary.ended.values()) >= summary.acknowledged


async def test_a_short_torture_with_brokers_loses_no_job_and_no_message(
    rabbitmq: RabbitMq, tmp_path: Path
) -> None:  # E5 E44 E45
    summary = await torture("sqlite+brokers", SECONDS / 60, 2, tmp_path, rabbitmq)
    assert summary.messages > 1
    assert (summary.lost, summary.second_ends, summary.stuck, summary.broken) == ([], [], [], [])


async def test_the_audit_sees_what_is_lost_stuck_or_wrong(tmp_path: Path) -> None:
    async with Site(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path) as site:
        done = await site.enqueue("echo", value=5)
        await site.app.run_worker(until_idle=True)
        waiting = await site.enqueue("echo", value=6)
        summary = Summary("sqlite", "", 0, 0, 0)
        await audit(site, {JobId(done): 4, JobId(waiting): 6, JobId("gone"): 7}, summary)
    assert (summary.lost, summary.stuck) == (["gone"], [waiting])
    assert summary.broken == [f"{done}: its result is 5, not 4 (E4)"]
    assert not summary.holds


class Drained(RabbitMq):
    """A broker that was, and what had arrived there."""

    def __init__(self, *ids: str) -> None:
        self.ids = list(ids)


async def test_the_audit_sees_messages_that_are_lost_undone_or_out_of_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # E44
    monkeypatch.setattr(brokers, "drained", _ids)
    async with Site(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path, broker="amqp://nobody.invalid/") as site:
        for name in ("a", "b", "c", "d"):
            await site.app.outbox.publish(TOPIC, None, key="k", id=f"{name}/1")
        events = [_event(name) for name in ("a", "b", "c")]
        summary = Summary("sqlite", "", 0, 0, 0)
        await brokers.audit_messages(site, Drained("b/1", "a/1", "d/1", "a/1"), events, summary)
    assert (summary.messages, summary.doubles, summary.lost) == (3, 1, ["message c/1"])
    assert summary.stuck == [f"message {name}/1 is waiting" for name in ("a", "b", "c", "d")]
    assert summary.broken == [
        "message d/1 is of an end that was undone",
        "message b/1 arrived before a/1, which has the same key",
    ]


async def _ids(broker: Drained) -> list[str]:
    return broker.ids


def _event(job_id: str) -> Event:
    return Event(id=1, at=datetime.now(UTC), kind="complete", job_id=JobId(job_id), epoch=1, attempt=1)


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0], 1) == 3.0
    assert percentile([], 0.99) == 0.0
