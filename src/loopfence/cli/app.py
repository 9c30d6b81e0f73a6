"""The typer application: every command but the light ones, and the help page that lists them all."""

from typing import Annotated, Any

import typer

from loopfence.cli import COMMANDS, LIGHT, fail, load

# Typer carries its own copy of click in newer versions and imports click in older ones, so the class of a
# mistake on the command line is reached through the one that typer exports.
_UsageError: Any = typer.BadParameter.__mro__[1]


def run(words: list[str]) -> int:
    """Run one command line and return its exit code; a mistake in its words is one line on stderr."""
    command = _application(words[0] if words else "")
    try:
        return command(words, prog_name="loopfence", standalone_mode=False) or 0
    except _UsageError as error:
        place = error.ctx.command_path if error.ctx else "loopfence"
        return fail(f"{error.format_message()} (see {place} --help)")
    except typer.Abort:
        return 130


def _application(name: str) -> typer.Typer:
    """The application: of one command where `name` is one, so that no other is imported."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for known in [name] if name in COMMANDS else COMMANDS:
        function = load(known)
        if known in LIGHT:
            app.command(known, help=function.__doc__)(_listed)
        else:
            app.command(known)(function)
    return app


def _listed() -> None:
    """Stands on the help page for a light command, which never gets here."""


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Stop LLM agents that call the same tool with the same arguments over and over."""
    if version:
        # Imported here: reading the metadata of the installed packages is slow.
        from importlib.metadata import version as installed

        print(f"loopfence {installed('loopfence')}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
