"""What passes between the pool and a nursery. Apart from both: the pool's process loads no parser."""

from __future__ import annotations

import msgspec

from systems.converter.refusals import Refusal

#: The largest order or answer.
MESSAGE_BYTES = 4096


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an order; no refusal means that the XML is written."""

    refusal: Refusal | None = None
    error: str = ""  #: of our own making: what the log should say
    ready: bool = False
    confined: bool = False  #: with `ready`: whether the network is denied
