"""The trials of a campaign, their order, and their estimated duration."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, product
from typing import assert_never, cast, get_args

from runner.generator_traits import TRAITS
from runner.model import Campaign, Cell, LabError, Load, Server, Trial, Workload, short_number
from runner.places import places
from runner.planning.catalog import campaign_workload, server_names
from runner.planning.search import Objective
from runner.shapes import Bisections, Closed, ForTime, Idle, Search, Steps, SweepOfCapacity

MOST_TRIALS = 100_000


def cells_of(load: Load, workload: Workload, servers: Sequence[Server]) -> list[Cell]:
    """Return a load's cells: for each server, one cell for each combination of the load's settings.

    Servers that do not implement the workload are left out. If the load names servers, all
    other servers are left out, too.
    """
    fitting = [
        server
        for server in servers
        if set(workload.needs) <= set(server.implements)
        and server.name in (load.servers or (server.name,))
    ]
    crossed = product(
        fitting,
        load.modes,
        load.users or (None,),
        load.pool_sizes or (None,),
        load.shares,
        load.idle,
    )
    return [
        Cell(
            server=server.name,
            language=server.language,
            framework=server.framework,
            tier=server.tier,
            workload=workload.name,
            tool=workload.tool,
            mode=mode,
            path=workload.path,
            shape=shape,
            pool_size=pool_size,
            warmup_s=load.warmup_s,
            share=share,
            database_share=load.database_share,
            idle=idle,
            slices=load.slices,
        )
        for server, mode, users, pool_size, share, idle in crossed
        for shape in load.shapes(users)
    ]


def plan_trials(campaign: Campaign, servers: Sequence[Server]) -> list[Trial]:
    """Return the trials as randomised blocks.

    Block n contains each cell whose load has at least n repeats. Within a block, each cell has one
    trial, and the trials are in a random order that follows from `campaign.seed`. There are two
    exceptions. The trials of a session, one per server, follow each other. The steps of a search
    are in ascending order, because each step depends on the results of the steps before it.
    """
    cells = [
        (load.repeats, cell)
        for load in campaign.loads
        for cell in cells_of(load, campaign_workload(campaign, load.workload), servers)
    ]
    if sum(repeats for repeats, _ in cells) > MOST_TRIALS:
        raise LabError(
            f"Campaign {campaign.name} has more than {MOST_TRIALS:,} trials, which is the "
            "most that a run may have: reduce the number of servers, loads or repeats."
        )
    shuffler = random.Random(campaign.seed)  # noqa: S311 - reproducible on purpose
    trials: list[Trial] = []
    for block in range(1, max((repeats for repeats, _ in cells), default=0) + 1):
        units: dict[str, list[Cell]] = {}  # a unit contains a session's cells, or a single cell
        for cell in [cell for repeats, cell in cells if block <= repeats]:
            units.setdefault(
                cell.cell_id if cell.slices is None else f"session {cell.load_id}", []
            ).append(cell)
        shuffled = list(units.values())
        shuffler.shuffle(shuffled)
        for cell in _in_sequence([cell for unit in shuffled for cell in unit]):
            session = None if cell.slices is None else f"s{block:02d}-{cell.load_id}"
            name = f"{'b' if session is None else 's'}{block:02d}-{cell.cell_id}"
            trials.append(Trial(name, len(trials) + 1, block, cell, session=session))
    twice = [
        name for name, times in Counter(trial.trial_id for trial in trials).items() if times > 1
    ]
    if twice:
        raise LabError(
            f"Campaign {campaign.name} has two loads that would have the same name "
            f"{twice[0]}: give the loads different sizes, or put them into two campaigns."
        )
    return trials


def by_session(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Return the trials in their order, grouped into lists.

    A list contains all trials of one session, or a single trial that is not in a session.
    """
    return [
        list(unit) for _, unit in groupby(trials, key=lambda trial: trial.session or trial.trial_id)
    ]


def slice_order(names: Sequence[str], slices: int, seed: str) -> list[tuple[str, int]]:
    """Return the order in which the slices of a session are loaded, as pairs of trial id and place.

    `names` contains the id of each server's trial. Places are numbered from 1 to `slices`, and
    every server is loaded once in each place. The order of the servers in a place is a row of a
    Williams design, in which each server follows each other server equally often (E. J. Williams,
    Aust. J. Sci. Res. A 2, 1949). Every second place reverses the order of the place before it
    (ABBA), so that a steady drift over two places affects all servers equally. The design consists
    of letters. `seed` decides which server each letter stands for, and which rows are used.
    """
    shuffler = random.Random(seed)  # noqa: S311 - reproducible on purpose
    letters = list(names)
    shuffler.shuffle(letters)
    n = len(letters)
    first = [row // 2 if row % 2 == 0 else n - 1 - row // 2 for row in range(n)]
    rows = [[(letter + shift) % n for letter in first] for shift in range(n)]
    order: list[tuple[str, int]] = []
    chosen: list[list[int]] = []
    for place in range(1, slices + 1):
        if place % 2 == 1:
            chosen = chosen or shuffler.sample(rows, n)
            row = chosen.pop()
        else:
            row = row[::-1]
        order += [(letters[letter], place) for letter in row]
    return order


def _in_sequence(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells with the steps of each search in ascending order.

    The steps of a search exchange only their own positions in `cells`; other cells do not move.
    """
    searches = [_search_id(cell) for cell in cells]
    waiting: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=_bisection, reverse=True):
        waiting.setdefault(_search_id(cell), []).append(cell)
    return [waiting[search].pop() for search in searches]


def _search_id(cell: Cell) -> str:
    """Return an id of the search to which a cell belongs: all steps of a search have this id.

    If the cell is not a step of a search, return the cell's own id.
    """
    if isinstance(cell.shape, Search):
        return replace(cell, shape=replace(cell.shape, bisection=0)).cell_id
    return cell.cell_id


def _bisection(cell: Cell) -> int:
    """Return the number of a cell's step in its search, or 0 if the cell is not such a step."""
    return cell.shape.bisection if isinstance(cell.shape, Search) else 0


def next_attempt(trial: Trial, attempt: int) -> Trial:
    """Return a copy of `trial` for the attempt with the number `attempt`.

    The first attempt has the plain trial id. The ids of later attempts end in `.a2`, `.a3` ...
    """
    name = trial.trial_id.split(".a")[0]
    return replace(trial, trial_id=name if attempt == 1 else f"{name}.a{attempt}", attempt=attempt)


def choose(
    campaign: Campaign, servers: Sequence[str] | None, repeats: int | None, scale: float
) -> Campaign:
    """Return the campaign with the servers, repeats and scale that the command line gives.

    Raise LabError if a server is unknown, or if a copy has the name of a server in servers/. Raise
    LabError if the campaign has servers but the lab does not run from a checkout. Also raise
    LabError if a step of a search sends too few requests to estimate the objective's percentile.
    """
    chosen = campaign.scaled(scale)
    if servers:
        chosen = replace(chosen, servers=tuple(dict.fromkeys(servers)))
    if chosen.servers:
        places().need_checkout(f"The campaign {campaign.name!r}")
    known = server_names()
    copies = dict(campaign.copies)
    for name in chosen.servers:
        if name in copies and name in known:
            raise LabError(
                f"The campaign's copy {name!r} has the name of a server in servers/: give it "
                "another name."
            )
        if (server := copies.get(name, name)) not in known:
            raise LabError(
                f"There is no server {server!r} in servers/: choose from "
                f"{', '.join(known) or 'none'}."
            )
    for load in chosen.loads:
        search = load.form
        if not isinstance(search, Bisections):
            continue
        needed = Objective.parse(search.objective).least_requests
        sent = search.from_rps * search.duration_s
        if sent < needed:
            raise LabError(
                f"A step of the search for {search.objective} sends only "
                f"{short_number(sent)} requests at the lowest rate "
                f"({short_number(search.from_rps)}/s), but {needed:,} are needed to "
                "estimate the percentile: multiply duration_s or --scale by "
                f"{short_number(needed / sent)}, or raise from_rps."
            )
    if repeats is not None:
        chosen = replace(
            chosen, loads=tuple(replace(load, repeats=repeats) for load in chosen.loads)
        )
    return chosen


def with_rates(campaign: Campaign, capacity: Callable[[Workload], float] | None) -> Campaign:
    """Return the campaign with rates in requests/s instead of percentages of a capacity.

    The percentages refer to the capacity of the slowest server. The function `capacity` returns
    this capacity for a workload, in requests/s. Raise LabError if `capacity` is None although a
    load has such percentages.
    """
    if not any(isinstance(load.form, SweepOfCapacity) for load in campaign.loads):
        return campaign
    if capacity is None:
        raise LabError(
            f"The rates of campaign {campaign.name} are percentages of the slowest server's "
            "capacity: name a run that measured this capacity, by --rates-of RUN."
        )
    loads = []
    for load in campaign.loads:
        if isinstance(load.form, SweepOfCapacity):
            capacity_rps = capacity(campaign_workload(campaign, load.workload))
            load = replace(load, form=load.form.sweep(capacity_rps))  # noqa: PLW2901
        loads.append(load)
    return replace(campaign, loads=tuple(loads))


def with_idle(campaign: Campaign, idle: str | None) -> Campaign:
    """Return the campaign with `idle` as the state of idle CPUs under all loads.

    If `idle` is None, return the campaign unchanged.
    """
    if idle is None:
        return campaign
    if idle not in get_args(Idle):
        raise LabError(f"--idle must be polling or system, not {idle}.")
    return replace(
        campaign, loads=tuple(replace(load, idle=(cast(Idle, idle),)) for load in campaign.loads)
    )


def with_profile(campaign: Campaign, *, profile: bool) -> Campaign:
    """Return the campaign with profiles of all its servers under all loads, or without profiles."""
    loads = tuple(replace(load, profile=profile, not_profiled=()) for load in campaign.loads)
    return replace(campaign, loads=loads)


def estimate_s(trial: Trial) -> float:
    """Estimate the duration of a trial, in seconds, before any trial has run.

    The estimate covers load, warm-up, start and digest.
    """
    cell = trial.cell
    database_s = 1.5 if cell.pool_size is not None else 0.0
    between_s = (cell.slices or 0) * TRAITS[cell.tool].between_slices_s
    return _load_s(cell) + cell.lead_s + database_s + cell.warmup_s + 1.0 + between_s


def _load_s(cell: Cell) -> float:
    """Estimate the duration of a cell's load, in seconds.

    For a load with a fixed number of iterations, the estimate assumes 7,000 iterations per second,
    whatever the server.
    """
    match cell.shape:
        case Closed() as load:
            return load.iterations / 7000 + 1.5
        case ForTime() as load:
            return load.duration_s
        case Steps() as load:
            return load.steps * load.step_s
        case Search() as load:
            return load.step_s
        case _:
            assert_never(cell.shape)


class TimeLeft:
    """A prediction of the remaining time of a campaign.

    The prediction uses the estimated durations of all trials, and the real durations of the trials
    that have ended. The campaign begins when this object is created. `clock` returns seconds.
    """

    def __init__(
        self, trials: Sequence[Trial], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._left_s = sum(map(estimate_s, trials))
        self._estimated_s = 0.0
        self._clock = clock
        self._started_s = clock()

    def end(self, trials: Sequence[Trial]) -> None:
        """Record that trials have ended."""
        self.skip(trials)
        self._estimated_s += sum(map(estimate_s, trials))

    def skip(self, trials: Sequence[Trial]) -> None:
        """Record that trials will not run."""
        self._left_s -= sum(map(estimate_s, trials))

    def elapsed_s(self) -> float:
        """Return the time since the campaign began, in seconds."""
        return self._clock() - self._started_s

    def takes_s(self, trials: Sequence[Trial] | None = None) -> float:
        """Estimate the duration of the given trials, or of all remaining trials, in seconds.

        The sum of the trials' estimates is corrected by a factor: the time since the campaign
        began, divided by the sum of the estimates for the trials that have ended.
        """
        estimated_s = self._left_s if trials is None else sum(map(estimate_s, trials))
        return max(
            0.0, estimated_s * (self.elapsed_s() / self._estimated_s if self._estimated_s else 1.0)
        )
