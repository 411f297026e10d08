"""Test that the commands in docs/your-files.md work as the page says, with a stored file of k6."""

import json
import re
import shutil

import k6_samples
import pandas as pd
import pytest
import real_lab
from k6_samples import CLOSED, SUMMARY

PAGE = real_lab.REPOSITORY / "docs" / "your-files.md"


@pytest.mark.long
def test_the_page_of_your_files_is_true(root, monkeypatch, bench):
    shutil.copy(CLOSED, root / "results.json.gz")
    shutil.copy(SUMMARY, root / "summary.json")
    monkeypatch.chdir(root)
    commands = re.findall(r"^\.venv/bin/bench (\w+) (.+)$", PAGE.read_text(), re.M)
    assert [name for name, _ in commands] == ["report", "import", "report", "import"]
    first = k6_samples.points(CLOSED, "http_reqs")[0]["time"]
    begin_s = pd.Timestamp(first).timestamp()
    line = json.dumps({"Name": "api", "CPUPerc": "40.00%", "MemUsage": "50MiB / 7GiB"})
    (root / "stats.txt").write_text("".join(f"{begin_s + s} {line}\n" for s in range(5)))
    for name, options in commands:
        code, _, err = bench(*options.split(), command=name)
        assert code == 0, err
    runs = sorted((root / "data" / "runs").glob("*/run.json"))
    assert len(runs) == 3
    assert json.loads(runs[1].read_text())["campaign"]["servers"] == ["v1.4"]
    assert (root / "figures" / runs[1].parent.name / "report.html").is_file()
    trials = pd.read_parquet(runs[2].parent / "tables" / "trials.parquet")
    assert trials["server_cpu_mean_pct"].tolist() == pytest.approx([40])
