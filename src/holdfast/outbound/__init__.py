"""HTTP calls to URLs that users gave, with a check that they lead to public addresses.

The module is public, for programs that apply the same address rules to their own connections.
"""

from holdfast.errors import TargetNotAllowed
from holdfast.outbound.client import HostUnreachable, Outbound, Resolve, Response, look_up, open_addresses
from holdfast.values.addresses import Address, NetworkTarget, is_open, read_target

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
