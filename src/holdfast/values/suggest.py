"""Suggest known names that look like a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

#: The least similarity (0 to 1) of a suggested name, and how far it may be below the best match.
_LEAST_SIMILARITY, _BELOW_BEST = 0.6, 0.1


def suggest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error text about an unknown *word*.

    It is "did you mean x?" when a known name is similar, otherwise the list of known names. A sequence is
    listed in its own order, anything else is sorted.
    """
    names, word = list(known) if isinstance(known, Sequence) else sorted(known), str(word)
    folded = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), folded, 3, _LEAST_SIMILARITY)
    if close:
        similarity = {name: SequenceMatcher(None, name, word.lower()).ratio() for name in close}
        best = [folded[name] for name in close if similarity[name] >= similarity[close[0]] - _BELOW_BEST]
        return f"did you mean {' or '.join(best)}?"
    return f"there are: {', '.join(names[:40])}" if names else "there are none"
