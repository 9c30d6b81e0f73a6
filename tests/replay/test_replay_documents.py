"""Documents out of files of every layout, and what a mistake in them costs."""

import json
import tracemalloc

import pytest

from loopfence.replay.calls import Problems
from loopfence.replay.documents import documents


def read(path):
    problems = Problems()
    found = [(line, value) for line, value, _ in documents(path, problems, lambda _: None)]
    return found, [example.removeprefix(str(path)) for example in problems.examples]


def written(tmp_path, content):
    path = tmp_path / "file.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"a": 1}\n{"a": 2}\n', [(1, {"a": 1}), (2, {"a": 2})]),
        ('{"a": 1}\r\n\r\n{"a": 2}', [(1, {"a": 1}), (3, {"a": 2})]),
        ('\ufeff{"a": 1}\n{"a": 2}\n', [(1, {"a": 1}), (2, {"a": 2})]),
        ('[{"a": 1}]\n[{"a": 2}]\n', [(1, [{"a": 1}]), (2, [{"a": 2}])]),
        ('[\n {"a": 1},\n {"a": 2}\n]\n', [(2, {"a": 1}), (3, {"a": 2})]),
        ('\ufeff[\n\n{"a":\n1}, {"a": 2}]', [(3, {"a": 1}), (4, {"a": 2})]),
        ("[\n]\n", []),
        ('{\n "a": 1\n}\n', [(1, {"a": 1})]),
        ('{\n "a": 1\n}\n{\n "a": 2\n}\n', [(1, {"a": 1}), (4, {"a": 2})]),
        ("", []),
    ],
)
def test_layouts(tmp_path, content, found):
    assert read(written(tmp_path, content)) == (found, [])


def test_a_broken_line_costs_that_line(tmp_path):
    content = b'{"a": 1\n{"a": 2}\nnot json\n{"a": "\xff"}\n{"a": 3}\n' + b"[" * 100_000 + b"\n"
    found, problems = read(written(tmp_path, content))
    assert found == [(2, {"a": 2}), (5, {"a": 3})]
    assert problems == [":1: broken JSON", ":3: broken JSON", ":4: broken JSON", ":6: broken JSON"]


def test_a_mistake_in_an_array_costs_the_rest_and_is_named_where_it_stands(tmp_path):
    found, problems = read(written(tmp_path, '[\n{"a": 1},\n{"a": 2,\n "b" 3},\n{"a": 4}\n]' + " " * 50))
    assert found == [(2, {"a": 1})]
    assert problems == [":4: broken JSON"]


def test_a_file_that_is_cut_off_keeps_what_was_whole(tmp_path):
    found, problems = read(written(tmp_path, '[\n{"a": 1},\n{"a": "tex'))
    assert found == [(2, {"a": 1})]
    assert problems == [":3: broken JSON"]


def test_nesting_too_deep_for_the_parser_is_a_problem(tmp_path):
    _, problems = read(written(tmp_path, "[\n" + "[" * 100_000 + "]" * 100_000 + "]"))
    assert problems == [":2: nested too deeply"]


@pytest.mark.parametrize("indent", [None, 1])
def test_values_longer_than_a_chunk_come_out_whole(tmp_path, indent):
    values = [{"n": n, "text": 'é\\"' * (n * 40_000), "list": list(range(500))} for n in range(4)]
    content = json.dumps(values, indent=indent, ensure_ascii=False)
    found, problems = read(written(tmp_path, content.replace("[", "[\n", 1)))
    assert [value for _, value in found] == values
    assert problems == []


def test_numbers_past_64_bits_are_not_rounded(tmp_path):
    found, _ = read(written(tmp_path, '{"id": 123456789012345678901, "n": 18446744073709551616}\n'))
    assert found == [(1, {"id": 123456789012345678901, "n": 18446744073709551616})]


def test_an_array_is_never_held_whole(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("[\n" + ",\n".join(json.dumps({"n": n, "text": "x" * 5_000}) for n in range(4_000)) + "\n]")
    tracemalloc.start()
    count = sum(1 for _ in documents(path, Problems(), lambda _: None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 4_000
    assert peak < path.stat().st_size / 10
