"""The message for the learner of each code with which a worker or the engine may end a submission."""

from __future__ import annotations

_MESSAGES = {
    "TIMEOUT": "It was not graded in time.",
    "AUDIO_DECODE_ERROR": "The recording cannot be decoded; send it again as a WAV file.",
    "AUDIO_MISSING": "The recording no longer exists; send it again.",
    "AUDIO_CHANGED": "The recording was damaged in transit; send it again.",
    "RETRIES_EXHAUSTED": "The grader failed on every attempt; an operator can send it again.",
    "INVALID_SCHEMA": "The grader's answer did not have the required form; an operator can send it again.",
    "REFUSED_BY_MODEL": "The grader declined to grade this.",
    "PROVIDER_REFUSED": "The grader refused the request; an operator must check it.",
    "INVALID_MESSAGE": "The request was damaged in transit; an operator can send it again.",
    "WORKER_LOST": "Every worker that tried was lost; an operator must check it.",
    "CANCELLED": "It was cancelled.",
}


def message_for(code: str) -> str:
    """Return the message of *code*, or a general one for an unknown code."""
    return _MESSAGES.get(code, "Something unexpected went wrong; an operator must check it.")
