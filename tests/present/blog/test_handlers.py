"""Tests of the code and the versions that a post shows: they must be from the run's commit."""

import subprocess

import pytest
from built import ROOT
from figure_checks import tables_of

from runner.manifest import Git
from runner.present.blog import handlers
from runner.present.blog.story import Command


def head() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def manifest():
    """Return a manifest that says that the run was made by the code of the last commit."""
    return tables_of("sample").manifest.model_copy(update={"git": Git(commit=head(), dirty=False)})


@pytest.mark.parametrize("server", ["axum", "actix", "hyper", "gin", "echo", "fiber", "gnet"])
def test_code_that_is_shown_stands_in_the_server(manifest, server):
    language = "Rust" if server in {"axum", "actix", "hyper"} else "Go"
    found = handlers.handler(manifest, server, language, "/experiments")
    if found is None:
        pytest.skip(f"{server} answers without a function of such a name")
    sources = "".join(
        path.read_text()
        for path in (ROOT / "servers" / server).rglob("*")
        if path.suffix in {".rs", ".go"} and "build" not in path.parts
    )
    assert found.code in sources
    assert found.code.count("{") == found.code.count("}") and found.code.endswith("}")


def test_frameworks_have_the_versions_that_are_locked(manifest):
    go_mod = (ROOT / "servers" / "gin" / "go.mod").read_text()
    assert f"gin v{handlers.framework_version(manifest, 'gin', 'gin')}\n" in go_mod
    lock = (ROOT / "servers" / "actix" / "Cargo.lock").read_text()
    version = handlers.framework_version(manifest, "actix", "actix")
    assert f'name = "actix-web"\nversion = "{version}"' in lock


@pytest.mark.parametrize(
    "git", [None, Git(commit="0" * 40, dirty=False), Git(commit="HEAD", dirty=True)]
)
def test_code_of_an_unknown_commit_is_not_shown(manifest, git):
    unknown = manifest.model_copy(update={"git": git})
    assert handlers.handler(unknown, "axum", "Rust", "/count") is None
    assert handlers.framework_version(unknown, "axum", "axum") == ""


@pytest.mark.parametrize("commit", ["--output={}", "HEAD", "HEAD --output={}", "main"])
def test_a_commit_that_is_an_option_of_git_writes_nothing(manifest, tmp_path, commit):
    """If a manifest's commit looks like git's option --output, git does not write a file.

    The manifest of a run from another machine can contain any text.
    """
    target = tmp_path / "written"
    hostile = manifest.model_copy(update={"git": Git(commit=commit.format(target), dirty=False)})
    assert handlers.handler(hostile, "axum", "Rust", "/count") is None
    assert list(tmp_path.iterdir()) == []


def test_a_command_has_no_folder_no_host_and_no_option_for_reports():
    wrk = Command(("/usr/bin/wrk", "-t5", "-s", "/home/me/h.lua", "http://10.0.0.7:80/a?b=1"), {})
    assert wrk.words == "wrk -t5 -s h.lua http://server/a?b=1"
    k6 = Command(
        ("./.tools/k6", "run", "--quiet", "--out=json=TRIAL/k6.json.gz", "runner/load.js"),
        {"SCENARIO": '{"vus": 3}', "TARGET_URL": "http://10.0.0.7"},
    )
    assert k6.words == "SCENARIO='{\"vus\": 3}' k6 run --out=json=k6.json.gz load.js"
