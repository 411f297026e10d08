"""A missing or damaged table of an exported run, which has no raw files."""

import shutil
from pathlib import Path

import pytest

from runner.digest.tables import ensure_tables
from runner.model import LabError
from runner.store import RunFolder

COMMITTED = Path(__file__).parents[2] / "data" / "engines"


@pytest.fixture
def exported(tmp_path: Path) -> RunFolder:
    """Return a copy of a committed run."""
    return RunFolder(Path(shutil.copytree(COMMITTED, tmp_path / "engines")))


def test_intact_tables_are_left_as_they_are(exported: RunFolder) -> None:
    before = exported.table("trials").read_bytes()
    said: list[str] = []
    ensure_tables(exported, said.append)
    assert said == []
    assert exported.table("trials").read_bytes() == before


def test_a_damaged_table_is_named_instead_of_a_raw_file(exported: RunFolder) -> None:
    table = exported.table("trials")
    table.write_bytes(table.read_bytes()[:100])
    with pytest.raises(LabError, match=r"tables is missing or damaged.*export the run once more"):
        ensure_tables(exported, print)


def test_a_missing_table_is_named_instead_of_a_raw_file(exported: RunFolder) -> None:
    exported.table("resources").unlink()
    with pytest.raises(LabError, match="tables is missing or damaged"):
        ensure_tables(exported, print)
