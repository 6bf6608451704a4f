"""The guard: the only way from the browser to the network.

```text
page ──▶ Chromium ── one port a job ──▶ guard ──resolve, all addresses open?──▶ that very address
```

A forward proxy (absolute-form HTTP, CONNECT, upgrades). Names are resolved here and nowhere else: every address of the
answer is checked against the table of `holdfast.outbound`, and the connection goes to a checked one, so that a name which
answers differently the second time gains nothing. A URL that is closed by itself (its address, port or scheme) gets one
answer, equal in text and time, and ends the job that asked. A name that leads to a closed address is answered like a name that
does not exist, so that no caller learns which names there are inside. Each job has a port of its own.
"""

from systems.screenshots.guard.passes import Bounds, Pass, Trouble
from systems.screenshots.guard.proxy import Dial, Guard
from systems.screenshots.guard.rules import Rules

__all__ = ["Bounds", "Dial", "Guard", "Pass", "Rules", "Trouble"]
