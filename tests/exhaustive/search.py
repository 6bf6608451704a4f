"""Breadth first through every state that a scenario can reach: the first broken promise has the shortest story."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from tests.exhaustive.steps import steps
from tests.exhaustive.world import Scenario, Snapshot, World

Key = tuple[Any, ...]


class Story(AssertionError):
    """How a promise came to be broken, in the fewest steps."""

    def __init__(self, names: list[str], promise: str) -> None:
        lines = [f"{number:>3}. {name}" for number, name in enumerate(names, 1)]
        super().__init__("\n".join([f"broken after {len(names)} steps: {promise}", *lines]))
        self.names, self.promise = names, promise


@dataclass
class Explored:
    states: int = 0
    edges: int = 0
    came: Counter[str] = field(
        default_factory=Counter
    )  #: what came of the steps, and the events they brought


def explore(scenario: Scenario) -> Explored:
    """Every state and every step from it. Raises the shortest `Story` when a promise is broken."""
    world, done = World(scenario), Explored()
    first = world.key()
    parents: dict[Key, tuple[Key, str] | None] = {first: None}
    waiting: deque[tuple[Key, Snapshot]] = deque([(first, world.save())])
    while waiting:
        key, saved = waiting.popleft()
        world.restore(saved)
        for name, take in list(steps(world)):
            world.restore(saved)
            try:
                done.came[take(world)] += 1
                done.came.update(world.settle_accounts())
            except AssertionError as error:
                raise Story([*_told(parents, key), name], str(error)) from error
            done.edges += 1
            after = world.key()
            if after not in parents:
                parents[after] = (key, name)
                waiting.append((after, world.save()))
    done.states = len(parents)
    return done


def _told(parents: dict[Key, tuple[Key, str] | None], key: Key) -> list[str]:
    names: list[str] = []
    while (parent := parents[key]) is not None:
        key, name = parent
        names.append(name)
    return names[::-1]
