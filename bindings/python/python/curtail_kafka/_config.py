"""Settings: Kafka's names in ``config``, keywords with ``_`` for ``.``."""

from collections.abc import Iterable, Mapping

from .errors import ConfigError

LIBRDKAFKA = {
    "api.version.request": "",
    "auto.commit.enable": "enable.auto.commit",
    "batch.num.messages": "batch.size",
    "broker.address.family": "",
    "compression.codec": "compression.type",
    "enable.auto.offset.store": "",
    "enable.gapless.guarantee": "",
    "enable.idempotency": "enable.idempotence",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "log_level": "",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.max.bytes": "max.request.size",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "queued.max.messages.kbytes": "curtail.prefetch.bytes",
    "queued.min.messages": "curtail.prefetch.bytes",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.password": "sasl.jaas.config",
    "sasl.username": "sasl.jaas.config",
    "socket.keepalive.enable": "",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    "statistics.interval.ms": "",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
}
"""Settings of librdkafka, and the nearest one of Kafka, if there is any."""

Setting = str | int | float | bool | Iterable[str]


def text(name: str, value: Setting) -> str:
    """Returns the value in the syntax of Kafka's properties."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    try:
        parts = list(value)
    except TypeError:
        parts = [None]  # type: ignore[list-item]
    if not all(isinstance(part, str) for part in parts):
        raise ConfigError(f"{name}: a value is a str, a number, a bool or an iterable of str")
    return ",".join(parts)


def properties(
    bootstrap_servers: str | Iterable[str] | None,
    config: Mapping[str, Setting] | None,
    options: Mapping[str, Setting | None],
) -> list[tuple[str, str]]:
    """Returns names and values; a keyword that is ``None`` counts as absent."""
    settings: dict[str, Setting] = dict(config or {})
    given: dict[str, Setting | None] = {"bootstrap.servers": bootstrap_servers}
    given.update({name.replace("_", "."): value for name, value in options.items()})
    for name, value in given.items():
        if value is None:
            continue
        if name in settings:
            raise ConfigError(f"{name} is given twice: in config, and as an argument")
        settings[name] = value
    for name in settings:
        if name in LIBRDKAFKA:
            other = LIBRDKAFKA[name]
            instead = f"Kafka's nearest is {other}" if other else "Kafka has no such setting"
            raise ConfigError(f"{name} is a setting of librdkafka; {instead}")
    return [(name, text(name, value)) for name, value in settings.items()]
