"""Disks that are full or cannot be written: the lab says so, loses the trial in flight at most, and goes on later."""

import json
import os
import subprocess
from pathlib import Path

import fake_lab
import pytest
import real_lab
from fake_lab import BENCH, bench, records, wait_for
from hit_lab import CAMPAIGN

from runner.measure.tools import find_tool

pytestmark = [
    pytest.mark.timed,
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]


@pytest.fixture
def disk(tmp_path):
    """Mounts a tmpfs of so many MiB on a folder below `tmp_path`, and takes it away at the end."""
    mounted = []

    def mount(folder: Path, mib: int) -> Path:
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)], check=True)
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk of `folder` to its last byte."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 2**20)
        except OSError:
            pass
        try:
            while True:
                file.write(b"\0")
        except OSError:
            pass
    return filler


def start(root: Path, campaign: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*BENCH, "run", str(campaign), "--engine", "process"],
        cwd=root,
        env={**os.environ, "BENCH_ROOT": str(root), "COLUMNS": "200"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(runner: "subprocess.Popen[str]") -> tuple[int, str]:
    assert runner.stderr is not None
    said = runner.stderr.read()
    return runner.wait(timeout=60), said


def assert_it_goes_on(root: Path) -> None:
    (run,) = root.glob("data/runs/*")
    done = bench(root, "run", "--resume", run.name)
    assert done.returncode == 0, done.stderr
    assert {record["status"] for record in records(run).values()} == {"sealed"}


@pytest.mark.fault(
    "the disk is full in mid-campaign", "exit code 1 with the command that goes on; it does when there is room"
)
@pytest.mark.parametrize("state", ["warm-up", "load"])
def test_the_disk_of_the_runs_is_full(tmp_path, disk, state):
    campaign = fake_lab.make(tmp_path)
    campaign.write_text(CAMPAIGN)
    data = disk(tmp_path / "data", 400)
    fake_lab.fault(tmp_path, f"pause-{state} b02")
    runner = start(tmp_path, campaign)
    wait_for((tmp_path / ".tools" / "paused").exists, seconds=60)
    filler = fill(data)
    (tmp_path / ".tools" / "go").touch()
    code, said = ended(runner)
    assert code == 1, said
    assert "Traceback" not in said
    assert "--resume" in said
    filler.unlink()
    fake_lab.fault(tmp_path, "")
    assert_it_goes_on(tmp_path)


@pytest.mark.load
@pytest.mark.skipif(find_tool("k6") is None, reason="k6 is not installed")
@pytest.mark.fault(
    "the disk is full while k6 writes its samples, which then ends with exit code 0", "nothing is sealed"
)
def test_k6_on_a_full_disk(tmp_path, disk):
    root = tmp_path / "lab"
    root.mkdir()
    real_lab.make(root)
    published = (root / "data" / "published.csv").read_bytes()
    data = disk(root / "data", 400)
    (data / "published.csv").write_bytes(published)
    campaign = root / "test.toml"
    campaign.write_text(
        'title = "k6"\nservers = ["gin"]\n[[load]]\nworkload = "rates"\nrates_rps = [500]\nduration_s = 6\n'
        "vus = 50\nwarmup_s = 0.2\n"
    )
    runner = start(root, campaign)
    wait_for(lambda: any(path.stat().st_size for path in root.glob("data/runs/*/trials/*/k6.json.gz")), seconds=90)
    filler = fill(data)
    code, said = ended(runner)
    assert code == 1, said
    assert "--resume" in said
    (run,) = root.glob("data/runs/*")
    assert '"sealed"' not in (run / "journal.jsonl").read_text()
    filler.unlink()
    assert_it_goes_on(root)


@pytest.mark.fault(
    "the data folder is read-only", "a run is refused in one sentence; a report of what is there is made"
)
def test_a_data_folder_that_cannot_be_written(tmp_path, disk):
    campaign = fake_lab.make(tmp_path)
    campaign.write_text(CAMPAIGN)
    published = (tmp_path / "data" / "published.csv").read_bytes()
    data = disk(tmp_path / "data", 400)
    (data / "published.csv").write_bytes(published)
    done = bench(tmp_path, "run", str(campaign), "--engine", "process", "--json")
    run = json.loads(done.stdout)["run_id"]
    subprocess.run(["mount", "-o", "remount,ro", str(data)], check=True)
    refused = bench(tmp_path, "run", str(campaign), "--engine", "process")
    assert refused.returncode == 1
    assert "Read-only file system" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1
    made = bench(tmp_path, "report", run)
    assert made.returncode == 0, made.stderr
