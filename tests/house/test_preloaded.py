"""Tests of programs that are forked from a process that has already imported their modules.

A forked program must behave like a program that is started as usual.
"""

import json
import os
import pty
import resource
import signal
import subprocess
import sys

import preloaded
import psutil
import pytest
import real_lab
from built import ROOT
from fake_lab import wait_for
from jupyter_client import launcher

from runner.present.notebook.kernels import Kernels

STARTS = {"started": subprocess.Popen, "forked": preloaded.Popen}
SEEN = """
import json, os, sys
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
standard = {0: sys.stdin, 1: sys.stdout, 2: sys.stderr}
json.dump({
    'argv': sys.argv, 'orig_argv': sys.orig_argv, 'path': sys.path, 'name': __name__,
    'env': dict(os.environ), 'folder': os.getcwd(), 'parent': os.getppid(),
    'group': os.getpgid(0), 'session': os.getsid(0), 'umask': status['Umask'],
    'ignored': status['SigIgn'], 'blocked': status['SigBlk'], 'caught': status['SigCgt'],
    'threads': status['Threads'], 'cpus': status['Cpus_allowed'],
    'files': os.listdir('/proc/self/fd'),
    'terminal': [os.isatty(number) for number in standard],
    'streams': [
        (each.fileno(), each.encoding, each.errors, each.name, each.line_buffering,
         each.write_through, each.mode)
        for each in standard.values()
    ],
    'same': [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__,
             sys.stderr is sys.__stderr__],
}, sys.stdout)
"""
ENDS = {
    "returns": "print('out')",
    "exits": "import sys; print('out'); sys.exit(3)",
    "exits beyond a byte": "import sys; sys.exit(259)",
    "exits with words": "import sys; sys.exit('words')",
    "exits at once": "import os; print('lost'); os._exit(4)",
    "is interrupted": "raise KeyboardInterrupt",
    "aborts": "import os; os.abort()",
    "waits for a thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\n"
        "print('first')"
    ),
    "leaves at the end": "import atexit, sys; atexit.register(print, 'left'); sys.exit(5)",
    "has nobody to read it": "import os; os.close(1); os.open('/dev/full', 1); print('x')",
}


def start(how: str, *arguments: object, **given: object) -> subprocess.Popen[bytes]:
    """Start the Python interpreter in the way `how`, which is a key of STARTS."""
    made = STARTS[how]([sys.executable, *map(str, arguments)], **given)
    assert getattr(made, "is_forked", False) == (how == "forked")
    return made


def ended(how: str, *arguments: object, **given: object) -> tuple[int, bytes, bytes]:
    """Run a Python program to its end, and return its exit code, output and errors."""
    pipe = subprocess.PIPE
    with start(how, *arguments, stdout=pipe, stderr=pipe, **given) as made:
        out, err = made.communicate(timeout=60)
    return made.returncode, out, err


def both(*arguments: object, **given: object) -> list[tuple[int, bytes, bytes]]:
    return [ended(how, *arguments, **given) for how in STARTS]


@pytest.mark.parametrize("given", [{}, {"stdin": subprocess.DEVNULL, "start_new_session": True}])
def test_a_fork_sees_what_a_program_sees(tmp_path, given):
    env = {**os.environ, "BENCH_ROOT": "elsewhere", "COLUMNS": "77"}
    started, forked = (
        json.loads(out) for _, out, _ in both("-c", SEEN, "a b", cwd=tmp_path, env=env, **given)
    )
    if given:
        assert started.pop("session") != forked.pop("session") != os.getsid(0)
        assert started.pop("group") != forked.pop("group") != os.getpgid(0)
    assert started == forked
    assert forked["folder"] == str(tmp_path) and forked["parent"] == os.getpid()


@pytest.mark.parametrize("how", STARTS)
def test_a_session_of_its_own_is_there_at_once(how):
    """As soon as `start` returns, the program has a session of its own, as made by setsid(2).

    Without a session of its own, a signal to the program's process group could hit the tests.
    """
    for _ in range(10):
        with start(how, "-c", "pass", start_new_session=True) as made:
            assert os.getsid(made.pid) == os.getpgid(made.pid) == made.pid


def test_a_module_sees_what_a_program_sees(tmp_path):
    (tmp_path / "seen.py").write_text(SEEN)
    env = {**os.environ, "PATH": "/nowhere"}
    started, forked = (
        json.loads(out) for _, out, _ in both("-m", "seen", "--x", "1", cwd=tmp_path, env=env)
    )
    assert started == forked
    assert forked["argv"] == [str(tmp_path / "seen.py"), "--x", "1"]


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_a_fork_ends_as_a_program_ends(code):
    started, forked = both("-c", code)
    assert forked[:2] == started[:2]
    assert forked[2].splitlines()[-1:] == started[2].splitlines()[-1:]


def test_bench_says_the_same(tmp_path):
    for arguments, code in ((["list", "--json"], 0), (["run", "nonsense"], 2), ([], 2)):
        env = {**os.environ, "BENCH_ROOT": str(ROOT), "COLUMNS": "100"}
        started, forked = both("-m", "runner.cli", *arguments, cwd=tmp_path, env=env)
        assert started == forked and forked[0] == code


@pytest.mark.parametrize("how", STARTS)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGKILL, -9), (signal.SIGTERM, -15), (signal.SIGHUP, -1), (signal.SIGINT, 130)],
)
def test_a_signal_ends_it(how, number, code):
    text = (
        "import signal, sys, time\n"
        "try:\n print(flush=True); time.sleep(60)\n"
        "except KeyboardInterrupt:\n sys.exit(130)"
    )
    with start(how, "-c", text, stdout=subprocess.PIPE) as made:
        made.stdout.readline()
        assert made.poll() is None
        made.send_signal(number)
        assert made.wait(30) == code


@pytest.mark.parametrize("how", STARTS)
def test_a_terminal_is_one(how):
    ours, theirs = pty.openpty()
    code = (
        "import sys; streams = (sys.stdin, sys.stdout, sys.stderr)\n"
        "sys.stdout.write(f'{[each.isatty() for each in streams]}\\n')"
    )
    with start(how, "-c", code, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL) as made:
        os.close(theirs)
        assert os.read(ours, 100) == b"[True, True, False]\r\n"
    os.close(ours)
    assert made.returncode == 0


def test_forks_share_no_chance_and_no_folder_for_temporary_files(tmp_path):
    code = "import random, tempfile; print(random.random(), tempfile.gettempdir())"
    (tmp_path / "own").mkdir()
    env = {**os.environ, "TMPDIR": str(tmp_path / "own")}
    found = [ended("forked", "-c", code, env=env)[1].split() for _ in range(2)]
    assert found[0][0] != found[1][0]
    assert found[0][1] == found[1][1] == str(tmp_path / "own").encode()


def test_other_surroundings_make_it_a_program():
    """A program is started, not forked, if its environment, umask or limits are changed.

    A forked program has the modules that the preloaded process imported, and the content of a
    module may depend on these settings at its import.
    """

    def is_forked(**given: object) -> bool:
        with preloaded.Popen([sys.executable, "-c", "pass"], **given) as made:
            return made.is_forked

    assert is_forked()
    assert not is_forked(env={**os.environ, "PYTHONUTF8": "0"})
    assert not is_forked(env={})
    assert not is_forked(umask=0o77)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is lowered only a little, because this process may have hundreds of files open.
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert not is_forked()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with preloaded.Popen(["true"]) as other:
        assert not other.is_forked


def test_a_folder_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        start("forked", "-c", "pass", cwd=tmp_path / "missing")


def test_a_process_with_threads_is_not_forked(monkeypatch):
    # Without the variables in WHILE_IMPORTED, libraries start threads when they are imported.
    monkeypatch.setitem(preloaded.WHILE_IMPORTED, "bench", {})
    server = preloaded.Server("bench")
    request = preloaded.Request([sys.executable, "-c", "pass"], dict(os.environ), False)
    with pytest.raises(RuntimeError, match=r"it has \d threads"):
        server.fork(request, ".", [0, 1, 2])


def test_the_preloaded_process_ends_with_its_starter():
    code = "import preloaded; print(preloaded.Server('bench').pid)"
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"}
    done = ended("started", "-c", code, env=env)
    assert done[0] == 0, done[2]
    wait_for(lambda: not psutil.pid_exists(int(done[1])))


def test_a_command_that_a_test_has_left_is_ended(tmp_path):
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    left = real_lab.start(tmp_path, program=sleep)
    assert left.poll() is None
    real_lab.end_started()
    assert left.returncode == -signal.SIGKILL and not psutil.pid_exists(left.pid)


def test_a_kernel_is_forked_and_draws_into_its_notebook(bare_lab, monkeypatch, capfd):
    """A forked kernel must have the same backend of matplotlib as a started kernel."""
    monkeypatch.setattr(launcher, "Popen", preloaded.Popen)
    ask = "import matplotlib, os, sys; print(matplotlib.get_backend(), os.getpid(), sys.argv[0])"
    said = []
    with Kernels(1) as kernels, kernels.one() as kernel:
        client = kernel.blocking_client()
        client.start_channels()
        client.wait_for_ready(60)
        client.execute_interactive(ask, output_hook=said.append, timeout=60)
        process = kernel.provisioner.process
    (text,) = [each["content"]["text"] for each in said if each["msg_type"] == "stream"]
    backend, pid, program = text.split()
    assert process.is_forked and int(pid) == process.pid
    assert "inline" in backend and program.endswith("ipykernel_launcher.py")
    assert capfd.readouterr() == ("", ""), "it does not know its parent"
