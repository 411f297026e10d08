"""Tests of the tables of an exported run.

Such a run has no raw files from which the tables could be rebuilt.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runner.digest.tables import ensure_tables, rebuild, shrink
from runner.model import LabError
from runner.present.frames import read_tables
from runner.store import RunFolder

COMMITTED = Path(__file__).parents[2] / "data" / "engines"


@pytest.fixture
def exported(tmp_path: Path) -> RunFolder:
    """Return a copy of data/engines, a run that was exported and committed."""
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
    with pytest.raises(LabError, match=r"tables is missing or damaged\. .*export it once more"):
        ensure_tables(exported, print)


def test_a_missing_table_is_named_instead_of_a_raw_file(exported: RunFolder) -> None:
    exported.table("resources").unlink()
    with pytest.raises(LabError, match="tables is missing or damaged"):
        ensure_tables(exported, print)


def test_intact_tables_are_not_called_damaged_if_samples_are_to_be_salvaged(
    exported: RunFolder,
) -> None:
    with pytest.raises(LabError, match=r"^\S+ is an exported run without raw files"):
        ensure_tables(exported, print, salvage=True)


def test_an_exported_run_is_not_rebuilt(exported: RunFolder) -> None:
    before = exported.table("trials").read_bytes()
    with pytest.raises(LabError, match="is an exported run without raw files"):
        rebuild(exported)
    assert exported.table("trials").read_bytes() == before


def test_damage_within_a_table_is_not_answered_by_a_command_that_fails(exported: RunFolder) -> None:
    table = exported.table("resources")
    content = bytearray(table.read_bytes())
    content[1000:3000] = bytes(2000)
    table.write_bytes(content)
    with pytest.raises(LabError, match=r"cannot be read.*: export the original run once more\.$"):
        read_tables(exported)


def _damage_silently(path: Path) -> None:
    """Set bytes of a table to zero, so that pyarrow reads other values and raises no error."""
    intact = path.read_bytes()
    rows = pq.read_table(path)
    for first in range(1000, len(intact) - 20_000, 997):
        path.write_bytes(intact[:first] + bytes(20) + intact[first + 20 :])
        try:
            if not pq.read_table(path).equals(rows):
                return
        except (OSError, pa.ArrowException):
            continue
    raise AssertionError("pyarrow notices every damage without checksums")


def test_damaged_values_are_not_read_as_other_numbers(exported: RunFolder) -> None:
    table = exported.table("resources")
    shrink(table)
    assert pq.read_table(table).num_rows == len(read_tables(exported).resources)
    _damage_silently(table)
    with pytest.raises(LabError, match=r"resources\.parquet cannot be read"):
        read_tables(exported)
