"""Attach the tracebacks of handlers to failures, with short file names and without secrets."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import lru_cache

from holdfast.jobs.tracebacks import REMOTE, Raised, Traceback, observe
from holdfast.jobs.verdict import Failure
from holdfast.redaction import redact_text

#: Folders that packages are installed in; the path after them names the file.
_INSTALLED = ("/site-packages/", "/dist-packages/")


def traced(failure: Failure, error: BaseException) -> Failure:
    """Return *failure* with the traceback of *error*, if it has frames outside of Holdfast."""
    raised = observe(error, file_name, redact_text, with_message=False)
    return _with(failure, _text_of(raised)) if raised.has_frames else failure


def raised_of(error: BaseException) -> Raised:
    """Return type, message and frames of *error*, with short file names and without secrets."""
    return observe(error, file_name, redact_text)


def carry(error: BaseException, raised: Raised) -> None:
    """Attach to an exception from another process what was observed of it there."""
    error.__dict__[REMOTE] = raised


#: Most failures happen in a few places, so their text is made once.
_text_of = lru_cache(maxsize=256)(Traceback.of)


@lru_cache(maxsize=1024)
def _with(failure: Failure, traceback: Traceback) -> Failure:
    """Return one value for all jobs that fail in the same way, so that stores write it once."""
    return replace(failure, traceback=traceback)


@lru_cache(maxsize=4096)
def file_name(path: str) -> str:
    """Return *path* relative to its packages folder, to the working folder or to an entry of `sys.path`."""
    shown = path.replace("\\", "/")
    for folder in _INSTALLED:
        if folder in shown:
            return shown.rpartition(folder)[2]
    if not os.path.isabs(path):
        return shown
    roots = sorted((root for root in sys.path if os.path.isabs(root)), key=len, reverse=True)
    for root in (os.getcwd(), *roots):
        inside = os.path.join(root, "")
        if path.startswith(inside):
            return path[len(inside) :]
    return os.path.basename(path)
