"""The tracebacks of handlers: how this process names its files, and how a failure gets one."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import lru_cache

from holdfast.domain.tracebacks import REMOTE, Raised, Traceback, observe
from holdfast.domain.verdict import Failure
from holdfast.redaction import redact_text

#: Folders that packages are installed in; what follows names the file.
_INSTALLED = ("/site-packages/", "/dist-packages/")


def traced(failure: Failure, error: BaseException) -> Failure:
    """*failure* with the traceback of *error*, where it has any frames besides ours."""
    raised = observe(error, file_name, redact_text, with_message=False)
    return _with(failure, _text_of(raised)) if raised.has_frames else failure


def raised_of(error: BaseException) -> Raised:
    """What *error* is and where it came from, with this process's names of files and without secrets."""
    return observe(error, file_name, redact_text)


def carry(error: BaseException, raised: Raised) -> None:
    """Give an exception that came from another process what was observed of it there."""
    error.__dict__[REMOTE] = raised


#: Most failures happen at a few places: their text is made once.
_text_of = lru_cache(maxsize=256)(Traceback.of)


@lru_cache(maxsize=1024)
def _with(failure: Failure, traceback: Traceback) -> Failure:
    """One value for all jobs that fail in the same way: the stores write a shared failure once."""
    return replace(failure, traceback=traceback)


@lru_cache(maxsize=4096)
def file_name(path: str) -> str:
    """*path* as it is shown: relative to the folder of its packages, to the working folder or to `sys.path`."""
    told = path.replace("\\", "/")
    for folder in _INSTALLED:
        if folder in told:
            return told.rpartition(folder)[2]
    if not os.path.isabs(path):
        return told
    roots = sorted((root for root in sys.path if os.path.isabs(root)), key=len, reverse=True)
    for root in (os.getcwd(), *roots):
        inside = os.path.join(root, "")
        if path.startswith(inside):
            return path[len(inside) :]
    return os.path.basename(path)
