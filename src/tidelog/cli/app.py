"""The command line as typer sees it: which commands there are, and how failures are worded.

Only the module of the command that was typed is imported, so that `tidelog topics list` does not
pay for what `tidelog up` needs. Help and completion import all of them.

A command returns its exit code. What goes wrong is raised - `TidelogError`, or typer's own
complaints about usage - and becomes one sentence on stderr here and nowhere else.
"""

import errno
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer

from tidelog import __version__
from tidelog.base.errors import ConfigError, TidelogError
from tidelog.cli.output import complain

DONE: Final = 0
ANSWER_IS_NO: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130

# What writing to a file on a full or failing disk gives.
OUTPUT_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# In the order of the help page. Each is a module of this package with `register(app)`.
COMMANDS: Final = (
    "demo",
    "up",
    "down",
    "status",
    "stop",
    "kill",
    "restart",
    "broker",
    "topics",
    "produce",
    "consume",
    "find",
    "groups",
    "transactions",
    "configs",
    "cluster",
    "log-dirs",
    "zookeeper",
    "pipeline",
    "lab",
    "bench",
    "sim",
)
_WITH_SUBCOMMANDS = frozenset(
    {
        *("topics", "groups", "transactions", "configs", "log-dirs", "zookeeper", "pipeline"),
        *("lab", "bench"),
    }
)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        return _run(arguments)
    except OSError as error:
        if error.errno not in OUTPUT_ERRORS or error.filename is not None:
            raise
        return _cannot_write(error, arguments)


def _run(arguments: Sequence[str]) -> int:
    wanted = [arguments[0]] if arguments and arguments[0] in COMMANDS else list(COMMANDS)
    try:
        _require_text(arguments)
        code = build(wanted)(args=list(arguments), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_has_enough()
    except SystemExit as ending:
        # typer's own answer to a broken pipe in a command is to exit with 1.
        if not isinstance(ending.__context__, BrokenPipeError):
            raise
        return _reader_has_enough()
    except KeyboardInterrupt:
        return INTERRUPTED
    except TidelogError as error:
        return _failed(error, arguments)
    except typer.TyperException as error:
        return _misused(error)
    # typer's own commands, such as help, return nothing.
    return code if isinstance(code, int) else DONE


def _require_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no UTF-8: librdkafka's wrapper does not survive all of them."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = ascii(os.fsencode(argument))[1:]
            raise ConfigError(f"{shown} is not text in UTF-8") from None


def build(names: Iterable[str]) -> typer.Typer:
    """The application with the commands of these names."""
    app = typer.Typer(
        name="tidelog",
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names:
        importlib.import_module(f"tidelog.cli.{name.replace('-', '_')}").register(app)
    return app


def _print_version(shown: bool) -> None:
    if shown:
        sys.stdout.write(f"tidelog {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """A replicated, partitioned log that speaks Kafka's protocol and writes Kafka's files."""


def _reader_has_enough() -> int:
    """Whoever read our output, `head` for example, has what it wanted."""
    _drop_output()
    return DONE


def _cannot_write(error: OSError, arguments: Sequence[str]) -> int:
    _drop_output()
    complain(f"the output cannot be written: {error.strerror}", command=_command_path(arguments))
    return ANSWER_IS_NO


def _drop_output() -> None:
    # Python flushes stdout once more at exit, and that would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _failed(error: TidelogError, arguments: Sequence[str]) -> int:
    complain(str(error), command=_command_path(arguments))
    is_wrong_setting = isinstance(error, ConfigError) or getattr(error, "is_invalid_request", False)
    return WRONG_USAGE if is_wrong_setting else ANSWER_IS_NO


def _misused(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tidelog"
    message = error.format_message().replace("Value error, ", "")
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stdout.write(f"{message}\n")
    else:
        sentence = message[:1].lower() + message[1:].rstrip(".")
        complain(f"{sentence} ({path} --help says more)", command=path)
    return WRONG_USAGE


def _command_path(arguments: Sequence[str]) -> str:
    """`tidelog topics create`, out of all that was typed."""
    words = ["tidelog", *arguments[:1]]
    if arguments[0] in _WITH_SUBCOMMANDS and len(arguments) > 1:
        words.append(arguments[1])
    return " ".join(words)
