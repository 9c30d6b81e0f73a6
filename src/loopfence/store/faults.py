"""What went wrong in Redis, in words: loopfence's error for redis-py's, whose fault it is and what to do."""

from __future__ import annotations

from typing import Any

import redis.exceptions

from loopfence.errors import CorruptSessionError, StoreError, StoreUnavailableError

UNAVAILABLE = (
    redis.exceptions.ConnectionError,
    redis.exceptions.TimeoutError,
    redis.exceptions.RedisClusterException,
    OSError,
    TimeoutError,
)
FAILURES = (*UNAVAILABLE, redis.exceptions.RedisError)
"""All that a step can raise by Redis' fault or the network's."""
_REFUSED_LOGIN = (redis.exceptions.AuthenticationError, redis.exceptions.AuthorizationError)

# redis-py takes the code off the text of those errors that it has a class for
_CODES: tuple[tuple[type[Exception], str], ...] = (
    (redis.exceptions.NoPermissionError, "NOPERM"),
    (redis.exceptions.ReadOnlyError, "READONLY"),
    (redis.exceptions.OutOfMemoryError, "OOM"),
    (redis.exceptions.BusyLoadingError, "LOADING"),
    (redis.exceptions.MovedError, "MOVED"),
    (redis.exceptions.AskError, "ASK"),
    (redis.exceptions.TryAgainError, "TRYAGAIN"),
    (redis.exceptions.ClusterError, "CLUSTERDOWN"),  # also: sent to and fro between two nodes
    (redis.exceptions.MasterDownError, "MASTERDOWN"),
    (redis.exceptions.AuthenticationError, "NOAUTH"),
)
_ADVICE = {
    "NOPERM": "give the guard's user the commands and keys that the README's ACL line names",
    "NOAUTH": "check user and password in the URL",
    "OOM": "Redis is full and evicts nothing: raise maxmemory",
    "READONLY": "this is a replica: point the URL at the master, or use redis+sentinel://",
    "MASTERDOWN": "this is a replica without its master: point the URL at the master, or use redis+sentinel://",
    "MISCONF": "Redis cannot save to its disk and refuses writes: see the Redis log",
    "LOADING": "Redis loads its data: wait",
    "MOVED": "this is a cluster: use redis+cluster://",
    "ASK": "this is a cluster: use redis+cluster://",
    "CLUSTERDOWN": "the cluster has slots that no node serves: see CLUSTER INFO",
    "TRYAGAIN": "the session's slot is being moved: wait",
    "NOREPLICAS": "Redis wants more replicas than are connected: see min-replicas-to-write",
    "BUSY": "a script keeps Redis busy: see SCRIPT KILL",
}
# Redis gives a command that a script may not run no code of its own
_NO_PERMISSION = ("ACL failure in script", "user executing the script")
# What our steps say where a key holds what no release of loopfence wrote; Redis' own words included.
_CORRUPT = (
    "WRONGTYPE",
    "LOOPFENCE",
    "not an integer",
    "not a valid float",
    "user_script",
    "attempt to",
    "bad argument",
)


def code_of(error: Exception) -> str:
    """The code of an error that Redis answered (`NOPERM`, `OOM`, …); empty where it has none."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if any(sign in str(error) for sign in _NO_PERMISSION):
        return "NOPERM"
    first = str(error).partition(" ")[0]
    return first if first.isupper() else ""


def raised(reply: Any) -> Any:
    """A reply; raises the error where it is one."""
    if isinstance(reply, Exception):
        raise reply
    return reply


def as_failure(error: BaseException) -> BaseException:
    """The error itself; or what a cluster client's hides; for what redis-py's parser chokes on, one that says so."""
    while isinstance(error, redis.exceptions.RedisClusterException):
        behind = error.__cause__ or error.__context__
        if not isinstance(behind, FAILURES):
            break
        error = behind
    if isinstance(error, FAILURES) or not isinstance(error, Exception):
        return error
    return redis.exceptions.InvalidResponse(f"what answered is no Redis ({type(error).__name__})")


def too_many() -> redis.exceptions.InvalidResponse:
    """The error for more replies than there were steps: nobody knows which is whose."""
    return redis.exceptions.InvalidResponse("what answered is no Redis (it says more than it was asked)")


def translate(error: Exception, calls_key: str) -> StoreError:
    """The loopfence error for one of redis-py's, in words that hold no URL and no password.

    calls_key -- the first key of the step, which names the session.
    """
    code, text = code_of(error), str(error) or type(error).__name__
    if isinstance(error, UNAVAILABLE) and not isinstance(error, _REFUSED_LOGIN):
        return StoreUnavailableError(f"Redis is unavailable ({text})", _ADVICE.get(code, ""))
    if code != "NOPERM" and any(sign in text for sign in _CORRUPT):
        return corrupt(text, calls_key)
    return StoreError(f"Redis refused the step ({text})", _ADVICE.get(code, ""))


def corrupt(text: str, calls_key: str) -> CorruptSessionError:
    """The error for a session whose keys hold what they should not."""
    keys = calls_key.removesuffix("calls") + "*"
    return CorruptSessionError(f"the keys {keys} hold what loopfence did not write ({text})", "reset the session")
