"""Why a submission has failed, in words for the learner. Every code a worker or the engine may end it with."""

from __future__ import annotations

_WORDS = {
    "TIMEOUT": "It was not graded in time.",
    "AUDIO_DECODE_ERROR": "The recording cannot be decoded; send it again as a WAV file.",
    "AUDIO_MISSING": "The recording is no longer there; send it again.",
    "AUDIO_CHANGED": "The recording was damaged on its way; send it again.",
    "RETRIES_EXHAUSTED": "The grader had trouble each time it tried; an operator can send it again.",
    "INVALID_SCHEMA": "The grader's answer was not of the form that was asked for; an operator can send it again.",
    "REFUSED_BY_MODEL": "The grader declined to grade this.",
    "PROVIDER_REFUSED": "The grader refused the request; an operator has to look at it.",
    "INVALID_MESSAGE": "The request was damaged on its way; an operator can send it again.",
    "WORKER_LOST": "Its workers were lost each time; an operator has to look at it.",
    "CANCELLED": "It was cancelled.",
}


def words_for(code: str) -> str:
    return _WORDS.get(code, "Something unexpected went wrong; an operator has to look at it.")
