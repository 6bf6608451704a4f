"""A target for tests that keeps messages in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.outbox.model import Delivered, Delivery, Message


def _deliver(message: Message) -> Delivery:
    return Delivered()


class Box:
    """The messages sent to `memory://name`.

    `answer` decides the outcome of each; by default all are delivered.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.answer: Callable[[Message], Delivery] = _deliver

    def clear(self) -> None:
        """Remove all messages and restore the default `answer`."""
        self.messages.clear()
        self.answer = _deliver


_boxes: dict[str, Box] = {}


def box(name: str = "") -> Box:
    """Return the box of this name. There is one per name in a process."""
    return _boxes.setdefault(name, Box())


class MemoryTransport:
    """Delivers messages to a `Box`."""

    def __init__(self, name: str) -> None:
        self._box = box(name)

    async def open(self) -> None:
        pass

    async def deliver(self, messages: Sequence[Message]) -> list[Delivery]:
        answers = []
        for message in messages:
            answer = self._box.answer(message)
            if isinstance(answer, Delivered):
                self._box.messages.append(message)
            answers.append(answer)
        return answers

    async def close(self) -> None:
        pass
