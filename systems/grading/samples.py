"""A sample text and a sample recording for the page and the demo."""

from __future__ import annotations

from systems.grading.audio import make_recording

ESSAY = """Many people say that cities should close their centres to cars. I agree with them, although the change is not easy.

First, streets without cars are quiet and safe, because you need not look left and right all the time. Children can walk to
school, and shops gain customers who stay longer. Moreover, the air becomes cleaner, which helps everyone who lives there.

However, some people need their cars while they have no good bus. Therefore a city should improve its buses first, and close
its streets afterwards. Finally, it should ask the people who live there what they think.
"""
_SPEECH = "I like to travel, because I meet people. However, it is tiring."


def speech() -> bytes:
    """Return a recording of two seconds."""
    return make_recording(_SPEECH, seconds=2)
