"""Grade a text by simple rules, for the demo.

The same text always gets the same bands, which say little about its English. This module serves requests for
the JSON schema named `SCHEMA_NAME`. The text to grade follows the line `TEXT_BEGINS`.
"""

from __future__ import annotations

import re
from typing import Any

SCHEMA_NAME = "band_scores"
TEXT_BEGINS = "--- text ---"
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_LINKS = frozenset(
    (
        "however",
        "therefore",
        "moreover",
        "although",
        "because",
        "while",
        "whereas",
        "finally",
        "first",
        "thus",
    )
)


def grade(prompt: str) -> dict[str, Any]:
    """Return the bands of the text in *prompt*, their mean to the half band, and advice on the weakest."""
    text = prompt.rpartition(TEXT_BEGINS)[2].strip()
    words = [word.lower() for word in _WORD.findall(text)]
    sentences = [part for part in re.split(r"[.!?]+", text) if _WORD.search(part)]
    length = len(words)
    variety = len(set(words)) / length if length else 0.0
    mean = length / len(sentences) if sentences else 0.0
    links = sum(word in _LINKS for word in words)
    bands = {
        "task": _band(2 + min(length, 280) / 40),
        "coherence": _band(3 + min(links, 8) * 0.5 + min(len(sentences), 12) / 6),
        "vocabulary": _band(2 + variety * 5 + min(length, 200) / 100),
        "grammar": _band(4 + min(mean, 20) / 5 - (1 if mean > 40 else 0)),
    }
    if not words:
        bands = dict.fromkeys(bands, 0.0)
    return {"overall": _band(sum(bands.values()) / len(bands)), "bands": bands, "feedback": _advice(bands)}


def _band(value: float) -> float:
    return min(9.0, max(0.0, round(value * 2) / 2))


def _advice(bands: dict[str, float]) -> str:
    weakest = min(bands, key=lambda name: (bands[name], name))
    return {
        "task": "Say more: develop each point with a reason and an example.",
        "coherence": "Show how one thought leads to the next.",
        "vocabulary": "Use more different words.",
        "grammar": "Try longer sentences, and keep them under control.",
    }[weakest]
