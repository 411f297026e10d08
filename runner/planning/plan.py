"""Which trials a campaign has, in which order, and how long they take."""

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, product
from typing import Any, cast, get_args

from runner.generator_traits import TRAITS
from runner.model import Campaign, Cell, Idle, LabError, Load, Server, Trial, Workload, short_number
from runner.planning.catalog import campaign_workload, server_names
from runner.planning.search import Objective

MOST_TRIALS = 100_000


def cells_of(load: Load, workload: Workload, servers: Sequence[Server]) -> list[Cell]:
    """Cross one load with the servers that implement what it needs."""
    fitting = [
        server
        for server in servers
        if set(workload.needs) <= set(server.implements)
        and server.name in (load.servers or (server.name,))
    ]
    crossed: dict[str, Sequence[Any]] = {
        "mode": load.modes,
        "vus": load.vus or (None,),
        "connections": load.connections or (None,),
        "pool_size": load.pool_sizes or (None,),
        "share": load.shares,
        "idle": load.idle,
    }
    kept = ("iterations", "warmup_s", "database_share", "slices")
    shared = {
        **{
            "workload": workload.name,
            "tool": workload.tool,
            "load_model": workload.load_model,
            "path": workload.path,
        },
        **{"duration_s": _length_s(load) if workload.load_model == "closed" else None},
        **{name: getattr(load, name) for name in kept},
    }
    return [
        Cell(
            server.name, server.language, server.framework, server.tier, **shared, **sizes, **rates
        )
        for server, *values in product(fitting, *crossed.values())
        for sizes in [dict(zip(crossed, values, strict=True))]
        for rates in _rates(load)
    ]


def _length_s(load: Load) -> float | None:
    """Return how long a load is, all slices of a session together.

    None if its iterations or steps say it.
    """
    if load.slices is None or load.slice_s is None:
        return load.duration_s
    return load.slices * load.slice_s if load.iterations is None else None


def _rates(load: Load) -> list[dict[str, Any]]:
    """Return the rates of an open load's cells (ramp, rate of a sweep, step of a search).

    None of a closed one.
    """
    length_s = _length_s(load)
    if load.objective is not None:
        ends = {
            "objective": load.objective,
            "search_low_rps": load.from_rps,
            "search_high_rps": load.to_rps,
        }
        return [
            {**ends, "step_s": length_s, "bisection": step}
            for step in range(1, (load.bisections or 0) + 1)
        ]
    if load.rates_rps:
        return [
            {"first_rate_rps": rate, "rate_rps": rate, "steps": 1, "step_s": length_s}
            for rate in load.rates_rps
        ]
    if load.steps is None:
        return [{}]
    return [
        {
            "first_rate_rps": load.from_rps,
            "rate_rps": load.to_rps,
            "steps": load.steps,
            "step_s": load.step_s,
        }
    ]


def plan_trials(campaign: Campaign, servers: Sequence[Server]) -> list[Trial]:
    """Return randomised complete blocks: every cell once a block (as often as it repeats), in
    seeded order within.

    The steps of a search keep their sequence, at the places that the shuffle gave them. The trials
    of a session, one per server, follow each other.
    """
    cells = [
        (load.repeats, cell)
        for load in campaign.loads
        for cell in cells_of(load, campaign_workload(campaign, load.workload), servers)
    ]
    if sum(repeats for repeats, _ in cells) > MOST_TRIALS:
        raise LabError(
            f"Campaign {campaign.name} has more than {MOST_TRIALS:,} trials: "
            "reduce servers, loads or repeats."
        )
    shuffler = random.Random(campaign.seed)  # noqa: S311 - reproducible on purpose
    trials: list[Trial] = []
    for block in range(1, max((repeats for repeats, _ in cells), default=0) + 1):
        units: dict[str, list[Cell]] = {}  # the cells of one session stay together
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
            f"Campaign {campaign.name} has two loads that would both be {twice[0]}: give them "
            "other sizes, or each a campaign."
        )
    return trials


def by_session(trials: Sequence[Trial]) -> list[list[Trial]]:
    """Return the trials in their order, those of one session together, any other alone."""
    return [
        list(unit) for _, unit in groupby(trials, key=lambda trial: trial.session or trial.trial_id)
    ]


def slice_order(names: Sequence[str], slices: int, seed: str) -> list[tuple[str, int]]:
    """Return in which order the slices of a session are loaded: (server, place) with places 1 to
    `slices`.

    Each place is a row of a Williams design over the servers, in which each follows each other one
    equally often (E. J. Williams, Aust. J. Sci. Res. A 2, 1949), and each second place is the one
    before it backwards (ABBA): a drift that is steady over two places adds the same to all. Which
    rows, and which server is which letter, decides `seed`.
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
    searches = [
        replace(cell, bisection=0).cell_id if cell.objective is not None else cell.cell_id
        for cell in cells
    ]
    waiting: dict[str, list[Cell]] = {}
    for search, cell in sorted(
        zip(searches, cells, strict=True), key=lambda each: -(each[1].bisection or 0)
    ):
        waiting.setdefault(search, []).append(cell)
    return [waiting[search].pop() for search in searches]


def next_attempt(trial: Trial, attempt: int) -> Trial:
    """Return `trial` as its `attempt`-th attempt.

    The first keeps the plain name, later ones end in `.a2`, `.a3` ...
    """
    name = trial.trial_id.split(".a")[0]
    return replace(trial, trial_id=name if attempt == 1 else f"{name}.a{attempt}", attempt=attempt)


def choose(
    campaign: Campaign, servers: Sequence[str] | None, repeats: int | None, scale: float
) -> Campaign:
    """Return the campaign as the command line changes it.

    LabError if it names a server that is not there.
    """
    chosen = campaign.scaled(scale)
    if servers:
        chosen = replace(chosen, servers=tuple(dict.fromkeys(servers)))
    known = server_names()
    copies = dict(campaign.copies)
    for name in chosen.servers:
        if name in copies and name in known:
            raise LabError(
                f"The campaign's copy {name!r} has the name of a server in servers/: give it "
                "another one."
            )
        if (server := copies.get(name, name)) not in known:
            raise LabError(
                f"There is no server {server!r} in servers/; there are "
                f"{', '.join(known) or 'none'}."
            )
    for load in chosen.loads:
        if load.objective is None or load.from_rps is None or load.duration_s is None:
            continue
        needed = Objective.parse(load.objective).least_requests
        sent = load.from_rps * load.duration_s
        if sent < needed:
            raise LabError(
                f"A step of the search for {load.objective} sends only {short_number(sent)} "
                f"requests at {short_number(load.from_rps)}/s, and needs {needed:,}: give it a "
                f"duration_s (or a --scale) {short_number(needed / sent)} times as long, or a "
                "higher from_rps."
            )
    if repeats is not None:
        chosen = replace(
            chosen, loads=tuple(replace(load, repeats=repeats) for load in chosen.loads)
        )
    return chosen


def with_rates(campaign: Campaign, capacity: Callable[[Workload], float] | None) -> Campaign:
    """Return the campaign with rates for its percentages of what the slowest server can do, which
    `capacity` says.

    LabError if it has such and nothing says it.
    """
    if not any(load.rates_pct for load in campaign.loads):
        return campaign
    if capacity is None:
        raise LabError(
            f"The rates of campaign {campaign.name} are shares of what the slowest server can do: "
            "--rates-of RUN names a run that measured it."
        )
    loads = []
    for load in campaign.loads:
        most = capacity(campaign_workload(campaign, load.workload)) if load.rates_pct else 0.0
        rates = tuple(float(f"{most * share / 100:.2g}") for share in load.rates_pct)
        loads.append(replace(load, rates_rps=load.rates_rps or rates, rates_pct=()))
    return replace(campaign, loads=tuple(loads))


def with_idle(campaign: Campaign, idle: str | None) -> Campaign:
    """Return the campaign with all loads under one state of idle CPUs.

    As it is if none is given.
    """
    if idle is None:
        return campaign
    if idle not in get_args(Idle):
        raise LabError(f"--idle {idle} is unknown: it is polling or system.")
    return replace(
        campaign, loads=tuple(replace(load, idle=(cast(Idle, idle),)) for load in campaign.loads)
    )


def estimate_s(trial: Trial) -> float:
    """Return about how long a trial takes, before any has run: load, warm-up, start and digest."""
    cell = trial.cell
    load_s = cell.duration_s if cell.iterations is None else cell.iterations / 7000 + 1.5
    ramp_s = max(1, len(cell.rates_rps)) * (cell.step_s or 0.0) + cell.lead_s
    database_s = 1.5 if cell.pool_size is not None else 0.0
    between_s = (cell.slices or 0) * TRAITS[cell.tool].between_slices_s
    return (load_s or 0) + ramp_s + database_s + cell.warmup_s + 1.0 + between_s


class TimeLeft:
    """Predicts the remaining time of a campaign from how long its trials took beside their
    estimates.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._left_s = sum(map(estimate_s, trials))
        self._estimated_s = 0.0
        self._started = time.monotonic()

    def end(self, trials: Sequence[Trial]) -> None:
        """Note that trials have ended."""
        self.skip(trials)
        self._estimated_s += sum(map(estimate_s, trials))

    def skip(self, trials: Sequence[Trial]) -> None:
        """Note that trials will not run."""
        self._left_s -= sum(map(estimate_s, trials))

    def elapsed_s(self) -> float:
        """Return how long the campaign has taken."""
        return time.monotonic() - self._started

    def takes_s(self, trials: Sequence[Trial] | None = None) -> float:
        """Return about how long trials, or all that are left, will take, scaled by how those so far
        went.
        """
        estimated_s = self._left_s if trials is None else sum(map(estimate_s, trials))
        return max(
            0.0, estimated_s * (self.elapsed_s() / self._estimated_s if self._estimated_s else 1.0)
        )
