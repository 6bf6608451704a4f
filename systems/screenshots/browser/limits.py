"""What a job, and the browser as a whole, may use."""

from __future__ import annotations

import msgspec

from systems.screenshots.guard import Bounds


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    sittings: int = 2  #: at a time
    seconds: float = 20.0  #: of one job on the wall, with everything
    selector_seconds: float = 5.0  #: so long after the load something that matches may still appear
    page_bytes: int = 768 << 20  #: of memory, for each process of a page
    memory_bytes: int = 2048 << 20  #: for Chromium as a whole
    jobs: int = 100  #: then Chromium is replaced
    most_side: int = 16_384  #: of a picture in pixels: what Chromium can draw in one piece
    most_pixels: int = 64_000_000
    most_picture_bytes: int = 48 << 20
    most_sheets: int = 100  #: of a pdf
    dialogs: int = 20  #: are dismissed
    popups: int = 20  #: Chromium opens none; should one appear all the same it is closed, and after this many the job fails
    navigations: int = 20  #: of the page by itself are followed
    network: Bounds = msgspec.field(default_factory=Bounds)
