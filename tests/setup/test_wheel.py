"""Tests of the lab's wheel, for a user who has no checkout of the lab.

The wheel is installed in an environment of its own, and used in an empty folder.
"""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import nbformat
import own_api
import pytest
import real_lab
from built import ROOT
from installed_lab import Installed, built
from k6_samples import CLOSED
from packaging.version import Version

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
CLONE = "git clone "


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def lab(wheel, tmp_path_factory):
    """Return the installed wheel, with the k6 of the checkout on PATH."""
    return Installed.of(wheel, tmp_path_factory.mktemp("lab"), [ROOT / ".tools"])


@pytest.fixture(scope="module")
def without_tools(wheel, tmp_path_factory):
    return Installed.of(wheel, tmp_path_factory.mktemp("bare"))


@pytest.fixture
def bare(without_tools, tmp_path):
    """Return the installed wheel, in an empty folder, for a user without k6 and Go on PATH."""
    return replace(without_tools, folder=tmp_path)


def files(folder):
    """Return the size and the time of the last change of each file in a folder, except bytecode."""
    return {
        path.relative_to(folder): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_wheel_has_the_files_of_the_checkout(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for inside in (*(f"notebooks/{name}" for name in NOTEBOOKS), "setup/k6/v1/go.sum"):
            assert archive.read(f"runner/packaged/{inside}") == (ROOT / inside).read_bytes()
    assert {"runner/campaigns/quick.toml", "runner/packaged/data/published.csv"} <= names
    assert not [name for name in names if name.startswith(("servers/", "tests/", "data/"))]
    metadata = next(name for name in names if name.endswith("/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(metadata).decode()
    always = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", text, re.M)
    assert {"papermill", "ipykernel", "pyarrow"} <= set(always)
    assert not {"jupyterlab", "ipympl", "psycopg", "distributed", "paramiko"} & set(always)
    assert set(re.findall(r"^Provides-Extra: (\w+)$", text, re.M)) == {
        *("cluster", "fleet", "lab", "postgres")
    }


def test_a_wheel_of_the_sdist_is_the_same(wheel, tmp_path):
    sdist = built("sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    again = tmp_path / wheel.name  # the version in this name must be found without git
    assert zipfile.ZipFile(again).namelist() == zipfile.ZipFile(wheel).namelist()


def test_what_needs_no_tool_works_in_an_empty_folder(bare):
    assert re.fullmatch(r"web-bench-lab \d+\.\d+\.\d+\S*\n", bare.bench("--version").stdout)
    found = bare.json("list")
    assert found["servers"] == [] and "quick" in {each["name"] for each in found["campaigns"]}
    assert [Path(each["path"]).name for each in bare.json("notebooks")] == NOTEBOOKS
    assert "_BENCH_COMPLETE" in bare.call("bench", "--show-completion", "bash").stdout
    assert list(bare.folder.iterdir()) == [], "to list writes nothing"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("run", "quick"), CLONE),
        (("check", "gin"), CLONE),
        (("build", "gin"), CLONE),
        (("overhead",), CLONE),
        (("report", "seeds"), CLONE),
        (("report",), "There is no run yet"),
        (("run", "--folder", ".", "--script", "load.js"), "run `bench setup k6`"),
        (("setup", "k6"), "install k6 or Go (go.dev/dl)"),
        (("setup", "k7"), "choose from k6,"),
    ],
)
def test_what_is_missing_is_one_sentence(bare, command, says):
    (bare.folder / "load.js").write_text("export default function () {}\n")
    (bare.folder / "Dockerfile").touch()
    said = bare.bench(*command, code=2).stderr.strip()
    assert says in said and len(said.splitlines()) == 1, said


def test_notebooks_are_copied_but_never_over_changed_ones(bare):
    bare.bench("notebooks", "--copy", "mine")
    copied = bare.folder / "mine"
    assert sorted(path.name for path in copied.iterdir()) == NOTEBOOKS
    bare.bench("notebooks", "--copy", "mine")
    (copied / "report.ipynb").write_text("{}")
    assert "exists and differs" in bare.bench("notebooks", "--copy", "mine", code=2).stderr


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.timeout(900)
@real_lab.needs_two_cpus
def test_a_user_without_a_checkout(lab):
    """A user without a checkout can measure a URL, read a file of k6, and make reports of both.

    Nothing may be written outside the user's folder, except for the caches of libraries.
    """
    real_lab.k6_of("v1")
    before = files(lab.environment)
    shutil.copy(CLOSED, lab.folder / "results.json.gz")
    with own_api.tiny(2) as server:
        load = ("--url", f"{server.url}/items", "--rate", "50", "--duration", "2", "--repeats", "1")
        first, measured = (lab.json("run", *load) for _ in range(2))
    assert Path(measured["path"]).parent == lab.folder / "bench-data" / "runs"
    manifest = json.loads((Path(measured["path"]) / "run.json").read_text())
    assert "git" not in manifest or manifest["git"] is None
    assert str(lab.folder) not in json.dumps(manifest)
    report = lab.json("report", "results.json.gz")
    assert Path(report["html"]).is_relative_to(lab.folder / "bench-figures") and report["figures"]
    assert all(Path(figure).is_file() for figure in report["figures"])
    imported = report["run_id"]
    lab.bench("compare", first["run_id"], measured["run_id"], "--force")
    lab.bench("history", first["run_id"], measured["run_id"], "--force", "--html", "history.html")
    lab.bench("publish", imported, "--out", "post")
    lab.bench("audit", str(ROOT / "tests/support/samples/audit/wrk.txt"), "--html", "audit.html")
    lab.bench("doctor")
    outside = {path.relative_to(lab.home).parts[0] for path in lab.home.rglob("*")}
    assert outside <= {".cache"}, outside
    lab.bench("notebooks", "--copy", "notebooks")
    lab.call(
        "python", "-m", "papermill", "notebooks/endpoints.ipynb", "out.ipynb", "-p", "run", "latest"
    )
    cells = nbformat.read(lab.folder / "out.ipynb", as_version=4).cells
    assert any(cell.get("outputs") for cell in cells)
    shown = {path.name for path in lab.folder.iterdir()}
    assert shown == {
        *("results.json.gz", "bench-data", "bench-figures", "notebooks", "out.ipynb", "post"),
        *("history.html", "history.ipynb", "audit.html", "audit.ipynb", "audit.audit.parquet"),
    }
    assert files(lab.environment) == before


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ("v1.4.2-0-gabc1234", "1.4.2"),
        ("v1.4.2-17-gabc1234", "1.4.3.dev17+gabc1234"),
        ("", "0.2.0.dev900+gabc1234"),
    ],
)
def test_the_version_is_the_tags(described, version):
    version_of = runpy.run_path(str(ROOT / "setup" / "version.py"))["version_of"]
    assert version_of(described, "0.2.0", "900", "abc1234") == version
    assert str(Version(version)) == version, "as PEP 440 writes it"


def test_a_version_is_known_without_git(tmp_path):
    """An archive of the sources has no tags, so the version must be that of the changelog."""
    (tmp_path / "setup").mkdir()
    shutil.copy(ROOT / "setup" / "version.py", tmp_path / "setup")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n## 3.1.4\n\n## 3.1.3\n")
    found = runpy.run_path(str(tmp_path / "setup" / "version.py"))
    assert found["__version__"] == "3.1.4.dev0"


def test_the_changelog_is_sorted_by_version():
    found = re.findall(r"^## (.+?)(?: - .*)?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert found[0] == "Unreleased" and found[1:] == sorted(found[1:], key=Version, reverse=True)


def test_the_bill_has_what_is_needed_and_no_more(tmp_path, monkeypatch):
    needs = {
        "lab": [
            "a>=1",
            'b; extra == "more"',
            'c; python_version < "3"',
            'd[fast]; extra == "more"',
        ],
        "a": ["e", 'test-tool; extra == "test"'],
        "d": ['f; extra == "fast"', 'test-tool; extra == "slow"'],
        **{name: [] for name in ("b", "c", "e", "f", "test-tool", "unrelated")},
    }
    for name, lines in needs.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        text = "".join(f"Requires-Dist: {line}\n" for line in lines)
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{text}"
        )
    monkeypatch.syspath_prepend(str(tmp_path))
    sbom = runpy.run_path(str(ROOT / "setup" / "sbom.py"))
    assert sbom["needed"]("lab", ()) == {"lab", "a", "e"}
    names = sbom["needed"]("lab", ("more",))
    assert names == {"lab", "a", "b", "d", "e", "f"}
    bom = {
        "metadata": {"component": {"bom-ref": "root", "name": "lab"}},
        "components": [{"bom-ref": f"{name}==1.0", "name": name} for name in needs],
        "dependencies": [
            {"ref": "root", "dependsOn": ["a==1.0", "test-tool==1.0"]},
            {"ref": "test-tool==1.0"},
        ],
    }
    made = sbom["of_wheel"](bom, names, "2.0")
    assert made["metadata"]["component"]["version"] == "2.0"
    assert {each["name"] for each in made["components"]} == names
    assert made["dependencies"] == [{"ref": "root", "dependsOn": ["a==1.0"]}]


@pytest.mark.long
def test_a_build_is_kept_as_long_as_its_lock_is_the_same(wheel, tmp_path):
    """A tool is built again only if its lock file has changed.

    A fake Go writes a program that prints the locked version.
    """
    programs = tmp_path / "programs"
    programs.mkdir()
    go = '#!/bin/sh\necho built >> "$HOME/builds"\nwhile [ "$1" != -o ]; do shift; done\n'
    go += 'printf \'#!/bin/sh\\necho "k6 v1.8.1 (go1.26)"\\n\' > "$2"\nchmod +x "$2"\n'
    real_lab.program(programs / "go", go)
    lab = Installed.of(wheel, tmp_path, [programs])
    tools = lab.home / ".cache" / "web-bench-lab" / "tools"
    (first,) = lab.json("setup")
    assert Path(first["path"]) == tools / "k6" and first["version"] == "1.8.1"
    for path in lab.environment.rglob("go.sum"):
        path.touch()  # a new installation of the same package changes only the times of files
    assert lab.json("setup", "k6") == [first]
    assert (lab.home / "builds").read_text() == "built\n"
    for path in lab.environment.rglob("k6/v1/go.sum"):
        path.write_text("another module\n")
    assert lab.json("setup", "k6") == [first]
    assert (lab.home / "builds").read_text() == "built\nbuilt\n"
