"""The resource limits of each job and of the browser."""

from __future__ import annotations

import msgspec

from systems.screenshots.guard import Bounds


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on time, memory, size and count."""

    concurrency: int = 2  #: pictures at a time
    seconds: float = 20.0  #: of wall time for one job, in total
    selector_seconds: float = 5.0  #: how long after the load a match for the selector is waited for
    page_bytes: int = 768 << 20  #: of memory, for each process of a page
    memory_bytes: int = 2048 << 20  #: for Chromium as a whole
    jobs: int = 100  #: after which Chromium is replaced
    most_side: int = 16_384  #: of a picture in pixels: the most that Chromium can draw in one piece
    most_pixels: int = 64_000_000
    most_picture_bytes: int = 48 << 20
    most_sheets: int = 100  #: of a pdf
    dialogs: int = 20  #: that are dismissed before the job fails
    popups: int = 20  #: that are closed before the job fails; Chromium is set to open none
    navigations: int = 20  #: that the page may make by itself before the job fails
    network: Bounds = msgspec.field(default_factory=Bounds)
