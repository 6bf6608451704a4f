"""The guard: the only way from the browser to the network.

```text
page ──▶ Chromium ── one port a job ──▶ guard ──resolve, all addresses open?──▶ that very address
```

A forward proxy (absolute-form HTTP, CONNECT, upgrades). Names are resolved here and nowhere else: every address of the
answer is checked against the table of `holdfast.outbound`, and the connection goes to a checked one, so that a name which
answers differently the second time gains nothing. What is closed gets one answer, equal in text and time, and the
job that asked is told on. Each job has a port of its own, so what comes through it needs no name.
"""

from systems.screenshots.guard.passes import Bounds, Pass, Trouble
from systems.screenshots.guard.proxy import Dial, Guard
from systems.screenshots.guard.rules import Rules

__all__ = ["Bounds", "Dial", "Guard", "Pass", "Rules", "Trouble"]
