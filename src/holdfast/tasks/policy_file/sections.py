"""Read the sections `[tasks.NAME]` and `[queues.NAME]`, and refuse contradictions in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from holdfast.errors import UsageError
from holdfast.jobs.retention import Retention
from holdfast.resilience.backoff import Curve, exponential, fixed, jitter_of, polynomial, table
from holdfast.resilience.limits import Limit, Limits, Rate, queue_limits
from holdfast.resilience.policy import preset, retry_after_bound
from holdfast.resilience.windows import RAMP, Window, Windows
from holdfast.tasks import plugins
from holdfast.tasks.options import OPTIONS, Reader, span_or_false
from holdfast.tasks.policy_file.tables import Table, words
from holdfast.tasks.policy_file.values import Section
from holdfast.values.duration import duration, format_duration
from holdfast.values.validation import whole

_PLUGIN = "plugin:"
#: The keys of a backoff curve: those of one of these families.
_FAMILIES = (("base", "factor"), ("base", "power"), ("fixed",), ("table",), ("plugin",))
_SHAPES = '{ base = "5s", factor = 2 }, { base = "5s", power = 2 }, { fixed = "30s" }, { table = ["5s", "25s"] } or "plugin:NAME"'


def read_section(section: Table, extension_options: Mapping[str, Reader]) -> Section:
    """Read one section of a task or a queue. *extension_options* are keys that extensions add, each with its reader."""
    values: dict[str, Any] = {}

    def keep(key: str, reader: Callable[[Any], Any]) -> None:
        value = section.read(key, reader)
        if key in section:
            values[key] = value

    values |= _preset(section)
    keep("max_attempts", lambda value: whole("max_attempts", value, 1, 1000))
    keep("max_elapsed", partial(span_or_false, "max_elapsed"))
    keep("max_retry_after", retry_after_bound)
    for name, option in OPTIONS.items():
        if option.read_file is not None:
            keep(name, partial(option.read_file, name))
    if "retention" in section:
        off = section.read("retention", lambda value: value is False)
        values["retention"] = None if off else _retention(section)
    keep("classifiers", lambda value: tuple(plugins.classifier(name) for name in words(value)))
    values |= _backoff(section)
    if (codes := section.table("attempts_by_code")) is not None:
        values["attempts_by_code"] = {code: codes.read(code, _attempts_of(code)) for code in codes}
    if "windows" in section:
        off = section.read("windows", lambda value: value is False)
        values["windows"] = None if off else _windows(section)
    extra = {
        option: section.read(option, partial(read, option))
        for option, read in extension_options.items()
        if option in section
    }
    limits = _limits(section)
    section.end()
    _refuse_contradictions(section, values)
    return Section(path=section.path, values=values, extra=extra, limits=limits)


def _preset(section: Table) -> dict[str, Any]:
    """Return the values of the preset that the section names. The other keys of the section win over them."""
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


def _retention(section: Table) -> Retention:
    retention = section.table("retention")
    assert retention is not None
    values = Retention(**{key: retention.read(key, duration) for key in ("results", "jobs")})
    retention.end()
    return values


def _backoff(section: Table) -> dict[str, Any]:
    """Return the given parts of a backoff: curve, jitter, cap, and the `longest` delay of the curve."""
    if section.read("backoff", lambda value: isinstance(value, str)):
        return {"curve": section.read("backoff", _plugin_curve), "longest": None}
    backoff = section.table("backoff")
    if backoff is None:
        return {}
    values = _curve(backoff)
    for key, reader in (("jitter", _jitter), ("cap", duration)):
        if key in backoff:
            values[key] = backoff.read(key, reader)
    backoff.end()
    if "cap" in values and (values.get("longest") or timedelta()) > values["cap"]:
        key = next(key for key in ("base", "fixed", "table") if key in backoff)
        raise backoff.wrong(
            key, f"it goes above cap ({format_duration(values['cap'])}); raise cap or lower {key}"
        )
    return values


def _curve(backoff: Table) -> dict[str, Any]:
    given = [key for key in ("base", "factor", "power", "fixed", "table", "plugin") if key in backoff]
    if given and not any(set(given) <= set(family) for family in _FAMILIES):
        raise backoff.wrong(given[-1], f"it does not go with {given[0]}; write {_SHAPES}")
    base, fixed_delay = backoff.read("base", duration), backoff.read("fixed", duration)
    delays, curve = backoff.read("table", _delays), backoff.read("plugin", _plugin_curve)
    start = timedelta(seconds=5) if base is None else base
    power = backoff.read("power", lambda value: polynomial(start, _number(value)))
    factor = backoff.read("factor", lambda value: exponential(start, _number(value)))
    if delays is not None:
        return {"curve": table(delays), "longest": max(delays)}
    if fixed_delay is not None:
        return {"curve": fixed(fixed_delay), "longest": fixed_delay}
    if curve is not None:
        return {"curve": curve, "longest": None}
    return {"curve": power or factor or exponential(start), "longest": base} if given else {}


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


def _refuse_contradictions(section: Table, values: Mapping[str, Any]) -> None:
    """Raise `UsageError` if two keys of a section contradict each other."""
    max_attempts = values.get("max_attempts")
    if max_attempts == 1:
        for key in ("backoff", "attempts_by_code", "windows"):
            if key in section and values.get(key, True) is not None:
                raise section.wrong(key, "max_attempts is 1, so nothing is retried; raise it, or drop this")
    for code, attempts in (values.get("attempts_by_code") or {}).items():
        if max_attempts is not None and attempts > max_attempts and "attempts_by_code" in section:
            raise section.source.wrong(
                (*section.path, "attempts_by_code", code),
                f"it is {attempts}, above max_attempts ({max_attempts})",
            )
    deadline = values.get("deadline")
    for key in (*(name for name, option in OPTIONS.items() if option.within_deadline), "max_elapsed"):
        if deadline is not None and values.get(key) is not None and values[key] > deadline:
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
        return queue_limits(found) if limits.path[0] == "queues" else found
    except UsageError as error:
        path = (*limits.path, *str(error).split()[0].split("."))
        raise limits.source.wrong(path, str(error)) from None


def read_limit(part: Table) -> Limit:
    """Read a table with a concurrency and a rate."""
    found = Limit(concurrency=_concurrency(part), rate=part.read("rate", Rate.read))
    part.end()
    return found


def _concurrency(part: Table) -> int | None:
    return part.read("concurrency", lambda value: whole("concurrency", value, 1, 1_000_000))
