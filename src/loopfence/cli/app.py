"""The table of commands, and the typer application that is made of it."""

import importlib
from typing import Annotated

import typer

from loopfence.cli import fail
from loopfence.errors import LoopfenceError

COMMANDS = {
    "demo": "loopfence.cli.demo:demo",
    "check": "loopfence.cli.calls:check",
    "report": "loopfence.cli.calls:report",
    "show": "loopfence.cli.show:show",
    "sessions": "loopfence.cli.show:sessions",
    "halt": "loopfence.cli.control:halt",
    "resume": "loopfence.cli.control:resume",
    "reset": "loopfence.cli.control:reset",
}
"""Command -> the function that runs it and returns its exit code (None = 0), in the order of --help."""

# What is wrong with the words of a command line. Typer has carried its own copy of click since 0.20, so that
# the class is reached through the one that typer exports.
UsageError = typer.BadParameter.__mro__[1]


def run(args: list[str]) -> int:
    """Run one command line and return its exit code; every expected error is one line on stderr."""
    command = _application(args[0] if args else None)
    try:
        return command(args, prog_name="loopfence", standalone_mode=False) or 0
    except LoopfenceError as error:
        return fail(str(error))
    except UsageError as error:
        context = error.ctx
        where = context.command_path if context else "loopfence"
        return fail(f"{error.format_message()} (see {where} --help)")
    except typer.Abort:
        return 130


def _application(name: str | None) -> typer.Typer:
    """The application; with the command `name` alone where that is a known one, to import no other."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for known in (name,) if name in COMMANDS else COMMANDS:
        module, _, function = COMMANDS[known].partition(":")
        app.command(known)(getattr(importlib.import_module(module), function))
    return app


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Stop LLM agents that call the same tool with the same arguments over and over."""
    if version:
        # Lazy: reading the metadata of the installed packages is slow.
        from importlib.metadata import version as installed

        print(f"loopfence {installed('loopfence')}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
