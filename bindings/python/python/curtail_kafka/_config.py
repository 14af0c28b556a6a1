"""Settings: Kafka's names in ``config``, keywords with ``_`` for ``.``."""

from collections.abc import Iterable, Mapping

from .errors import ConfigError

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
    return [(name, text(name, value)) for name, value in settings.items()]
