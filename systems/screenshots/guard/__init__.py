"""The guard: the only way from the browser to the network.

```text
page ──▶ Chromium ── one port for each job ──▶ guard ──resolve, all addresses open?──▶ that very address
```

The guard is a forward proxy (absolute-form HTTP, CONNECT, upgrades) with a separate port for each job. Names
are resolved only here: each address of the answer is checked against the table of `holdfast.outbound`, and
the connection goes to a checked one, so a name that resolves differently the second time gains nothing.

A request to a closed address, port or scheme gets a fixed refusal, equal in text and time, and fails the job.
A name that leads to a closed address is answered like an unknown name, so that no caller learns which names
exist inside our network.
"""

from systems.screenshots.guard.passes import Bounds, Pass, Violation
from systems.screenshots.guard.proxy import Dial, Guard
from systems.screenshots.guard.rules import Rules

__all__ = ["Bounds", "Dial", "Guard", "Pass", "Rules", "Violation"]
