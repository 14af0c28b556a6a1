"""The file test/service.py that kafka-python's source package lacks, as far as an external broker needs it."""


class ExternalService:
    """A broker that the suite did not start."""

    def __init__(self, host, port):
        self.host = host
        self.port = port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    """Unsupported: the scoreboard runs only tests with an external broker."""

    def __init__(self, *_):
        raise RuntimeError("this test starts its own broker")
