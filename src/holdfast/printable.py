"""Make untrusted text safe for a terminal or a log: it cannot start a new line or move the cursor."""

from __future__ import annotations


def printable(text: str) -> str:
    r"""Return *text* on one line.

    Control characters, line ends and marks that change the writing direction are escaped as in `repr()`,
    e.g. `\n` and `\x1b`.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def printable_lines(text: str) -> list[str]:
    """Split *text*, such as a traceback, into lines and make each printable."""
    return [printable(line) for line in text.split("\n")]
