"""JSON text from outside, read as it stands: fast where it can be, exact where it must be."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

_DIGITS_AS_0: Final = bytes(ord("0") if chr(byte).isdecimal() and byte < 128 else 32 for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19


def parse_json(raw: bytes) -> Any:
    """The value of a JSON text; ValueError where it is none.

    What orjson refuses (NaN, lone surrogates), and whole numbers that it would round (past 64 bits), are read by
    Python's parser, which is several times slower.
    """
    if _LONG_NUMBER not in raw.translate(_DIGITS_AS_0):
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
