"""Tests of setting up the programs that the lab drives."""

from types import SimpleNamespace

import pytest

from runner.measure import tool_setup
from runner.model import LabError


def test_a_script_with_many_errors_ends_and_its_last_line_is_said(tmp_path, monkeypatch):
    """A pipe holds 64 KiB, so a script that writes more must not wait for a reader."""
    (tmp_path / "k6.sh").write_text(
        "yes 'a warning of the compiler' | head -c 300000 >&2\n"
        "echo >&2; echo 'Error: Go is missing.' >&2; exit 1\n"
    )
    where = SimpleNamespace(tools=tmp_path / "tools", setup=tmp_path)
    monkeypatch.setattr(tool_setup, "places", lambda: where)
    monkeypatch.setattr(tool_setup, "find_tool", lambda name: None)
    with pytest.raises(LabError, match=r"^Go is missing\.$"):
        tool_setup.set_up("k6")
