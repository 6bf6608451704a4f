"""The messages between the pool and a fork server.

They have their own module because the pool loads no parser.
"""

from __future__ import annotations

import msgspec

from systems.converter.refusals import Refusal

#: The largest request or answer, in bytes.
MESSAGE_BYTES = 4096


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of a request. Without a refusal and an error the XML is written."""

    refusal: Refusal | None = None
    error: str = ""  #: an internal error, for the log
    ready: bool = False  #: the first message: the fork server accepts requests
    confined: bool = False  #: with `ready`: whether the network is denied
