"""The browser: real Chromium, in a process of its own, with limits on time, memory and count.

```text
Browser (caller's process) ── a socket ──▶ child: Studio ── playwright ──▶ Chromium ──▶ guard (in the child) ──▶ the web
                                             └ one Sitting a job: a context of its own, a port of the guard of its own
```

`Browser` is what tasks hold: `await browser.shoot(Shot(url=…))` gives a `Picture` or raises `ShotFailed`. It bounds how many
sit at a time, and replaces a child that was lost or does not answer. The studio opens Chromium, replaces it after
a number of jobs or when it crashes, and watches its memory. A page can hang its sitting, at worst Chromium; never the caller.
"""

from systems.screenshots.browser.browser import Browser
from systems.screenshots.browser.limits import Limits
from systems.screenshots.browser.studio import Studio

__all__ = ["Browser", "Limits", "Studio"]
