"""Foreign text for a terminal or a line of a log: it makes no line of its own and moves no cursor."""

from __future__ import annotations


def printable(text: str) -> str:
    """*text* in one line: control characters, line ends and marks that turn the direction of writing are escaped as in
    `repr()`, e.g. `\\n` and `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def printable_lines(text: str) -> list[str]:
    """The lines of *text*, such as a traceback, each printable."""
    return [printable(line) for line in text.split("\n")]
