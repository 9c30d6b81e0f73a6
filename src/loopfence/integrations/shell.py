"""Whether a shell command changes anything: a guess from its text that would rather say no than be wrong."""

from __future__ import annotations

import re
from itertools import dropwhile

_HEREDOC = re.compile(r"(?<!<)<<-?[ \t]*['\"]?(\w+)")
# Quoted text is data to the shell: a `>` in it writes nothing.
_QUOTED = re.compile(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
# `> file`, `>> file`, `&> file`, but neither `2>&1` nor a device.
_REDIRECTION = re.compile(r">>?\|?[ \t]*(?!/dev/)[^\s>&|;()]")
_NEXT_COMMAND = re.compile(r"\$\(|[;&|\n(){}`]+")
_ASSIGNMENT = re.compile(r"\w+=")
_IN_PLACE = re.compile(r"-[a-zA-Z]*i|--in-place")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BEFORE_COMMANDS = _words("! builtin command do else env exec nice nohup sudo then time xargs")
_WRITERS = _words("apply_patch chmod chown cp ex ln mkdir mv patch rm rmdir rsync tee touch truncate unlink")
_EDITORS = _words("perl ruby sed")
_PACKAGE_MANAGERS = _words("apt apt-get brew bun npm pip pip3 pnpm poetry uv yarn")
_WRITING_SUBCOMMANDS = {
    "git": _words(
        "add am apply checkout cherry-pick clean clone commit init merge mv pull push rebase reset restore revert rm "
        "stash switch"
    ),
    "kubectl": _words("annotate apply create delete edit label patch replace rollout scale set"),
    "terraform": _words("apply destroy import init"),
    "cargo": _words("add install remove update"),
    "go": _words("get install"),
    **dict.fromkeys(_PACKAGE_MANAGERS, _words("add ci i install remove sync uninstall update upgrade")),
}


def writes(command: str) -> bool:
    """Whether `command` names a file to write to, or a program that is known to change files or services.

    What a program of the user's own does is unknown, so it counts as reading; so do builds and test runs.
    """
    text = _QUOTED.sub(" _ ", _without_heredocs(command))
    return bool(_REDIRECTION.search(text)) or any(_changes(part.split()) for part in _NEXT_COMMAND.split(text))


def _without_heredocs(command: str) -> str:
    kept, end = [], ""
    for line in command.split("\n"):
        if end:
            end = "" if line.strip() == end else end
            continue
        kept.append(line)
        if found := _HEREDOC.search(line):
            end = found[1]
    return "\n".join(kept)


def _changes(words: list[str]) -> bool:
    words = list(dropwhile(_is_prefix, words))
    if words[1:2] == ["-m"] and words[0].startswith("python"):
        words = words[2:]
    if not words:
        return False
    program, rest = words[0].rpartition("/")[2], words[1:]
    if program in _EDITORS:
        return any(_IN_PLACE.match(word) for word in rest)
    return program in _WRITERS or _subcommand(rest) in _WRITING_SUBCOMMANDS.get(program, ())


def _is_prefix(word: str) -> bool:
    return word in _BEFORE_COMMANDS or word.startswith("-") or _ASSIGNMENT.match(word) is not None


def _subcommand(words: list[str]) -> str | None:
    """The first word that is neither an option nor the value of git's `-C dir` and `-c name=value`."""
    previous = ""
    for word in words:
        if not word.startswith("-") and previous not in ("-C", "-c"):
            return word
        previous = word
    return None
