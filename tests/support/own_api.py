"""A user's API for tests (fakes/tiny_server.py on a free port), and a function that measures it."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import fake_lab
import pytest
import real_lab

from runner.measure import cgroups

CLOSED = ("--vus", "4", "--iterations", "200")


def free_port(address="127.0.0.1"):
    """Return a port that is free at an address.

    It is below 32,000, because the kernel usually takes higher ports for outgoing connections.
    """
    # The search begins at a port that depends on the id of this process, because ports that an
    # earlier test process used may still be held by the kernel.
    for port in range(20_000 + os.getpid() * 37 % 5_000, 32_000):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family) as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise AssertionError("no free port")


@dataclass
class Tiny:
    """A running server that the lab measures as a user's API."""

    process: subprocess.Popen
    url: str

    @property
    def seen(self):
        """The numbers of requests and connections that the server counted."""
        with urllib.request.urlopen(f"{self.url}/seen", timeout=5) as answer:
            return json.load(answer)


def wait_for(address):
    """Wait until a program listens at the address (host, port), but at most ten seconds."""
    fake_lab.wait_for(lambda: not socket.create_connection(address, timeout=1).close(), 10)


@contextlib.contextmanager
def tiny(delay_ms=20, *, cpus="0", address="127.0.0.1", port=None, **environment):
    """Run fakes/tiny_server.py on the given CPUs until the context ends; yield it as a Tiny."""
    port = port or free_port(address)
    command = [sys.executable, real_lab.HERE / "fakes" / "tiny_server.py", address, port, delay_ms]
    with real_lab.process(*command, cpus=cpus, env={**os.environ, **environment}) as process:
        wait_for((address, port))
        yield Tiny(
            process, f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
        )


@contextlib.contextmanager
def odd(oddity, wait_ms):
    """Run fakes/odd_server.py with one of its oddities until the context ends; yield a Tiny."""
    port = free_port()
    command = [
        sys.executable,
        real_lab.HERE / "fakes" / "odd_server.py",
        "127.0.0.1",
        port,
        oddity,
        wait_ms,
    ]
    with real_lab.process(*command, cpus="0") as process:
        wait_for(("127.0.0.1", port))
        yield Tiny(process, f"http://127.0.0.1:{port}")


@dataclass
class Held:
    """A control group whose quota the lab did not set. A test puts a server into the group.

    The quota applies to the group, but the server's processes are in a child group, `below`.
    """

    folder: Path

    @property
    def throttled(self):
        """The quota's counters: periods, throttled periods, and the throttled time in seconds."""
        lines = (self.folder / "cpu.stat").read_text().splitlines()
        counts = dict(line.split() for line in lines)
        if "throttled_time" in counts:
            seconds = int(counts["throttled_time"]) / 1e9
        else:
            seconds = int(counts["throttled_usec"]) / 1e6
        return int(counts["nr_periods"]), int(counts["nr_throttled"]), seconds

    def join(self, pid):
        """Move a process and all of its threads into the child group."""
        (self.folder / "below" / "cgroup.procs").write_text(str(pid))


@contextlib.contextmanager
def held_group(cores, period_us=100_000):
    """Make a control group with a quota that the lab did not set, and remove it at the end.

    The group belongs only to the controller `cpu`. With version 1 of control groups, the CPU time
    of its processes is therefore counted in another group. The group has a high weight, so that its
    processes run before other programs of the machine. The test is skipped if no group can be made.
    """
    mounts = cgroups.mounts()
    first = (mounts / "cpu").is_dir()
    folder = (mounts / "cpu" if first else mounts) / f"elsewhere-{os.getpid()}"
    try:
        if not first:
            (mounts / "cgroup.subtree_control").write_text("+cpu")
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (folder / "below").mkdir()
        quota_us = round(cores * period_us)
        if first:
            (folder / "cpu.cfs_period_us").write_text(str(period_us))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
            (folder / "cpu.shares").write_text("200000")
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {period_us}")
            (folder / "cpu.weight").write_text("10000")
        yield Held(folder)
    finally:
        for each in (folder / "below", folder):
            with contextlib.suppress(FileNotFoundError):
                cgroups.remove(each)


def run(root, *arguments, url=None, script=None, code=0):
    """Run `bench run`, which must end with exit code `code`.

    Each load is measured once, unless `arguments` contain --repeats. `script` is the text of a k6
    script.
    """
    given = ["--url", url] if url else []
    if script is not None:
        (root / "my.js").write_text(script)
        given += ["--script", str(root / "my.js")]
    return real_lab.run(root, None, "--repeats", "1", *given, *arguments, code=code)
