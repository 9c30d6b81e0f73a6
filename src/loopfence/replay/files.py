"""Transcript files: which ones a path stands for, and the calls they hold."""

from __future__ import annotations

import glob
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from loopfence.replay.documents import documents
from loopfence.replay.readers import FORMATS, Format, format_of, histories
from loopfence.replay.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from loopfence.replay.calls import Call, Problems, Turn
    from loopfence.replay.documents import Document

_SUFFIXES: Final = frozenset((".jsonl", ".ndjson", ".json", ".traj"))
_SNIFFED: Final = 200


def transcript_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files that paths, folders and globs stand for, each once.

    A folder stands for every .jsonl, .ndjson, .json and .traj file below it, a session log also for the logs of
    its sub-agents (`<name>/subagents/` beside `<name>.jsonl`). FileNotFoundError names a path without any file.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        matched = _expand(Path(path))
        if not matched:
            raise FileNotFoundError(f"no transcript file at {path}")
        for file in matched:
            for one in (file, *_below(file.with_suffix("") / "subagents")):
                found.setdefault(one.resolve(), one)
    return list(found.values())


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        return _below(path)
    if path.exists():
        return [path]
    matched = (Path(match) for match in sorted(glob.glob(str(path), recursive=True)))  # noqa: PTH207
    return [file for one in matched for file in (_below(one) if one.is_dir() else [one])]


def _below(folder: Path) -> list[Path]:
    found = (file for file in folder.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    # a session's log before those of its sub-agents, which lie in a folder of its name
    return sorted(found, key=lambda file: (*file.with_suffix("").parts, file.suffix))


def read_calls(
    files: Sequence[Path],
    problems: Problems,
    *,
    format: str | None = None,  # noqa: A002
    advance: Callable[[int], None] = lambda _: None,
) -> Iterator[Call | Turn]:
    """The calls and turns of all files, one file after the other.

    `format` names the format of them all (a key of FORMATS); else each file's is found by its first documents.
    A file of no known format, or one that cannot be opened, is a problem. `advance` is told of bytes read.
    """
    for path in files:
        source = Source(path, problems)
        try:
            yield from _calls_of(source, FORMATS[format] if format else None, advance)
        except OSError as error:
            source.problem(1, f"cannot be read: {error.strerror}")


def _calls_of(source: Source, known: Format | None, advance: Callable[[int], None]) -> Iterator[Call | Turn]:
    found = documents(source.path, source.problems, advance)
    if known is None:
        head: list[Document] = []
        for document in islice(found, _SNIFFED):
            head.append(document)
            known = format_of(document[1])
            if known is not None:
                break
        if known is None and any(_is_talk(value) for _, value, _ in head):
            known = FORMATS["openai"]
        if known is None:
            source.problem(1, "no known transcript format")
            return
        found = chain(head, found)
    yield from known.read(found, source)


def _is_talk(value: object) -> bool:
    """Whether this is a conversation in which no tool was called yet."""
    return histories.is_message(value) or histories.messages_of(value) is not None
