"""Bring the overrides in the store into force in this process, and keep them so while it runs."""

from __future__ import annotations

from holdfast.engine.engine import Engine
from holdfast.engine.tables import policy_overrides
from holdfast.errors import StoreError
from holdfast.logging import Log

#: How often a process asks for the newest version, in seconds.
LOOK_EVERY = 2.0

log = Log("holdfast.policies")


async def read_overrides(engine: Engine) -> None:
    """Put the overrides of the store in force in this process, if they have changed or one has expired."""
    reloader = engine.admission.reloader
    version, now = await policy_overrides.newest(engine.store)
    if version == reloader.version and not any(
        one.expires_at is not None and one.expires_at <= now for one in reloader.overrides
    ):
        return
    overrides = await policy_overrides.in_force(engine.store)
    reloader.override(engine.tasks, overrides, version)


async def follow_overrides(engine: Engine) -> None:
    """Read the overrides whenever they have changed, until cancelled. While the store is down the last known ones stay in force."""
    is_down = False
    while True:
        await engine.clock.sleep(LOOK_EVERY)
        try:
            await read_overrides(engine)
            is_down = False
        except StoreError as error:
            if not is_down:
                log.warning(
                    "policy_override.unread", reason=str(error), instead="the last known ones stay in force"
                )
            is_down = True
        except Exception:  # a bug here must not end the process's only look
            log.exception("policy_override.failed")
