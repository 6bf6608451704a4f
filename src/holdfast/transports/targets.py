"""What a topic may say about its target, beside the address. Read where the topic is declared, without any driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast.domain.suggest import suggest
from holdfast.domain.urls import parts_of, scheme_of
from holdfast.engine import plugins
from holdfast.errors import UsageError


class TopicTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class MemoryTarget(TopicTarget, frozen=True, kw_only=True):
    pass


class RabbitTarget(TopicTarget, frozen=True, kw_only=True):
    """*routing_key* is the topic's name if not given. With *declare* what is missing on the broker is made: the exchange,
    and with *queue* a quorum queue bound to it, whose dead letters go to `<queue>.dead`."""

    exchange: str = ""
    routing_key: str | None = None
    declare: bool = False
    exchange_type: Literal["direct", "topic", "fanout", "headers"] = "direct"
    queue: str | None = None
    delivery_limit: int = 20
    queue_arguments: dict[str, str | int | bool] = {}


class RedisTarget(TopicTarget, frozen=True, kw_only=True):
    """*stream* is the topic's name if not given. *maxlen* is about how many entries the stream keeps."""

    stream: str | None = None
    maxlen: int | None = None


class NatsTarget(TopicTarget, frozen=True, kw_only=True):
    """*subject* is the topic's name if not given. With *stream* a JetStream stream for it is made if it is missing. With
    *dedupe* the stream drops what it was given twice within its window; a replay within it is dropped, too."""

    subject: str | None = None
    stream: str | None = None
    dedupe: bool = False


class WebTarget(TopicTarget, frozen=True, kw_only=True):
    """*secret* (whsec_…) signs each message by Standard Webhooks."""

    secret: str | None = None


class PluginTarget(TopicTarget, frozen=True, kw_only=True):
    """*options* are passed to the plug-in as they are: only it knows what they mean."""

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
#: Of an exchange, a queue, a routing key.
LONGEST_NAME = 240
_SUBJECT = re.compile(r"[^\s.*>]+(\.[^\s.*>]+)*")
_TOLD = ("amqp", "redis", "nats", "https", "memory")


def read_target(topic: str, address: str, options: Mapping[str, Any]) -> TopicTarget:
    """`UsageError` in one line for an address of no known kind, without a host, or options that it has not."""
    scheme, separator, _ = address.partition("://") if isinstance(address, str) else ("", "", "")
    if not separator:
        raise UsageError(f"the target of topic {topic} is no address; write e.g. amqp://user:password@host/")
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
    known, scheme = plugins.installed("transport"), scheme_of(address)
    if scheme not in known:
        hint = suggest(scheme, [*_TOLD, *known])
        raise UsageError(f"topic {topic}: {scheme!r} is no kind of target; {hint}")
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
                    f"topic {topic[:40]}: {subject[:40]!r} is no subject; say subject='words.with.dots', no spaces, * or >"
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
