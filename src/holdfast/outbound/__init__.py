"""Calls to addresses that users gave: one client, which looks before it leaps.

Public as a module, for programs that must keep to the same table of addresses with connections of their own.
"""

from holdfast.domain.addresses import Address, NetworkTarget, is_open, read_target
from holdfast.errors import TargetNotAllowed
from holdfast.outbound.client import HostUnreachable, Outbound, Resolve, Response, look_up, open_addresses

__all__ = [
    "Address",
    "HostUnreachable",
    "NetworkTarget",
    "Outbound",
    "Resolve",
    "Response",
    "TargetNotAllowed",
    "is_open",
    "look_up",
    "open_addresses",
    "read_target",
]
