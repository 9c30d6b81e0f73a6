"""Whether two results of a call are equal: the digest of a result, or None where that cannot be known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loopfence.canonical import canonical_json
from loopfence.signature import digest, select_fields

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

MASKED_CHARACTERS = 65_536
"""How much of a text is masked; the rest is compared as it stands."""


def is_null(result: Any) -> bool:
    """Whether a result is known to say nothing: None (not "", not "null")."""
    return result is None


def result_digest(
    result: Any,
    *,
    ignore: Sequence[str] = (),
    masks: Sequence[re.Pattern[str]] = (),
    secret: bytes | None = None,
) -> str | None:
    """16 hex digits that are equal for equal results; None, unknown, if the result has no canonical JSON.

    `ignore` leaves dotted fields (as `select_fields` takes them) out of an object or a list, and out of a
    text that is a JSON object or array. What `masks` match in the first 64 Ki characters of a text, or of the
    canonical JSON of anything else, is taken out. No generator, iterator or file is ever read, and no
    Exception is ever raised, whatever the result's own methods do: the tool has run.
    """
    try:
        if result is None:
            return digest("null", secret)
        value = str.__str__(result) if issubclass(type(result), str) else result
        if ignore:
            value = select_fields(_parsed(value) if type(value) is str else value, ignore, ())
        if type(value) is str:
            return digest(canonical_json(_masked(value, masks)), secret)
        return digest(_masked(canonical_json(value), masks), secret)
    except Exception:  # noqa: BLE001
        return None


def _parsed(text: str) -> Any:
    """The object or array that a text holds, else the text itself."""
    if text.lstrip()[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _masked(text: str, masks: Sequence[re.Pattern[str]]) -> str:
    if not masks:
        return text
    head = text[:MASKED_CHARACTERS]
    for mask in masks:
        head = mask.sub("", head)
    return head + text[MASKED_CHARACTERS:]
