"""Tests of `make setup` and `make lab`.

The parts of the set-up must run at the same time, and each part must say in one line what went
wrong. A k6 of the right version must not be built again. JupyterLab must start, and its notebooks
must run in the project's own Python.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
import real_lab
from fake_lab import wait_for

from runner.planning.catalog import load_server, server_names

SETUP = real_lab.REPOSITORY / "setup"
PARTS = ("python", "k6", "system", "servers")


@pytest.fixture
def lab(tmp_path):
    """Return a folder with the scripts part.sh, all.sh and k6.sh of the set-up."""
    (tmp_path / "setup").mkdir()
    for name in ("part.sh", "all.sh", "k6.sh"):
        shutil.copy(SETUP / name, tmp_path / "setup")
    return tmp_path


def part(lab, name, text):
    real_lab.program(
        lab / "setup" / f"{name}.sh", f'#!/usr/bin/env bash\n. "$(dirname "$0")/part.sh"\n{text}\n'
    )


def run(lab, name, *arguments, **environment):
    command = [lab / "setup" / f"{name}.sh", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)


@pytest.mark.parametrize(
    ("text", "code", "out", "err"),
    [
        ("exit 0", 0, "", ""),
        ('begin "It"; echo noise; echo noise >&2', 0, "It ...\nIt: done in 0 s\n", ""),
        (
            'begin "It"; echo "one."; false; echo two',
            2,
            "It ...\n",
            "It failed: one (see .tools/setup-it.log).",
        ),
        (
            'begin "It"; echo one; echo "error: no room"; echo "hint: buy"; exit 7',
            2,
            "It ...\n",
            "It failed: no room (see .tools/setup-it.log).",
        ),
        ('fail "Nothing is there."; begin "It"', 2, "", "Nothing is there."),
    ],
)
def test_a_part_says_that_it_begins_and_how_it_ended(lab, text, code, out, err):
    part(lab, "it", text)
    done = run(lab, "it")
    said = re.sub(r"\d s$", "0 s", done.stdout, flags=re.M)
    assert (done.returncode, said, done.stderr) == (code, out, f"Error: {err}\n" if err else "")


def test_parts_run_side_by_side_and_fail_alone(lab):
    for name in PARTS:
        others = " && ".join(f"[ -e {other}.begun ]" for other in PARTS)
        end = "false" if name == "k6" else f"touch {name}.ended"
        part(
            lab,
            name,
            f"begin {name}; touch {name}.begun; until {others}; do sleep 0.01; done; sleep 0.1; "
            f"{end}",
        )
    done = run(lab, "all")
    assert done.returncode == 2
    assert {path.stem for path in lab.glob("*.ended")} == {"python", "system", "servers"}
    assert [line for line in done.stderr.splitlines() if line] == [
        "Error: k6 failed: no reason given (see .tools/setup-k6.log)."
    ]


@pytest.mark.parametrize(
    ("version", "fits"), [("v1.8.0", True), ("v1.12.3", True), ("v2.2.0", True), ("v1.7.1", False)]
)
def test_a_k6_on_the_path_that_fits_is_taken(lab, version, fits):
    programs = lab / "bin"
    programs.mkdir()
    for name in ("bash", "env", "dirname", "grep"):
        (programs / name).symlink_to(str(shutil.which(name)))
    real_lab.program(
        programs / "k6", f"#!/usr/bin/env bash\necho 'k6 {version} (go1.26.8, linux/amd64)'\n"
    )
    (lab / "setup" / "k6" / "v1").mkdir(parents=True)
    done = run(lab, "k6", PATH=str(programs))
    assert (done.stdout, done.returncode) == ("", 0 if fits else 2)
    assert fits or done.stderr.startswith(
        "Error: k6 1.8 to 2.x is not installed and Go is not there to build it"
    )


@pytest.mark.parametrize("series", real_lab.K6_SERIES)
def test_a_series_of_k6_is_locked_to_a_version(series):
    module = SETUP / "k6" / series
    text = (module / "go.mod").read_text()
    (tool,) = re.findall(r"^tool (\S+)$", text, re.M)
    (version,) = re.findall(rf"^\s*(?:require )?{tool} (v\S+)", text, re.M)
    assert version.startswith(f"{series}.")
    assert re.search(rf"^{tool} {re.escape(version)} h1:", (module / "go.sum").read_text(), re.M)


def test_the_series_that_is_built_by_default_is_one_of_them():
    (series,) = re.findall(
        r"^K6_SERIES := (\S+)$", (real_lab.REPOSITORY / "Makefile").read_text(), re.M
    )
    assert series in real_lab.K6_SERIES


def test_uv_is_pinned_by_hash_and_no_lock_file_has_an_address():
    assert re.match(r"uv==[\d.]+ \\\n    --hash=sha256:", (SETUP / "uv.txt").read_text())
    for path in (SETUP / "uv.txt", Path(real_lab.REPOSITORY / "requirements.lock")):
        assert "://" not in path.read_text()


def test_servers_are_built_by_a_python_without_any_package():
    env = {**os.environ, "PYTHONPATH": str(real_lab.REPOSITORY)}
    command = [sys.executable, "-S", SETUP / "servers.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) <= {"axum", "gin"}


def test_the_set_up_builds_a_server_as_its_description_says():
    read = runpy.run_path(str(SETUP / "servers.py"))["server"]
    for name in server_names():
        parts = [
            (it.folder, it.build_needs, it.build_command, it.build_env, it.artifact)
            for it in (read(name), load_server(name))
        ]
        assert parts[0] == parts[1]


@pytest.mark.timed
def test_the_lab_serves_the_notebooks_with_the_projects_kernel(tmp_path):
    """The command of `make lab`, here on a free port, serves notebooks with the right kernel."""
    make = ["make", "-n", "lab"]
    printed = subprocess.run(
        make, cwd=real_lab.REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    (line,) = (line for line in printed.splitlines() if "jupyter lab" in line)
    command = [*line.split(), "--no-browser", "--port=0", "--IdentityProvider.token=of-this-test"]
    env = {
        **os.environ,
        "JUPYTER_RUNTIME_DIR": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
    }
    with (
        (tmp_path / "log").open("w") as log,
        real_lab.process(*command, cwd=real_lab.REPOSITORY, env=env, stdout=log, stderr=log) as lab,
    ):

        def facts():  # empty until JupyterLab has written its file
            return lab.poll() is not None or "".join(
                path.read_text() for path in tmp_path.glob("jpserver-*.json")
            )

        def ask(path, data=None):
            request = urllib.request.Request(
                url + path, data, {"Authorization": "token of-this-test"}
            )
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)

        def kernel():
            commands = (
                child.cmdline() for child in psutil.Process(lab.pid).children(recursive=True)
            )
            return next((command for command in commands if "ipykernel_launcher" in command), None)

        said = wait_for(facts, 60)
        assert lab.poll() is None, (tmp_path / "log").read_text()
        url = json.loads(said)["url"]
        names = {each["name"] for each in wait_for(lambda: ask("api/contents"), 60)["content"]}
        assert {path.name for path in (real_lab.REPOSITORY / "notebooks").glob("*.ipynb")} <= names
        assert ask("api/kernelspecs")["default"] == "python3"
        ask("api/kernels", b'{"name": "python3"}')
        # In every virtual environment, `python` is a symbolic link to an interpreter outside the
        # environment. So only the path by which the kernel was started shows the kernel's
        # environment, and the link is not resolved here.
        assert (
            Path(wait_for(kernel, 60)[0]).absolute().parent
            == Path(sys.executable).absolute().parent
        )
        lab.terminate()
        lab.wait(30)
