"""Whatever a transcript holds, reading it raises nothing: what is of no use is counted."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from loopfence.replay.calls import Call, Problems, Turn
from loopfence.replay.documents import documents
from loopfence.replay.messages import calls_of_anthropic_messages, calls_of_openai_messages
from loopfence.replay.readers import FORMATS, format_of
from loopfence.replay.source import Source

FIXTURES = Path(__file__).parent / "fixtures"


def words_of(file):
    """The keys and short texts of a fixture: what a reader looks for."""
    text = file.read_text(encoding="utf-8")
    return set(re.findall(r'"([\w.\-]{1,40})"', text))


FILES = [file for file in sorted(FIXTURES.rglob("*")) if file.is_file() and "cases" not in file.parts]
WORDS = sorted(set().union(*map(words_of, FILES)))
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from(WORDS), st.text(max_size=5)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(WORDS), inner, max_size=6)),
    max_leaves=25,
)


def parsed(file):
    return [value for _, value, _ in documents(file, Problems(), lambda _: None)]


@st.composite
def damaged(draw):
    """A real document in which some values were replaced by others."""
    document = draw(st.sampled_from([value for file in FILES for value in parsed(file)]))

    def walk(value, depth):
        if depth and draw(st.integers(0, 9)) == 0:
            return draw(VALUES)
        if isinstance(value, dict):
            return {key: walk(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, depth + 1) for item in value]
        return value

    return walk(document, 0)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=40)
@given(st.lists(st.one_of(VALUES, damaged()), max_size=4))
def test_no_document_makes_a_reader_raise(name, values):
    found = [(line, value, b"") for line, value in enumerate(values, 1)]
    for item in FORMATS[name].read(found, Source(Path("file.jsonl"), Problems())):
        assert isinstance(item, Call | Turn)
        assert isinstance(item.session, str)
        if isinstance(item, Call):
            assert isinstance(item.tool, str)
            assert isinstance(item.ok, bool)
            assert all(isinstance(text, str | None) for text in (item.batch, item.run, item.agent, item.outcome))


@settings(max_examples=150)
@given(st.one_of(VALUES, damaged()))
@example({"timestamp": None, "type": [], "payload": None})
def test_no_document_makes_the_search_for_its_format_raise(value):
    assert format_of(value) is None or format_of(value).name in FORMATS


@settings(max_examples=100)
@given(st.lists(VALUES, max_size=6))
def test_no_history_makes_a_parser_raise(messages):
    for item in itertools.chain(calls_of_openai_messages(messages), calls_of_anthropic_messages(messages)):
        assert isinstance(item, Call | Turn)
