"""The browser: a real Chromium in a separate process, with limits on time, memory and count.

```text
Browser (caller's process) ── a socket ──▶ child: Studio ── playwright ──▶ Chromium ──▶ guard (in the child) ──▶ the web
                                             └ one Visit for each job: its own browser context, its own port of the guard
```

Tasks use `Browser`: `await browser.shoot(Shot(url=…))` returns a `Picture` or raises `ShotFailed`. It limits
how many pictures are taken at a time, and replaces a child that was lost or does not answer. The studio
starts Chromium, replaces it after a number of jobs or when it crashes, and limits its memory. A page can hang
its visit, at worst Chromium, but never the caller.
"""

from systems.screenshots.browser.browser import Browser
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.studio import Studio

__all__ = ["Browser", "Limits", "Studio"]
