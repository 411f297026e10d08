"""Plan the profiles of a run, which are made after the run's trials.

For each profiled load, there is a session of slices. For a long load that is not divided into
slices, there is also a timeline: a session in which the load runs without a break.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from runner.model import Campaign, Cell, Server, Trial
from runner.planning.catalog import campaign_workload
from runner.planning.plan import cells_of
from runner.profiled import LONGEST_S, PLACES, SLICED, TIMELINE, TIMELINE_S
from runner.shapes import Closed, ForTime, Search, Shape, Steps


@dataclass(frozen=True)
class Profile:
    """A session that profiles the servers under a load, and the name of the load in trial ids."""

    load_id: str
    trials: tuple[Trial, ...]

    @property
    def session(self) -> str:
        """Name of the session, which begins with SLICED or TIMELINE (see `kind_of`)."""
        return str(self.trials[0].session)


def plan_profiles(campaign: Campaign, servers: Sequence[Server]) -> list[Profile]:
    """Return the profiles of a campaign, in the order of its loads.

    Sessions of slices come before timelines. Ramps and searches are left out, because their rate
    would change between slices.
    """
    sliced: dict[str, list[Cell]] = {}
    whole: dict[str, list[Cell]] = {}
    for load in campaign.loads if any(each.profile for each in campaign.loads) else ():
        if not load.profile:
            continue
        profiled = [server for server in servers if server.name not in load.not_profiled]
        for cell in cells_of(load, campaign_workload(campaign, load.workload), profiled):
            if (shape := _shape(cell)) is not None:
                made = replace(cell, shape=shape, slices=PLACES)
                sliced.setdefault(cell.load_id, []).append(made)
            if (shape := _whole_shape(cell)) is not None:
                made = replace(cell, shape=shape, slices=1)
                whole.setdefault(cell.load_id, []).append(made)
    order = count(1)
    return [
        *_profiles(SLICED, sliced, campaign.attempts, order),
        *_profiles(TIMELINE, whole, campaign.attempts, order),
    ]


def _profiles(
    kind: str, loads: Mapping[str, Sequence[Cell]], attempts: int, order: Iterator[int]
) -> Iterator[Profile]:
    """Yield a profile for each load. `loads` contains each load's cells, by the load's name.

    `kind` is SLICED or TIMELINE. `order` yields the numbers of the trials. `attempts` is the
    highest number of attempts. Each trial counts as its last attempt, so that a disturbed profile
    is not repeated.
    """
    for load_id, cells in loads.items():
        session = f"{kind}{load_id}"
        yield Profile(
            load_id,
            tuple(
                Trial(f"{kind}{cell.server}-{load_id}", next(order), 1, cell, attempts, session)
                for cell in cells
            ),
        )


def _shape(cell: Cell) -> Shape | None:
    """Return the shape that a cell's load has in a sliced profile, for all slices together.

    Return None if the load's rate changes, because such a load cannot be sliced. A load with a
    fixed number of iterations is replaced by a load with a fixed duration, because a slice of the
    iterations might end after a few milliseconds, in which perf takes too few samples.
    """
    slices = cell.slices or 1
    match cell.shape:
        case ForTime(duration_s=whole_s) as shape:
            return replace(shape, duration_s=PLACES * min(whole_s / slices, LONGEST_S))
        case Closed(users=users):
            return ForTime(users, PLACES * LONGEST_S)
        case Steps(steps=1, step_s=whole_s) as shape:
            return replace(shape, step_s=PLACES * min(whole_s / slices, LONGEST_S))
        case Steps() | Search():
            return None


def _whole_shape(cell: Cell) -> Shape | None:
    """Return the shape that a cell's load has in a timeline.

    Return None if there is no timeline, because the load is sliced, is too short, changes its rate,
    or has a fixed number of iterations instead of a duration.
    """
    shortest_s, longest_s = TIMELINE_S
    if cell.slices is not None:
        return None
    match cell.shape:
        case ForTime(duration_s=whole_s) as shape if whole_s >= shortest_s:
            return replace(shape, duration_s=min(whole_s, longest_s))
        case Steps(steps=1, step_s=whole_s) as shape if whole_s >= shortest_s:
            return replace(shape, step_s=min(whole_s, longest_s))
        case _:
            return None
