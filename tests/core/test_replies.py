"""The reader of replies against what was written: every shape, cut into pieces at any place."""

import pytest
import redis.exceptions
from hypothesis import given
from hypothesis import strategies as st

from loopfence.store.replies import Replies

TEXTS = st.binary(max_size=40) | st.sampled_from([b"", b"\r\n", b"$3\r\nabc\r\n", "μs 🦊".encode()])
REPLIES = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | TEXTS, lambda inner: st.lists(inner, max_size=5), max_leaves=20
)


def written(reply: object, nothing: bytes = b"$-1\r\n") -> bytes:
    """A reply as a server writes it."""
    if reply is None:
        return nothing
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    assert isinstance(reply, list)
    return b"*%d\r\n" % len(reply) + b"".join(written(item, nothing) for item in reply)


@given(st.lists(REPLIES, min_size=1, max_size=4), st.sampled_from([b"$-1\r\n", b"*-1\r\n", b"_\r\n"]), st.data())
def test_what_was_written_is_read_however_it_was_cut(replies, nothing, data):
    wire = b"".join(written(reply, nothing) for reply in replies)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire) - 1), max_size=12))) if len(wire) > 1 else []
    reader, read = Replies(), []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        read += reader.feed(wire[start:end])
    assert read == replies


@given(st.lists(REPLIES, min_size=1, max_size=3))
def test_a_reply_is_given_with_its_last_byte_and_not_before(replies):
    reader = Replies()
    for reply in replies:
        wire = written(reply)
        assert [reader.feed(wire[at : at + 1]) for at in range(len(wire) - 1)] == [[]] * (len(wire) - 1)
        assert reader.feed(wire[-1:]) == [reply]


def test_a_status_is_its_text():
    assert Replies().feed(b"+OK\r\n") == [b"OK"]


def test_a_refusal_is_a_value_among_the_others():
    first, refused, last = Replies().feed(b":1\r\n-NOSCRIPT No matching script.\r\n:2\r\n")
    assert (first, last) == (1, 2)
    assert type(refused) is redis.exceptions.NoScriptError
    assert str(refused) == "No matching script."


def test_a_refusal_inside_a_list_leaves_the_list_whole():
    ((number, refused),) = Replies().feed(b"*2\r\n:7\r\n-ERR no\r\n")
    assert number == 7
    assert type(refused) is redis.exceptions.ResponseError


def test_what_a_server_says_unasked_is_no_reply():
    push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"
    assert Replies().feed(b":1\r\n" + push + b":2\r\n" + push) == [1, 2]


@pytest.mark.parametrize("end", [b"-LOADING Redis is loading\r\n", b"-ERR max number of clients reached\r\n"])
def test_a_connection_that_is_no_use_is_an_error(end):
    with pytest.raises(redis.exceptions.ConnectionError):
        Replies().feed(end)


def test_the_end_of_a_connection_is_an_error():
    reader = Replies()
    assert reader.feed(b"$5\r\nhal") == []
    with pytest.raises(redis.exceptions.ConnectionError, match="the server closed the connection"):
        reader.feed(b"")


@pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400 Bad Request\r\n", b"$x\r\n", b":\r\n", b"*1.5\r\n", b"\r\n"])
def test_what_is_no_reply_is_an_error(nonsense):
    with pytest.raises(ValueError, match=r"no reply begins with|invalid literal"):
        Replies().feed(nonsense)
