"""JSON documents out of transcript files, one at a time: from JSON lines, an array, or one object."""

from __future__ import annotations

import codecs
import json
import re
from typing import IO, TYPE_CHECKING, Any, Final

from loopfence.parse import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from loopfence.replay.calls import Problems

Document = tuple[int, Any, bytes]
"""A document's first line (1-based), its value, and its bytes where it stands on one line (else empty)."""

_HEAD_LINES: Final = 5
_LONGEST_LINE: Final = 16 * 2**20
_CHUNK: Final = 2**16
_LONGEST_TOKEN: Final = 16  # an error this near to the end of what was read may be a token that was cut
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SPACE_OR_COMMA: Final = re.compile(r"[ \t\r\n,]*")
_DECODER: Final = json.JSONDecoder()
_REPORT_EVERY: Final = 2**20


def documents(path: Path, problems: Problems, advance: Callable[[int], None]) -> Iterator[Document]:
    """Yields the documents of one file; what does not parse is named in `problems` by file and line.

    A broken line of JSON lines costs that line; a syntax error inside an array or object costs the rest of
    the file. `advance` is told of the bytes read since it was last called.
    """
    with path.open("rb") as file:
        layout = _layout(file)
        file.seek(0)
        if layout == "lines":
            yield from _lines(file, str(path), problems, advance)
        else:
            yield from _nested(file, str(path), problems, advance, array=layout == "array")


def _layout(file: IO[bytes]) -> str:
    """How the file is laid out, by its first lines: the first of them that parses alone means JSON lines."""
    first = b""
    for _ in range(_HEAD_LINES):
        line = file.readline(_LONGEST_LINE).removeprefix(codecs.BOM_UTF8).strip()
        first = first or line
        if _parses(line):
            return "lines"
        if first.startswith(b"["):
            return "array"
    return "object" if first.startswith(b"{") else "lines"


def _parses(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict | list)
    except ValueError:
        return False


def _lines(file: IO[bytes], name: str, problems: Problems, advance: Callable[[int], None]) -> Iterator[Document]:
    if file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    read = 0
    for number, raw in enumerate(file, 1):
        read += len(raw)
        if read > _REPORT_EVERY:
            advance(read)
            read = 0
        try:
            value = parse_json(raw)
        except ValueError:
            if raw.strip():
                problems.add(name, number, "broken JSON")
        else:
            yield number, value, raw
    advance(read)


def _nested(
    file: IO[bytes], name: str, problems: Problems, advance: Callable[[int], None], *, array: bool
) -> Iterator[Document]:
    """The elements of one array, or the objects that follow each other, holding one of them at a time."""
    text = _Text(file, advance)
    if array:
        text.skip(_SPACE)
        text.at += 1
    while text.skip(_SPACE_OR_COMMA if array else _SPACE) and not text.text.startswith("]", text.at):
        line = text.line
        try:
            yield line, text.value(), b""
        except json.JSONDecodeError as error:
            problems.add(name, line + text.text.count("\n", text.at, error.pos), "broken JSON")
            return
        except RecursionError:
            problems.add(name, line, "nested too deeply")
            return


class _Text:
    """The part of a file that is being parsed: what lies before `at` is done with."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self.text, self.at, self.line = "", 0, 1
        self._file, self._advance, self._ended = file, advance, False
        self._utf8 = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def skip(self, gap: re.Pattern[str]) -> bool:
        """Moves past a gap; False at the end of the file."""
        while True:
            self._move(gap.match(self.text, self.at).end())  # type: ignore[union-attr]  # a gap may be empty
            if self.at < len(self.text):
                return True
            if not self._more():
                return False

    def value(self) -> Any:
        """The value that starts here; reads on until it is complete."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                cut_off = error.msg.startswith("Unterminated") or error.pos >= len(self.text) - _LONGEST_TOKEN
                if not cut_off or not self._more():
                    raise
            else:
                self._move(end)
                return value

    def _move(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.at = end

    def _more(self) -> bool:
        """Reads at least as much as is held, so that a long value is parsed a few times only."""
        chunk = self._file.read(max(_CHUNK, len(self.text) - self.at))
        self._advance(len(chunk))
        self.text, self.at = self.text[self.at :] + self._utf8.decode(chunk, final=not chunk), 0
        return bool(chunk)
