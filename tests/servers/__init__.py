"""Real Redis and Valkey servers for the tests: found, started on loopback, broken on purpose, stopped."""

from servers.binaries import Binary, NoServerError, find_binaries, find_redis_cli
from servers.cluster import Cluster
from servers.process import LEAKS, RedisServer, ServerStartError, free_port, running, stop_all
from servers.sentinel import SentinelSetup
from servers.tls import Certificates, start_tls_server

__all__ = [
    "LEAKS",
    "Binary",
    "Certificates",
    "Cluster",
    "NoServerError",
    "RedisServer",
    "SentinelSetup",
    "ServerStartError",
    "find_binaries",
    "find_redis_cli",
    "free_port",
    "running",
    "start_tls_server",
    "stop_all",
]
