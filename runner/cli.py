"""The `bench` command: parse the arguments, call a function, and set the exit code.

This module contains no other logic.
"""

import io
import os
import signal
import sys
import tempfile
import traceback
from importlib.metadata import version
from types import FrameType
from typing import Annotated, NoReturn

import typer

from runner import console
from runner.commands import (
    ab,
    auditing,
    importing,
    installing,
    machine,
    measuring,
    options,
    presenting,
    profiling,
)
from runner.model import LabError

app = typer.Typer(
    name="bench",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

SIGNALLED = 128
"""The exit code of a program that a signal ended is this number plus the signal's number."""
DISTRIBUTION = "web-bench-lab"
"""Name of the installed package."""
FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Settings of a command that passes all its options unchanged to the program that it starts."""


def _print_version(is_asked: bool) -> None:
    """If the option --version is given, print the version and end the program."""
    if is_asked:
        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
        raise typer.Exit


for command in (
    *(machine.doctor, machine.list_, installing.setup, installing.notebooks),
    *(machine.build, machine.check),
    *(measuring.run, ab.ab, measuring.calibrate, measuring.overhead),
    *(
        importing.import_,
        presenting.report,
        presenting.compare,
        presenting.history,
        presenting.claims,
    ),
    *(profiling.profile, presenting.export, presenting.publish, auditing.audit, machine.clean),
):
    starts_another = command is measuring.overhead
    app.command(
        command.__name__.rstrip("_"),
        context_settings=FORWARDED if starts_another else None,
        add_help_option=not starts_another,
    )(command if starts_another else options.with_data(command))


@app.callback()
def lab(
    print_version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
) -> None:
    """Benchmark web API servers; every number carries a verdict of what it measured."""


_received: list[int] = []
"""Numbers of the signals that this program has received to end it."""


def _end_with(number: int, _frame: FrameType | None) -> NoReturn:
    """End the program with the exit code by which a shell reports a signal.

    This function raises SystemExit. The exception runs the `finally` blocks of the interrupted
    code, which end processes and remove temporary folders.
    """
    _received.append(number)
    name = signal.Signals(number).name
    # Do not write to a buffered stream, because the interrupted code may be using the stream.
    os.write(2, f"{name} ended this command before its result.\n".encode())
    sys.exit(SIGNALLED + number)


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    """Interrupt the program at Ctrl-C, like Python's own handler."""
    _received.append(number)
    raise KeyboardInterrupt


def _clean_up_on_signals() -> None:
    """Let signals raise an exception, so that the process cleans up before it ends."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end_with)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _report(error: Exception) -> NoReturn:
    """Print an error as one sentence, and end the program.

    If the error is neither a LabError nor from the operating system, store its details for a
    developer.
    """
    if isinstance(error, LabError):
        console.error(str(error))
        sys.exit(error.exit_code)
    if isinstance(error, OSError):
        named = f" ({error.filename})" if error.filename else ""
        console.error(
            f"The operating system refused an operation: {error.strerror or error}{named}."
        )
        sys.exit(1)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="bench-error-", suffix=".txt", delete=False
        ) as file:
            traceback.print_exception(error, file=file)
        where = f"details are in {file.name}"
    except OSError:
        where = "its details could not be written"
    console.error(f"Unexpected error ({type(error).__name__}: {error}); {where}.")
    sys.exit(1)


def main() -> None:
    """Run the command line; print an error as one sentence, and never as a traceback.

    If the locale is not UTF-8, restart in Python's UTF-8 mode. Without it, paths with letters that
    the locale lacks could not be opened.

    After a signal, end with the signal's exit code, even if the exception that the signal raised
    got lost. A C library loses the exception if, for example, the signal arrives while the library
    reads a font through a Python file object. The library then raises an error of its own.
    """
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"  # instruments and kernels of notebooks inherit the variable
        # The program restarts itself with the same arguments.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # If the terminal's encoding lacks a character, print the character's code instead.
            stream.reconfigure(errors="backslashreplace")
    _clean_up_on_signals()
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(SIGNALLED + signal.SIGINT)
    except SystemExit:
        if not _received:
            raise
    # Report each error, unless a signal has caused it.
    except Exception as error:  # noqa: BLE001
        if not _received:
            _report(error)
    if _received:
        sys.exit(SIGNALLED + _received[0])


if __name__ == "__main__":
    main()
