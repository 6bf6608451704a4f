"""What `[tasks.NAME]` and `[queues.NAME]` may say, and what contradicts itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from holdfast.domain.backoff import Curve, exponential, fixed, jitter_of, polynomial, table
from holdfast.domain.credit import MOST
from holdfast.domain.duration import duration, format_duration
from holdfast.domain.limits import Limit, Limits, Rate, whole_queue
from holdfast.domain.policy import preset, retry_after_bound
from holdfast.domain.validation import number, whole
from holdfast.domain.windows import RAMP, Window, Windows
from holdfast.engine import plugins
from holdfast.engine.policies.tables import Table, words
from holdfast.engine.policies.values import Section
from holdfast.engine.ports import Retention
from holdfast.engine.tasks import STUCK_ACTIONS
from holdfast.errors import UsageError

_PLUGIN = "plugin:"
#: How a curve may be given: one of these families.
_FAMILIES = (("base", "factor"), ("base", "power"), ("fixed",), ("table",), ("plugin",))
_SHAPES = '{ base = "5s", factor = 2 }, { base = "5s", power = 2 }, { fixed = "30s" }, { table = ["5s", "25s"] } or "plugin:NAME"'


def read_section(section: Table) -> Section:
    said: dict[str, Any] = {}

    def keep(key: str, reader: Callable[[Any], Any]) -> None:
        value = section.read(key, reader)
        if key in section:
            said[key] = value

    said |= _preset(section)
    keep("max_attempts", lambda value: whole("max_attempts", value, 1, 1000))
    for key in ("timeout", "deadline", "start_within", "max_elapsed", "stuck_after"):
        keep(key, _span_or_off)
    keep("max_retry_after", retry_after_bound)
    keep("stuck_action", _stuck_action)
    if "retention" in section:
        off = section.read("retention", lambda value: value is False)
        said["retention"] = None if off else _retention(section)
    keep("cost", lambda value: number("cost", value, 0, 1e9))
    keep("price", lambda value: whole("price", value, 0, MOST))
    keep("classifiers", lambda value: tuple(plugins.classifier(name) for name in words(value)))
    said |= _backoff(section)
    if (codes := section.table("attempts_by_code")) is not None:
        said["attempts_by_code"] = {code: codes.read(code, _attempts_of(code)) for code in codes}
    if "windows" in section:
        off = section.read("windows", lambda value: value is False)
        said["windows"] = None if off else _windows(section)
    limits = _limits(section)
    section.end()
    _refuse_contradictions(section, said)
    return Section(path=section.path, said=said, limits=limits)


def _preset(section: Table) -> dict[str, Any]:
    """Return what the preset says that the section names; the other keys of the section win over it."""
    chosen = section.read("preset", preset)
    if chosen is None:
        return {}
    curve = chosen.backoff
    return {
        "max_attempts": chosen.max_attempts,
        "curve": curve.curve,
        "jitter": curve.jitter,
        "cap": curve.cap,
        "attempts_by_code": chosen.attempts_by_code,
    }


def _attempts_of(code: str) -> Callable[[Any], int]:
    return lambda value: whole(code, value, 1, 1000)


def _span_or_off(value: Any) -> timedelta | None:
    """A duration; `false` takes away what the code or the queue says."""
    if value is False:
        return None
    span = duration(value)
    if not span:
        raise UsageError("it is 0; write a longer time, or false for none")
    return span


def _stuck_action(value: Any) -> str:
    if value not in STUCK_ACTIONS:
        raise UsageError(f"it is {value!r:.60}; it is one of {', '.join(STUCK_ACTIONS)}")
    return str(value)


def _retention(section: Table) -> Retention:
    retention = section.table("retention")
    assert retention is not None
    kept = Retention(**{key: retention.read(key, duration) for key in ("results", "jobs")})
    retention.end()
    return kept


def _backoff(section: Table) -> dict[str, Any]:
    """The parts of a backoff that are said: curve, jitter, cap; with a curve, the *longest* delay named outright."""
    if section.read("backoff", lambda value: isinstance(value, str)):
        return {"curve": section.read("backoff", _plugin_curve), "longest": None}
    backoff = section.table("backoff")
    if backoff is None:
        return {}
    said = _curve(backoff)
    for key, reader in (("jitter", _jitter), ("cap", duration)):
        if key in backoff:
            said[key] = backoff.read(key, reader)
    backoff.end()
    if "cap" in said and (said.get("longest") or timedelta()) > said["cap"]:
        key = next(key for key in ("base", "fixed", "table") if key in backoff)
        raise backoff.wrong(
            key, f"it goes above cap ({format_duration(said['cap'])}); raise cap or lower {key}"
        )
    return said


def _curve(backoff: Table) -> dict[str, Any]:
    given = [key for key in ("base", "factor", "power", "fixed", "table", "plugin") if key in backoff]
    if given and not any(set(given) <= set(family) for family in _FAMILIES):
        raise backoff.wrong(given[-1], f"it does not go with {given[0]}; write {_SHAPES}")
    base, named = backoff.read("base", duration), backoff.read("fixed", duration)
    delays, curve = backoff.read("table", _delays), backoff.read("plugin", _plugin_curve)
    start = timedelta(seconds=5) if base is None else base
    power = backoff.read("power", lambda value: polynomial(start, _number(value)))
    steep = backoff.read("factor", lambda value: exponential(start, _number(value)))
    if delays is not None:
        return {"curve": table(delays), "longest": max(delays)}
    if named is not None:
        return {"curve": fixed(named), "longest": named}
    if curve is not None:
        return {"curve": curve, "longest": None}
    return {"curve": power or steep or exponential(start), "longest": base} if given else {}


def _plugin_curve(value: Any) -> Curve:
    if not isinstance(value, str) or not value.startswith(_PLUGIN):
        raise UsageError(f"it is {value!r:.60}; write {_SHAPES}")
    return plugins.backoff(value.removeprefix(_PLUGIN))


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise UsageError(f"it is {value!r:.60}; it is a number, e.g. 2")
    return float(value)


def _jitter(value: Any) -> Any:
    if isinstance(value, (list, dict)) or callable(value):
        raise UsageError('it is not a jitter; write "full", "equal", "decorrelated", "none", "20%" or "5s"')
    return jitter_of(None if value is False else value)


def _delays(value: Any) -> list[timedelta]:
    if not isinstance(value, list) or not value:
        raise UsageError('it is a list of delays, the last one repeats, e.g. ["5s", "25s", "2m"]')
    return [duration(delay) for delay in value]


def _windows(section: Table) -> Windows:
    windows = section.table("windows")
    assert windows is not None
    allow, deny = ([window.build(Window) for window in windows.tables(key)] for key in ("allow", "deny"))
    ramp = windows.read("ramp", duration)
    windows.end()
    try:
        return Windows(allow=allow, deny=deny, ramp=RAMP if ramp is None else ramp)
    except UsageError as error:
        raise windows.wrong(None, str(error)) from None


def _refuse_contradictions(section: Table, said: Mapping[str, Any]) -> None:
    """What one section says about itself twice, and differently."""
    most = said.get("max_attempts")
    if most == 1:
        for key in ("backoff", "attempts_by_code", "windows"):
            if key in section and said.get(key, True) is not None:
                raise section.wrong(key, "max_attempts is 1, so nothing is retried; raise it, or drop this")
    for code, attempts in (said.get("attempts_by_code") or {}).items():
        if most is not None and attempts > most and "attempts_by_code" in section:
            raise section.source.wrong(
                (*section.path, "attempts_by_code", code), f"it is {attempts}, above max_attempts ({most})"
            )
    deadline = said.get("deadline")
    for key in ("timeout", "start_within", "max_elapsed"):
        if deadline is not None and said.get(key) is not None and said[key] > deadline:
            raise section.wrong(
                key, f"it is longer than the deadline ({format_duration(deadline)}), so it never counts"
            )


def _limits(section: Table) -> Limits | None:
    limits = section.table("limits")
    if limits is None:
        return None
    parts: dict[str, Limit] = {}
    for key in ("per_owner", "per_key"):
        part = limits.table(key)
        if part is not None:
            parts[key] = read_limit(part)
    concurrency, rate = _concurrency(limits), limits.read("rate", Rate.read)
    limits.end()
    try:
        found = Limits(concurrency=concurrency, rate=rate, **parts)
        return whole_queue(found) if limits.path[0] == "queues" else found
    except UsageError as error:
        path = (*limits.path, *str(error).split()[0].split("."))
        raise limits.source.wrong(path, str(error)) from None


def read_limit(part: Table) -> Limit:
    found = Limit(concurrency=_concurrency(part), rate=part.read("rate", Rate.read))
    part.end()
    return found


def _concurrency(part: Table) -> int | None:
    return part.read("concurrency", lambda value: whole("concurrency", value, 1, 1_000_000))
