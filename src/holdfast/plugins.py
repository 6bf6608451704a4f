"""What plug-ins are called with and what they answer: gates, transports and notifiers."""

from holdfast.engine.notice import Notice
from holdfast.outbox.model import Delivered, Message, Undelivered
from holdfast.resilience.gates import Admit, GateRequest, Hold, Reject

__all__ = ["Admit", "Delivered", "GateRequest", "Hold", "Message", "Notice", "Reject", "Undelivered"]
