"""Tests of the exit code if a library swallows the exception by which a signal ends the program."""

import signal
import subprocess
import sys

import pytest

LOSES = """
import os
from runner import cli


def lose():
    try:
        os.kill(os.getpid(), {number})
    except BaseException:
        pass
    {then}


cli.app = lose
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("then", ["raise RuntimeError('no font')", "raise SystemExit(0)", "return"])
def test_a_lost_exception_of_a_signal_does_not_change_the_exit_code(number, then):
    reset = ["env", "--default-signal=HUP,INT,TERM"]
    command = [*reset, sys.executable, "-c", LOSES.format(number=int(number), then=then)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    said = f"{number.name} ended this command before its result.\n"
    if number == signal.SIGINT:
        said = ""
    assert (done.returncode, done.stderr) == (128 + number, said)
