"""Calls to addresses that users gave: one client, which looks before it leaps."""

from holdfast.outbound.client import Answer, Outbound, Unreachable

__all__ = ["Answer", "Outbound", "Unreachable"]
