"""Check out and build two commits of a server, try them, and measure them side by side.

Before the first session, the lab tries both commits: it starts each commit's server, warms the
server up, and reads from this warm-up how many iterations per second the server reaches. From these
rates, the lab chooses the sizes of the loads (see `_Tried` and `_whole`).
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runner.measure.engine import EngineChoice
from runner.measure.generators.script import Script, read_script, store_script
from runner.measure.lab import Lab, open_lab
from runner.measure.leftovers import temporary
from runner.measure.session import Member, try_server
from runner.measure.tools import need_tool
from runner.model import (
    OWN_GET,
    OWN_SCRIPT,
    Campaign,
    LabError,
    Load,
    UserApi,
)
from runner.planning.catalog import PACKAGE, WRAPPER, campaign_servers, campaign_workload
from runner.planning.plan import estimate_s, plan_trials
from runner.planning.search import Objective
from runner.present.frames import Tables
from runner.present.two_commits.comparing import (
    AGAIN,
    BASE,
    HEAD,
    is_known,
    outcome_of,
    rows_of,
)
from runner.present.two_commits.decision import CONFIRMING, LATER_LOOKS, Rule
from runner.running import preparing
from runner.running.attempts import RunResult
from runner.running.campaign import run_campaign
from runner.running.commits import Commit, Repository, build_commit
from runner.running.stopping import Settled, Stopping, read_stopping
from runner.running.user_api import Planned
from runner.shapes import Duration, Form, Iterations, Sweep
from runner.store import RunFolder, lab_root

if TYPE_CHECKING:
    from runner.console import TrialProgress

NAME = "ab"
"""Name of the campaign that compares two commits."""
CLOSED_SLICES = 6
"""Each server gets this many slices of the closed load in each session."""
CLOSED_SLICE_S = 1.0
"""A slice of the closed load lasts at most about this long, in seconds.

The lab chooses the number of iterations of a slice accordingly. Only the slices of a slow server
last longer (see EACH). If slices were longer, the difference between two neighbouring slices would
be just as noisy. So in the same total time, many short slices give a more exact result than few
long slices (docs/decisions.md).
"""
EACH = 10
"""Each user has at least this many iterations in a slice of the closed load.

The lab chooses the number of users accordingly. At the beginning and at the end of a slice, not all
users are active. With fewer iterations per user, the beginning and the end would take up much of
the slice.

In two cases, a user may have fewer iterations. In the first case, the command line gives the number
of users. In the second case, the server is slow: then the load has FEWEST_USERS users, and a slice
has EACH iterations for all users together.
"""
TRIED_USERS = 10
"""Number of users of the warm-up that tries a commit, if the command line gives no number."""
FEWEST_USERS = 2
MOST_USERS = 40
OPEN_SLICES = 2
OPEN_SLICE_S = 1.0
LONGEST_OPEN_SLICE_S = 10.0
OPEN_SESSIONS = LATER_LOOKS[0] + CONFIRMING
"""Number of sessions of the open load.

The sessions before the first interim look can lead to a suspicion. Later sessions can confirm it.
"""
WARM_UP_S = 0.5
SHARE = 0.5
RATE_SHARE = 0.3
"""The open load's rate is at most this share of the rate that the slower commit can reach.

Before the first session, the lab tries both commits, and measures which rate each commit reaches.
But if the user gives a rate, the open load has the user's rate.
"""
DIGITS = (5.0, 2.0, 1.0)
"""The lab rounds the sizes of loads down to numbers that begin with one of these digits.

For example, it rounds 3700 down to 2000. These sizes are the number of iterations in a slice of the
closed load, and the rate of the open load. There are only three digits, so that most runs of a
server have loads of the same sizes.
"""


@dataclass(frozen=True)
class Asked:
    """Options of the command line for two commits; an option that is not given is None."""

    folder: str
    base: str
    head: str
    build: str | None
    start: str | None
    script: str | None
    path: str
    probe_path: str | None
    users: int | None
    rate_rps: int | None
    share: float
    server_cpus: int
    engine: EngineChoice
    budget: str
    objective: Objective | None
    rule: Rule
    seed: int
    profile: bool


@dataclass(frozen=True)
class TwoCommits:
    """The two commits of a run, and how the run ended."""

    base: Commit
    head: Commit
    result: RunResult
    remarks: tuple[str, ...]
    """Notes about the commits that a reader of the result must know."""


@dataclass(frozen=True)
class _Source:
    """The user's repository, its two commits, and the folder for temporary files."""

    repository: Repository
    base: Commit
    head: Commit
    place: Path


def run_two_commits(asked: Asked, report: TrialProgress) -> TwoCommits:
    """Build two commits of a server, and load both in sessions until the outcome is known.

    The run also ends if its time budget is used up, or if no planned session is left. Each session
    also loads a second copy of the base commit. Raise LabError if a commit cannot be built, started
    or loaded.
    """
    looks = range(LATER_LOOKS[0], LATER_LOOKS[-1] + 1)
    stopping = replace(read_stopping(asked.budget, "decided"), looks=looks)
    repository = Repository.around(Path(asked.folder))
    base = repository.commit(asked.base, "--base")
    head = repository.commit(asked.head, "--head")
    remarks = tuple(_remarks(repository, base, head))
    for said in remarks:
        report.say(f"Note: {said}")
    k6 = need_tool("k6")  # checked before the commits are built, which may take minutes
    script = None
    if asked.script is not None:
        wrapper = PACKAGE / "workloads" / WRAPPER
        script = read_script(Path(asked.script), wrapper, k6.path)
    with temporary() as place:
        source = _Source(repository, base, head, place)
        with open_lab(asked.engine, say=report.say) as opened:
            apis = _built(asked, source, opened, report)
            closed = _campaign(asked, source, apis, script)
            tried = _try(opened, closed, source, script, report)
        planned = Planned(_whole(asked, closed, tried, stopping), script, tried.remarks)
        result = run_campaign(
            planned.campaign,
            engine=asked.engine,
            scale=1.0,
            seed=asked.seed,
            report=report,
            planned=planned,
            stopping=replace(stopping, settled=partial(_settled, rule=asked.rule)),
        )
    return TwoCommits(base, head, result, remarks + tried.remarks)


def _settled(tables: Tables, _until: str, *, rule: Rule) -> Settled:
    """Return which loads are settled, which means that they need no further session.

    If the outcome of the comparison is known, all loads are settled. If the outcome is not known
    yet, no load is settled.
    """
    rows = rows_of(tables, rule, ended=False)
    sessions = (name.partition("-")[2] for name in tables.trials["session"])
    known = frozenset(sessions) if is_known(rows) else frozenset[str]()
    return Settled(known, f"the outcome is `{outcome_of(rows)}`")


def _remarks(repository: Repository, base: Commit, head: Commit) -> list[str]:
    said = []
    if base.sha == head.sha:
        said.append(
            f"{base.named} and {head.named} are the same commit {base.sha[:10]}, so this is "
            "an A/A run: all its differences are noise."
        )
    if changed := repository.uncommitted():
        files = f"{changed} file{'s have' if changed > 1 else ' has'}"
        said.append(
            f"{files} uncommitted changes. The lab measures only commits: commit these "
            "changes first to include them."
        )
    return said


def _built(asked: Asked, source: _Source, opened: Lab, report: TrialProgress) -> list[UserApi]:
    """Check out and build both commits; return three servers: base, a second base, and head.

    The paths of all folders have the same length, because a longer path would move a program's
    stack to other addresses, which can change the program's speed.
    """
    folders: dict[str, Path] = {}
    top = source.repository.top.resolve().name
    for name, commit in ((BASE, source.base), (HEAD, source.head)):
        to = source.place / name / top
        to.parent.mkdir()
        folders[name] = source.repository.check_out(commit, to)
        if asked.start is not None and asked.build is not None:
            build_commit(asked.build, folders[name], commit, opened.ledger, report.say)
        elif asked.start is None:
            _require_recipe(folders[name], commit)
    folders[AGAIN] = folders[BASE]
    # The second copy of the base gets a folder of its own, because a plain process may write into
    # its folder.
    if asked.start is not None:
        again = source.place / AGAIN
        shutil.copytree(source.place / BASE, again, symlinks=True)
        folders[AGAIN] = again / folders[BASE].relative_to(source.place / BASE)
    shas = {BASE: source.base.sha, AGAIN: source.base.sha, HEAD: source.head.sha}
    path = "/" if asked.script else asked.path
    return [
        UserApi(
            name,
            path,
            asked.probe_path or asked.path,
            folder=os.path.relpath(folders[name], lab_root()),
            commit=shas[name],
            start=asked.start,
        )
        for name in (BASE, AGAIN, HEAD)
    ]


def _require_recipe(folder: Path, commit: Commit) -> None:
    """Raise LabError if a commit has no file that says how to build and start the server."""
    if not any((folder / name).is_file() for name in ("Dockerfile", "server.toml")):
        raise LabError(
            f"Commit {commit.words} has neither a Dockerfile nor a server.toml in the "
            "server's folder: give the commands that build and start the server, by "
            "`--build CMD --start CMD`."
        )


def _campaign(
    asked: Asked, source: _Source, apis: Sequence[UserApi], script: Script | None
) -> Campaign:
    """Return the campaign with which `_try` tries both commits. It has only the closed load."""
    files: tuple[tuple[str, str], ...] = ()
    named = "GET " + asked.path
    if script is not None:
        files = script.digests
        named = f"script {script.name}"
    owns = tuple(
        replace(api, script=None if script is None else script.name, files=files) for api in apis
    )
    title = f"{source.repository.name}, {named}: {source.base.words} and {source.head.words}"
    return Campaign(
        name=NAME,
        title=title,
        servers=tuple(api.name for api in owns),
        loads=(
            _load(
                asked,
                Duration(CLOSED_SLICE_S),
                (asked.users or TRIED_USERS,),
                asked.share,
                CLOSED_SLICES,
            ),
        ),
        seed=asked.seed,
        server_cpus=asked.server_cpus,
        sample_hz=20.0,
        copies=((AGAIN, BASE),),
        owns=owns,
    )


def _load(asked: Asked, form: Form, users: tuple[int, ...], share: float, slices: int) -> Load:
    return Load(
        OWN_SCRIPT if asked.script else OWN_GET,
        repeats=1,
        warmup_s=WARM_UP_S,
        form=form,
        users=users,
        shares=(share,),
        slices=slices,
    )


@dataclass(frozen=True)
class _Tried:
    """How fast the servers of both commits were when `_try` tried them, before the first session.

    The fields contain rates from the servers' warm-ups. The lab derives the sizes of the closed and
    the open load from these rates.
    """

    share: float
    """In the sessions of the closed load, a quota limits a server to this share of its CPUs' time.

    The share is 1 if there is no quota, for example because no quota can be set.
    """
    on_share_rps: float
    """Iterations per second that the head commit reached with the quota `share`; 0 if unknown."""
    iterations_rps: float
    """Iterations per second that the slower commit reached without a quota; 0 if unknown."""
    remarks: tuple[str, ...]


def _try(
    opened: Lab, campaign: Campaign, source: _Source, script: Script | None, report: TrialProgress
) -> _Tried:
    """Start each commit's server, warm it up, and return the rates that the servers reached.

    Both commits are tried without a quota. If the closed load has a quota, the head commit is then
    tried once more, with this quota. If it cannot be loaded with the quota, the closed load gets no
    quota. Raise LabError if a commit cannot be started or loaded without a quota.
    """
    servers = campaign_servers(campaign)
    trials = plan_trials(campaign, servers)
    tools = preparing.tools_of(trials, on_hosts=False)
    setting = preparing.set_up(opened, campaign, trials, trials, tools)
    commits = {BASE: source.base, AGAIN: source.base, HEAD: source.head}
    prepared = preparing.prepare(
        opened, campaign, servers, setting.placement, tools, None, report.say
    )
    scratch = RunFolder(source.place / "tried")
    if script is not None:
        store_script(scratch, script, PACKAGE / "workloads" / WRAPPER)
    cells = {trial.cell.server: trial.cell for trial in trials}
    workload = campaign_workload(campaign, cells[BASE].workload, scratch.scripts)
    share = cells[BASE].share
    rates = []
    remarks = []
    for name in (BASE, HEAD):
        report.say(f"Trying {name}, {commits[name].words} …")
        folder = scratch.trial(name)
        folder.mkdir(parents=True)
        whole = replace(cells[name], share=1.0)
        member = Member(name, prepared.servers[name], whole, folder)
        try:
            warmed = try_server(prepared.bench, workload, member)
        except LabError as error:
            said = f"Commit {commits[name].words} cannot be measured: {error}"
            raise LabError(said, error.exit_code) from None
        rates.append(warmed.iterations_rps or 0.0)
    on_share_rps = rates[-1]
    if share < 1:
        try:
            warmed = try_server(prepared.bench, workload, replace(member, cell=cells[HEAD]))
            on_share_rps = warmed.iterations_rps or 0.0
        except LabError as error:
            share = 1.0
            remarks.append(
                "The servers have whole cores instead of a share of a core, so the load "
                f"generator may be the limit: {error}"
            )
    return _Tried(share, on_share_rps, min(rates), tuple(remarks))


def _whole(asked: Asked, closed: Campaign, tried: _Tried, stopping: Stopping) -> Campaign:
    """Return the campaign with a closed and an open load, with sizes that follow from `tried`.

    The closed load gets as many sessions as the time budget allows, but at least OPEN_SESSIONS, and
    at most the last number of LATER_LOOKS. There is no open load if its rate would be 0.
    """
    servers = campaign_servers(closed)
    each = max(EACH, round_down(CLOSED_SLICE_S * tried.on_share_rps))
    users = asked.users or min(MOST_USERS, max(FEWEST_USERS, each // EACH))
    iterations = Iterations(CLOSED_SLICES * max(users, each))
    loads = [replace(closed.loads[0], form=iterations, users=(users,), shares=(tried.share,))]
    loads = [replace(load, profile=asked.profile) for load in loads]
    rate_rps = asked.rate_rps or round_down(RATE_SHARE * tried.iterations_rps)
    if rate_rps:
        sweep = Sweep((float(rate_rps),), _open_slice_s(asked.objective, rate_rps))
        loads.append(_load(asked, sweep, (), 1.0, OPEN_SLICES))
    campaign = replace(closed, loads=tuple(loads))
    closed_s, *open_s = (
        sum(map(estimate_s, plan_trials(replace(campaign, loads=(load,)), servers)))
        for load in campaign.loads
    )
    rest_s = stopping.budget_s - OPEN_SESSIONS * sum(open_s)
    sessions = LATER_LOOKS[-1]
    if math.isfinite(rest_s):
        sessions = min(sessions, max(OPEN_SESSIONS, math.ceil(rest_s / closed_s)))
    repeats = (sessions, OPEN_SESSIONS)
    return replace(
        campaign,
        loads=tuple(
            replace(load, repeats=count)
            for load, count in zip(campaign.loads, repeats, strict=False)
        ),
    )


def _open_slice_s(objective: Objective | None, rate_rps: int) -> float:
    """Return the duration of a slice of the open load, in seconds.

    If there is an objective, all slices together must contain enough requests to estimate its
    percentile. Raise LabError if the slices would be too long.
    """
    if objective is None:
        return OPEN_SLICE_S
    needed_s = objective.least_requests / (rate_rps * OPEN_SLICES)
    if needed_s > LONGEST_OPEN_SLICE_S:
        raise LabError(
            f"{objective.percentile} can be estimated only from "
            f"{objective.least_requests:,} requests, which must be sent in {OPEN_SLICES} "
            f"slices of at most {LONGEST_OPEN_SLICE_S:g} s. The rate of {rate_rps} "
            "iterations/s, which both commits get, is too low for that: give a higher "
            "--rate, or a lower percentile."
        )
    return max(OPEN_SLICE_S, float(math.ceil(needed_s)))


def round_down(value: float) -> int:
    """Round a value down to 1, 2 or 5 times a power of ten; return 0 for a value below 1."""
    if value < 1:
        return 0
    power = 10.0 ** math.floor(math.log10(value))
    return round(next(digit * power for digit in DIGITS if digit * power <= value))
