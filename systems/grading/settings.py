"""Grading's settings, read from environment variables of exactly these names (G2, G3, G5, G7)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast import UsageError
from systems.common.variables import Reader, folder, read_variables, server, service, text, whole

SHORTEST_SECRET = 24
#: The file in which `make run SYSTEM=grading` leaves the address of its private broker.
URL_FILE = "url"
_PRIVATE_BROKER = Path("data/rabbitmq") / URL_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings. Each field is set by the variable of the same name in capitals."""

    database_url: str = "sqlite:///data/grading.db"
    broker_url: str = "amqp://guest:guest@127.0.0.1:5672/"
    provider_url: str = "http://127.0.0.1:8090"
    provider_key: str = "stand-in"  #: sent as the bearer token of the provider
    llm_model: str = "grader-1"
    stt_model: str = "whisper-1"
    callback_secrets: tuple[str, ...] = ()  #: the first signs; all verify, so that secrets can be rotated
    audio_dir: Path = Path("data/audio")  #: the folder of recordings, shared by the API and the workers
    #: The workers' ledger: a file for workers on one machine, a PostgreSQL address for several machines.
    ledger: Path | str = Path("data/grading-ledger.db")
    # The relay.
    outbox_poll_interval_ms: int = 5_000
    outbox_batch_size: int = 50
    outbox_stale_threshold_ms: int = 60_000
    # Deadlines.
    sla_writing_ms: int = 20 * 60_000
    sla_speaking_ms: int = 60 * 60_000
    timeout_check_interval_ms: int = 60_000  #: the interval of the search for passed deadlines
    #: A request that waits longer is published again, since the broker may have been purged.
    redispatch_after_ms: int = 5 * 60_000
    #: A worker that began a request and sends nothing for this long counts as lost.
    attempt_lease_ms: int = 10 * 60_000
    # The worker.
    max_retries: int = 3
    retry_base_ms: int = 1_000  #: doubled with each retry
    retry_jitter_ms: int = 1_000
    retry_cap_ms: int = 300_000
    provider_timeout_ms: int = 60_000
    worker_lease_ms: int = 30_000  #: how long a worker holds a request; it renews this while it works
    max_crashes: int = 3
    circuit_window: int = 20
    circuit_cooldown_ms: int = 30_000
    circuit_trials: int = 3
    callback_tries: int = 6
    callback_base_ms: int = 500
    worker_metrics_port: int = 0  #: the port of a Celery worker's /metrics on 127.0.0.1; 0 for none

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Return the settings in *environment*. An empty variable counts as not set.

        Without BROKER_URL the broker is that of a `make run` in this folder, if one runs.

        Raises:
            UsageError: A variable has an invalid value; the message names it.
        """
        values = read_variables(_READERS, environment)
        if "broker_url" not in values:
            with contextlib.suppress(OSError):
                values["broker_url"] = _PRIVATE_BROKER.read_text().strip()
        return cls(**values)

    def sla_ms(self, skill: str) -> int:
        """Return the time that a submission of *skill* has until its deadline."""
        return self.sla_speaking_ms if skill == "speaking" else self.sla_writing_ms


def _secrets(variable: str, text: str) -> tuple[str, ...]:
    secrets = tuple(secret for part in text.split(",") if (secret := part.strip()))
    if any(len(secret) < SHORTEST_SECRET for secret in secrets):
        raise UsageError(
            f"{variable} holds a secret of less than {SHORTEST_SECRET} characters;"
            " make one with `openssl rand -hex 32`"
        )
    return secrets


def _ledger(variable: str, text: str) -> Path | str:
    return text if text.startswith(("postgresql://", "postgres://")) else Path(folder(variable, text))


_TIME = whole(1, 86_400_000)
_READERS: dict[str, Reader] = {
    "database_url": text,
    "broker_url": server("amqp", "amqps"),
    "provider_url": service("http://127.0.0.1:8090"),
    "provider_key": text,
    "llm_model": text,
    "stt_model": text,
    "callback_secrets": _secrets,
    "audio_dir": folder,
    "ledger": _ledger,
    "outbox_poll_interval_ms": _TIME,
    "outbox_batch_size": whole(1, 1_000),
    "outbox_stale_threshold_ms": _TIME,
    "sla_writing_ms": _TIME,
    "sla_speaking_ms": _TIME,
    "timeout_check_interval_ms": _TIME,
    "redispatch_after_ms": whole(100, 86_400_000),
    "attempt_lease_ms": _TIME,
    "max_retries": whole(0, 100),
    "retry_base_ms": _TIME,
    "retry_jitter_ms": whole(0, 3_600_000),
    "retry_cap_ms": _TIME,
    "provider_timeout_ms": _TIME,
    "worker_lease_ms": whole(300, 3_600_000),
    "max_crashes": whole(1, 100),
    "circuit_window": whole(1, 1_000),
    "circuit_cooldown_ms": _TIME,
    "circuit_trials": whole(1, 100),
    "callback_tries": whole(1, 100),
    "callback_base_ms": _TIME,
    "worker_metrics_port": whole(0, 65_535),
}
