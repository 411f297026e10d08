"""The trials that profile servers: one session per profiled load, after the run's other trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from runner.model import Campaign, Cell, Server, Trial
from runner.planning.catalog import campaign_workload
from runner.planning.plan import cells_of
from runner.profiled import LONGEST_S, PLACES
from runner.shapes import Closed, ForTime, Search, Shape, Steps


@dataclass(frozen=True)
class Profile:
    """A session that profiles the servers of a load, and the load's name in its trials' ids."""

    load_id: str
    trials: tuple[Trial, ...]


def plan_profiles(campaign: Campaign, servers: Sequence[Server]) -> list[Profile]:
    """Return the profiles of a campaign, in the order of its loads.

    Ramps and searches are left out, because their rate changes between slices.
    """
    loads: dict[str, list[Cell]] = {}
    for load in campaign.loads if any(each.profile for each in campaign.loads) else ():
        if not load.profile:
            continue
        for cell in cells_of(load, campaign_workload(campaign, load.workload), servers):
            if (shape := _shape(cell)) is not None:
                sliced = replace(cell, shape=shape, slices=PLACES)
                loads.setdefault(cell.load_id, []).append(sliced)
    order = 0
    profiles = []
    for load_id, cells in loads.items():
        trials = []
        for cell in cells:
            order += 1
            name = f"p-{cell.server}-{load_id}"
            # Marked as the last attempt, so that the profile is not repeated.
            trials.append(Trial(name, order, 1, cell, campaign.attempts, f"p-{load_id}"))
        profiles.append(Profile(load_id, tuple(trials)))
    return profiles


def _shape(cell: Cell) -> Shape | None:
    """Return the shape of a cell over all slices of a profile; None if it cannot be sliced.

    A load with a number of iterations is replaced by a load with a duration. It is not known how
    long a slice's share of the iterations would take, and a slice of a few milliseconds would have
    too few samples.
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
