"""The converter's knobs, read from the environment under exactly these names (C11)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from holdfast import UsageError

Mode = Literal["hold", "fail_fast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each field is the variable of the same name in capitals."""

    database_url: str = "sqlite:///data/converter.db"
    gateway_url: str = "http://127.0.0.1:8080"
    uploads_dir: Path = Path("data/uploads")
    results_dir: Path = Path("data/results")
    retry_max_attempts: int = 3
    retry_base_delay_ms: int = 5_000
    retry_jitter_max_ms: int = 5_000
    worker_lease_ttl_sec: int = 90
    worker_concurrency: int = 10
    worker_max_crashes: int = 3  #: so many workers in a row may be lost with a job before it is given up
    gateway_timeout_ms: int = 60_000
    circuit_window: str = "20"  #: so many calls, or a time such as "120s"
    circuit_fail_threshold: float = 0.5
    circuit_cooldown_ms: int = 30_000
    circuit_mode: Mode = "hold"
    source_retention_sec: int = 604_800  #: so long after its upload a PDF is kept, or until its job has ended
    result_retention_sec: int = 604_800  #: so long after its end the XML is kept
    job_retention_sec: int = 2_592_000  #: and what is known of a job
    free_space_min_mb: int = 256  #: with less than this free, no upload is taken
    session_key_file: Path = Path("data/session.key")  #: signs the cookies; made when it is not there

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """`UsageError` names the variable that cannot be read. An empty one counts as not set."""
        values: dict[str, Any] = {}
        for name, read in _READERS.items():
            variable = name.upper()
            if text := environment.get(variable, "").strip():
                values[name] = read(variable, text)
        return cls(**values)


Reader = Callable[[str, str], Any]


def _whole(least: int, most: int) -> Reader:
    def read(variable: str, text: str) -> int:
        # `int` would take "1_000" and digits of other scripts; more than 12 of them are no setting.
        if not (text.isascii() and text.isdigit() and len(text) <= 12) or not least <= int(text) <= most:
            raise UsageError(f"{variable} is {text[:40]!r}; it is a whole number from {least} to {most}")
        return int(text)

    return read


def _share(variable: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or not 0 < float(text) <= 1:
        raise UsageError(f"{variable} is {text[:40]!r}; it is a share above 0 and at most 1, e.g. 0.5")
    return float(text)


def _window(variable: str, text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{0,3}|[1-9][0-9]{0,4}(s|m|h)", text):
        raise UsageError(f'{variable} is {text[:40]!r}; it is a number of calls ("20") or a time ("120s")')
    return text


def _mode(variable: str, text: str) -> Mode:
    if text not in ("hold", "fail_fast"):
        raise UsageError(f"{variable} is {text[:40]!r}; it is hold or fail_fast")
    return cast(Mode, text)


def _address(variable: str, text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{variable} does not name a service; it is an address such as http://127.0.0.1:8080"
        )
    return text.rstrip("/")


def _text(_: str, text: str) -> str:
    return text


def _folder(_: str, text: str) -> Path:
    return Path(text)


_READERS: dict[str, Reader] = {
    "database_url": _text,
    "gateway_url": _address,
    "uploads_dir": _folder,
    "results_dir": _folder,
    "retry_max_attempts": _whole(1, 100),
    "retry_base_delay_ms": _whole(1, 3_600_000),
    "retry_jitter_max_ms": _whole(0, 3_600_000),
    "worker_lease_ttl_sec": _whole(2, 3_600),
    "worker_concurrency": _whole(1, 1_000),
    "worker_max_crashes": _whole(1, 1_000),
    "gateway_timeout_ms": _whole(1, 3_600_000),
    "circuit_window": _window,
    "circuit_fail_threshold": _share,
    "circuit_cooldown_ms": _whole(1, 3_600_000),
    "circuit_mode": _mode,
    "source_retention_sec": _whole(1, 1_000_000_000),
    "result_retention_sec": _whole(1, 1_000_000_000),
    "job_retention_sec": _whole(1, 1_000_000_000),
    "free_space_min_mb": _whole(0, 1_000_000_000),
    "session_key_file": _folder,
}
