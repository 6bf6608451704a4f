"""What a person probably meant: the known names that look like the one given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

#: How like a name must be to be offered, and how much less like it may be than the best.
_LIKE, _WORSE = 0.6, 0.1


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean x?` where something is close, else all that is known, a list in its own order: the end of an error's line."""
    names, word = list(known) if isinstance(known, Sequence) else sorted(known), str(word)
    folded = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), folded, 3, _LIKE)
    if close:
        likeness = {name: SequenceMatcher(None, name, word.lower()).ratio() for name in close}
        best = [folded[name] for name in close if likeness[name] >= likeness[close[0]] - _WORSE]
        return f"did you mean {' or '.join(best)}?"
    return f"there are: {', '.join(names[:40])}" if names else "there are none"
