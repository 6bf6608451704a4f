"""A target for tests: keeps what it is given, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.domain.outbox import Delivered, Delivery, Message


def _take(message: Message) -> Delivery:
    return Delivered()


class Box:
    """What went to `memory://name`. *answer* decides what becomes of a message; by default all are delivered."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.answer: Callable[[Message], Delivery] = _take

    def clear(self) -> None:
        self.messages.clear()
        self.answer = _take


_boxes: dict[str, Box] = {}


def box(name: str = "") -> Box:
    """The box of this name; the same for all of a process."""
    return _boxes.setdefault(name, Box())


class MemoryTransport:
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
