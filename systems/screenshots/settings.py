"""The settings of the screenshots, read from the environment.

The browser reads three more by itself: SCREENSHOTS_ALLOW, SCREENSHOTS_PORTS, SCREENSHOTS_CHROMIUM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from systems.common.variables import Reader, amount, folder, read_variables, server, service, text, whole

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings. Each field is read from the variable of the same name in capitals."""

    database_url: str = "sqlite:///data/screenshots.db"
    redis_url: str = field(default="", repr=False)  #: dispatches due jobs; empty to let the database do it
    images_dir: Path = Path("data/images")
    policies_file: Path = HERE / "holdfast.toml"  #: policies per type, limits per user, windows (S10)
    sla_file: Path = HERE / "sla.toml"  #: what customers are promised (E76)
    screenshot_price: int = 1  #: in credits; 0 makes it free
    pdf_price: int = 2
    shot_seconds: float = 20.0  #: for one picture, in total
    worker_concurrency: int = 2  #: pictures at a time in one worker process
    worker_lease_ttl_sec: int = 90
    worker_max_crashes: int = 3
    stuck_after_sec: int = 1_800  #: an attempt that runs longer is stuck
    stuck_jobs_every_sec: int = 300  #: how often stuck attempts are reclaimed (S4)
    stuck_jobs_batch: int = 100  #: how many stuck attempts are reclaimed at a time
    #: The engine makes due jobs claimable within 1 s (S4). The scheduler's status says that they are late …
    failed_jobs_every_sec: int = 30  #: … after this time for retries
    delayed_jobs_every_sec: int = 10  #: … and after this time for all due jobs
    books_every_sec: int = 5  #: how often events are copied to the books, and due promises are checked
    job_retention_sec: int = 2_592_000
    samples_url: str = ""  #: the server of the sample pages, which the page then offers

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings.

        An empty variable counts as unset. Raises `UsageError` that names an invalid variable.
        """
        return cls(**read_variables(_READERS, environment))


_READERS: dict[str, Reader] = {
    "database_url": text,
    "redis_url": server("redis", "rediss"),
    "images_dir": folder,
    "policies_file": folder,
    "sla_file": folder,
    "screenshot_price": whole(0, 1_000_000),
    "pdf_price": whole(0, 1_000_000),
    "shot_seconds": amount(600),
    "worker_concurrency": whole(1, 64),
    "worker_lease_ttl_sec": whole(2, 3_600),
    "worker_max_crashes": whole(1, 1_000),
    "stuck_after_sec": whole(1, 86_400),
    "stuck_jobs_every_sec": whole(1, 86_400),
    "stuck_jobs_batch": whole(1, 10_000),
    "failed_jobs_every_sec": whole(1, 86_400),
    "delayed_jobs_every_sec": whole(1, 86_400),
    "books_every_sec": whole(1, 3_600),
    "job_retention_sec": whole(1, 1_000_000_000),
    "samples_url": service("http://127.0.0.1:8001"),
}
