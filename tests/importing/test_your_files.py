"""The commands of docs/your-files.md, on a stored file of k6."""

import json
import re
import shutil

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
    assert [name for name, _ in commands] == ["report", "import", "report"]
    for name, options in commands:
        code, _, err = bench(*options.split(), command=name)
        assert code == 0, err
    runs = sorted((root / "data" / "runs").glob("*/run.json"))
    assert len(runs) == 2
    assert json.loads(runs[-1].read_text())["campaign"]["servers"] == ["v1.4"]
    assert (root / "figures" / runs[-1].parent.name / "report.html").is_file()
