from collections.abc import Iterable, Mapping

from . import _native
from ._call import THREADED, finished
from ._config import Setting, properties
from ._examinations import running
from ._tokens import TokenFunction, key_of, source
from .diagnosis import DoctorReport


async def doctor(
    bootstrap_servers: str | Iterable[str] | None = None,
    *,
    target_p99: float,
    throughput: float,
    record_size: int = 1000,
    duration: float = 60.0,
    oauth_token: TokenFunction | None = None,
    config: Mapping[str, Setting] | None = None,
) -> DoctorReport:
    """Measures whether a cluster keeps a latency at a throughput, and which settings help.

    ``target_p99`` is the target of the 99th percentile in seconds, from the intended send time to
    the poll. ``throughput`` is in bytes of values per second, ``record_size`` in bytes of a value.
    ``config`` has settings of producers and consumers, as the application uses them now.

    Writes to a separate topic, for at most ``duration`` seconds, and reads the records. If the
    target does not hold, it tries other settings in turn with these. It changes no setting of the
    cluster, joins no group, and deletes its topics. A cancelled call stops the examination, and
    returns once they are deleted. The ``retention.ms`` of a topic that outlives the process is an
    hour.

    Raises :class:`DoctorError` if no record can be measured.
    """
    settings = properties(bootstrap_servers, config, {})
    token = source(oauth_token, THREADED)
    native = key_of(token)
    call, examination = _native.start_doctor(
        settings, target_p99, throughput, record_size, duration, THREADED, native
    )
    running.add(examination)
    try:
        figures, text = await finished(call)
    finally:
        # After an error it has ended. After a cancellation it still deletes its topics.
        await finished(examination._start_end())
    return DoctorReport._of(figures, text)
