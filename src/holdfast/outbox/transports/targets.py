"""The options of a topic's target besides its address.

They are checked where the topic is declared, without a driver.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast.errors import UsageError
from holdfast.tasks import plugins
from holdfast.values.suggest import suggest
from holdfast.values.urls import parts_of, scheme_of


class TopicTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a target. The base of all kinds."""


class MemoryTarget(TopicTarget, frozen=True, kw_only=True):
    """The options of a memory target: none."""


class RabbitTarget(TopicTarget, frozen=True, kw_only=True):
    """The options of a RabbitMQ target.

    *routing_key* defaults to the topic's name. With *declare* the relay creates what is missing on the
    broker: the exchange, and with *queue* a quorum queue bound to it, whose dead letters go to
    `<queue>.dead`.
    """

    exchange: str = ""
    routing_key: str | None = None
    declare: bool = False
    exchange_type: Literal["direct", "topic", "fanout", "headers"] = "direct"
    queue: str | None = None
    delivery_limit: int = 20
    queue_arguments: dict[str, str | int | bool] = {}


class RedisTarget(TopicTarget, frozen=True, kw_only=True):
    """The options of a Redis target.

    *stream* defaults to the topic's name. *maxlen* is roughly how many entries the stream keeps.
    """

    stream: str | None = None
    maxlen: int | None = None


class NatsTarget(TopicTarget, frozen=True, kw_only=True):
    """The options of a NATS target.

    *subject* defaults to the topic's name. With *stream* the relay creates a JetStream stream for it if it is
    missing. With *dedupe* the stream drops repeats within its window, including a replay.
    """

    subject: str | None = None
    stream: str | None = None
    dedupe: bool = False


class WebTarget(TopicTarget, frozen=True, kw_only=True):
    """The options of an HTTP target. *secret* (whsec_…) signs each message by Standard Webhooks."""

    secret: str | None = None


class PluginTarget(TopicTarget, frozen=True, kw_only=True):
    """The options of a plug-in's target, which are passed to it unchecked."""

    options: dict[str, Any] = {}


KINDS: dict[str, type[TopicTarget]] = {
    "amqp": RabbitTarget,
    "amqps": RabbitTarget,
    "redis": RedisTarget,
    "rediss": RedisTarget,
    "nats": NatsTarget,
    "tls": NatsTarget,
    "http": WebTarget,
    "https": WebTarget,
    "memory": MemoryTarget,
}
#: The most bytes of the name of an exchange, of a queue or of a routing key.
LONGEST_NAME = 240
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_SUGGESTED = ("amqp", "redis", "nats", "https", "memory")


def read_target(topic: str, address: str, options: Mapping[str, Any]) -> TopicTarget:
    """Return the options of the target at *address*.

    Raises:
        UsageError: The address is of an unknown kind or has no host, or an option is not valid.
    """
    scheme, separator, _ = address.partition("://") if isinstance(address, str) else ("", "", "")
    if not separator:
        raise UsageError(
            f"the target of topic {topic} is not an address; write e.g. amqp://user:password@host/"
        )
    kind = KINDS.get(scheme)
    if kind is None:
        return _plugin_target(topic, address, options)
    if kind is not MemoryTarget:
        _check_host(topic, address)
    unknown = options.keys() - set(kind.__struct_fields__)
    if unknown:
        name = min(unknown)
        raise UsageError(
            f"topic {topic}: {scheme}:// has no option {name!r}; {suggest(name, kind.__struct_fields__)}"
        )
    try:
        target = msgspec.convert(dict(options), kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"topic {topic}: {error}") from None
    _check_names(topic, target)
    return target


def _plugin_target(topic: str, address: str, options: Mapping[str, Any]) -> PluginTarget:
    installed, scheme = plugins.installed("transport"), scheme_of(address)
    if scheme not in installed:
        hint = suggest(scheme, [*_SUGGESTED, *installed])
        raise UsageError(f"topic {topic}: {scheme!r} is not a kind of target; {hint}")
    return PluginTarget(options=dict(options))


def _check_names(topic: str, target: TopicTarget) -> None:
    match target:
        case RabbitTarget():
            for name in (target.exchange, target.routing_key or topic, target.queue or ""):
                if len(name.encode()) > LONGEST_NAME:
                    raise UsageError(
                        f"topic {topic[:40]}: a name on RabbitMQ has at most {LONGEST_NAME} bytes"
                    )
        case NatsTarget():
            subject = target.subject or topic
            if not _SUBJECT.fullmatch(subject):
                raise UsageError(
                    f"topic {topic[:40]}: {subject[:40]!r} is not a subject; use subject='words.with.dots', without spaces, * or >"
                )
        case WebTarget(secret=str(secret)) if not secret.startswith("whsec_"):
            raise UsageError(f"topic {topic[:40]}: the secret does not begin with whsec_")


def _check_host(topic: str, address: str) -> None:
    parts = parts_of(address)
    if parts is None:
        raise UsageError(
            f"topic {topic}: the host or port of its address cannot be read; write %40 for an @ in a password"
        )
    if not parts.hostname:
        raise UsageError(f"topic {topic}: its address names no host")
