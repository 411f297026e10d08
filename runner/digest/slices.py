"""The slices of a session's trials: their table, and what they are put together to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runner.digest.histogram import QUANTILES
from runner.store import RunFolder, replacing


def part(run: RunFolder, table: str, trial_id: str) -> Path:
    """Return where a trial's part of a table lies until the parts are put together."""
    return run.tables / "parts" / table / f"{trial_id}.parquet"


@dataclass(frozen=True)
class LeftOut:
    """Places of a session that do not count, for any of its servers."""

    places: frozenset[int] = frozenset()
    taken: str | None = None
    """Who took so much that the session is to be repeated; then every place counts, as there is nothing better."""


FEWEST_KEPT = 0.5
"""Share of a session's places that must be left for it to count without the others."""


def left_out_places(taken: Sequence[Sequence[str]]) -> LeftOut:
    """Return the places, from 1, in which much of the CPUs' time was taken from any server.

    `taken` says, of each server, who took it in each of its slices; empty where little was taken.
    """
    disturbed = {place: who for each in taken for place, who in enumerate(each, start=1) if who}
    places = max((len(each) for each in taken), default=0)
    if places - len(disturbed) < FEWEST_KEPT * places:
        who = next(iter(disturbed.values()))
        return LeftOut(taken=f"disturbed: {len(disturbed)} of {places} places of its session ({who}, and the like)")
    return LeftOut(frozenset(disturbed))


def join_parts(parts: Sequence[Path], begins_s: Sequence[float], column: str, out: Path) -> None:
    """Write several tables one after the other; the times in `column` count from the first one's begin."""
    schema = pq.read_schema(parts[0])
    with replacing(out) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for path, begin_s in zip(parts, begins_s, strict=True):
            source = pq.ParquetFile(path)
            for group in range(source.num_row_groups):
                table = source.read_row_group(group)
                at, kind = schema.get_field_index(column), schema.field(column).type
                whole = int(begin_s) if pa.types.is_integer(kind) else begin_s
                writer.write_table(table.set_column(at, column, pc.add(table[column], pa.scalar(whole, kind))))


def exact_percentiles(requests: Path) -> dict[str, float]:
    """Return percentiles (linear between order statistics) and maximum of the latencies in a table of requests."""
    shares = list(QUANTILES.values())
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT quantile_cont(latency_ms, $shares), max(latency_ms) FROM read_parquet($path)",
            {"shares": shares, "path": str(requests)},
        ).fetchone()
    assert found is not None  # an aggregate has one row
    percentiles = dict(zip(QUANTILES, found[0], strict=True))
    return {f"latency_{name}_ms": value for name, value in percentiles.items()} | {"latency_max_ms": found[1]}
