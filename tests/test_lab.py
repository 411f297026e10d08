"""`make lab`: JupyterLab comes up, and its notebooks run in the project's own Python."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.timed

ROOT = Path(__file__).parents[1]
TOKEN = "of-this-test"


def wait_for(what, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.2)
    raise AssertionError(f"nothing within {seconds} s")


def command():
    """What `make lab` runs, without running it."""
    printed = subprocess.run(["make", "-n", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in printed.splitlines() if "jupyter lab" in line)
    return line.split()


@pytest.fixture
def server(tmp_path):
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    program, *arguments = command()
    more = ["--no-browser", "--port=0", f"--IdentityProvider.token={TOKEN}"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([program, *arguments, *more], cwd=ROOT, env=env, stdout=log, stderr=log)
    try:
        path = wait_for(lambda: process.poll() is not None or next(tmp_path.glob("jpserver-*.json"), None))
        assert process.poll() is None, (tmp_path / "log").read_text()
        yield json.loads(path.read_text())["url"], process
    finally:
        process.send_signal(signal.SIGINT)
        process.terminate()
        process.wait(30)


def ask(url, path, data=None):
    request = urllib.request.Request(url + path, data, {"Authorization": f"token {TOKEN}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def answered(url, path):
    with contextlib.suppress(OSError):  # it listens a moment after it has written where
        return ask(url, path)


def kernel_of(pid):
    for child in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # what it starts to look about ends within a moment
            if "ipykernel_launcher" in child.cmdline():
                return child
    return None


def test_the_lab_serves_the_notebooks_and_its_kernel_is_the_projects(server):
    url, process = server
    names = {each["name"] for each in wait_for(lambda: answered(url, "api/contents"))["content"]}
    assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} <= names
    assert ask(url, "api/kernelspecs")["default"] == "python3"
    ask(url, "api/kernels", b'{"name": "python3"}')
    kernel = wait_for(lambda: kernel_of(process.pid))
    # The environment's own python is a link: what it runs in is told by the name that it was started with.
    assert Path(kernel.cmdline()[0]).absolute().parent == Path(sys.executable).absolute().parent
