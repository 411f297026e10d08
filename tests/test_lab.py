"""`make lab`: JupyterLab comes up, and its notebooks run in the project's own Python."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
import real_lab
from fake_lab import wait_for

pytestmark = pytest.mark.timed

ROOT = Path(__file__).parents[1]
TOKEN = "of-this-test"


@pytest.fixture
def server(tmp_path):
    """What `make lab` runs, on a free port: its address and process."""
    printed = subprocess.run(["make", "-n", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = (line for line in printed.splitlines() if "jupyter lab" in line)
    command = [*line.split(), "--no-browser", "--port=0", f"--IdentityProvider.token={TOKEN}"]
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    with (
        (tmp_path / "log").open("w") as log,
        real_lab.process(*command, cwd=ROOT, env=env, stdout=log, stderr=log) as lab,
    ):

        def facts():  # empty until JupyterLab has written its file
            return lab.poll() is not None or "".join(path.read_text() for path in tmp_path.glob("jpserver-*.json"))

        said = wait_for(facts, 60)
        assert lab.poll() is None, (tmp_path / "log").read_text()
        yield json.loads(said)["url"], lab
        lab.terminate()
        lab.wait(30)


def test_the_lab_serves_the_notebooks_and_its_kernel_is_the_projects(server):
    url, process = server

    def ask(path, data=None):
        request = urllib.request.Request(url + path, data, {"Authorization": f"token {TOKEN}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def kernel():
        commands = (child.cmdline() for child in psutil.Process(process.pid).children(recursive=True))
        return next((command for command in commands if "ipykernel_launcher" in command), None)

    names = {each["name"] for each in wait_for(lambda: ask("api/contents"), 60)["content"]}
    assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} <= names
    assert ask("api/kernelspecs")["default"] == "python3"
    ask("api/kernels", b'{"name": "python3"}')
    # The environment's python is a link: what it runs in shows in the name that it was started with.
    assert Path(wait_for(kernel, 60)[0]).absolute().parent == Path(sys.executable).absolute().parent
