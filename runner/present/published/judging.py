"""Judge published claims with the trials of a run.

For each claim, the ratios that it needs are computed and tested. The claim holds if the tests show
that its ratios lie within the range that claims.toml gives.
"""

import functools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pandas as pd

from runner.model import short_number
from runner.present.comparison import ratios
from runner.present.comparison.compare import Bound, NotComparable, decide, widen
from runner.present.comparison.obstacle import Obstacle, foremost, obstacle
from runner.present.frames import MODES, Tables
from runner.present.look import captions
from runner.present.look.numbers import number
from runner.present.published import claims, counterparts
from runner.present.published.claims import Claim, Comparison
from runner.present.published.counterparts import STAND_INS, Counterpart, cell
from runner.present.published.outcomes import (
    ABSENT,
    CLOSE,
    FAILS,
    SUCH_A_LOAD,
    ClaimPart,
    Finding,
    Outcome,
    Worth,
    combined_direction,
    combined_outcome,
    direction_of,
    direction_words,
)
from runner.present.published.quantities import (
    CLAIM_QUANTITIES,
    obstacle_numbers,
    obstacle_words,
    sample_for,
)
from runner.present.published.special_claims import JUDGES, NOTES
from runner.present.statistics.inference import ALPHA, Ratio, geometric_mean, level, ratio
from runner.present.statistics.significance import holm


@dataclass(frozen=True)
class Judged:
    """A claim and its outcome in a run."""

    claim: Claim
    found: Outcome

    @property
    def ratios(self) -> list[str]:
        """The measured ratios, as one text for each comparison."""
        return [
            f"{part.words}: {part.ratio_words}"
            for part in self.found.parts
            if part.ratio is not None
        ]

    @property
    def compared(self) -> list[ClaimPart]:
        """The comparisons that have a ratio and that count for the outcome of the claim."""
        return [
            part for part in self.found.parts if part.ratio is not None and part.outcome != ABSENT
        ]

    @property
    def measured(self) -> str:
        """The ratios that count for the outcome, in short.

        A single ratio is given with its interval: `×0.98 [0.95–1.01]`. Several ratios are given as
        a range: `×0.52 to ×0.61 (3 comparisons)`.
        """
        parts = self.compared
        if len(parts) < 2:
            return parts[0].ratio_words if parts else "–"
        found = sorted(part.ratio.ratio for part in parts if part.ratio is not None)
        ends = dict.fromkeys(f"×{ratio:.2f}" for ratio in (found[0], found[-1]))
        return f"{' to '.join(ends)} ({len(parts)} comparisons)"

    @property
    def direction(self) -> str:
        """The direction in which the claim fails: `understated`, `overstated` or `opposite`.

        If the claim's ratios fail in several directions, the text names all of them. If the claim
        does not fail, or has no ratios, the text is the claim's outcome.
        """
        if self.found.outcome != FAILS:
            return self.found.outcome
        beyond = [
            direction_of(
                part.ratio.ratio,
                self.claim.at_least,
                self.claim.at_most,
                may_be_one=part.ratio.low <= 1 <= part.ratio.high,
            )
            for part in self.found.parts
            if part.ratio is not None and part.outcome == FAILS
        ]
        return combined_direction(beyond) or FAILS

    @property
    def outcome_words(self) -> str:
        """The outcome as pages print it: `holds`, or for example `more than claimed`."""
        claims_equality = 0 < self.claim.at_least < 1 < self.claim.at_most < math.inf
        return direction_words(self.direction, claims_equality=claims_equality)

    @property
    def why(self) -> str:
        """The reason for the outcome, followed by the remedy if the claim is undecided."""
        return f"{self.found.why}; to decide it: {self.remedy}" if self.remedy else self.found.why

    @property
    def remedy(self) -> str:
        """What to measure so that an undecided claim can be decided.

        The text is empty if the claim is decided.
        """
        parts = [part for part in self.found.parts if part.outcome == self.found.outcome]
        if self.found.outcome == CLOSE:
            times = min(sessions_needed(part.ratio, self.claim) for part in parts if part.ratio)
            return (
                f"at least {times:,.0f} times as many sessions"
                if times < 1000
                else "no number of sessions"
            )
        remedies = [part.remedy for part in parts] or [SUCH_A_LOAD]
        return ", or ".join(dict.fromkeys(remedies)) if self.found.outcome == ABSENT else ""

    @property
    def plain(self) -> dict[str, object]:
        """The claim and its outcome as values that JSON can contain.

        An open end of a range becomes None.
        """

        def end(value: float) -> float | None:
            return value if 0 < value < math.inf else None

        keys = ("words", "outcome", "why", "numbers", "values", "p_holds", "p_fails")
        ends = ("ratio", "low", "high")
        return {
            **{
                key: getattr(self.claim, key)
                for key in ("name", "source", "short", "says", "looks_at")
            },
            **{key: end(getattr(self.claim, key)) for key in ("at_least", "at_most")},
            "outcome": self.found.outcome,
            "direction": self.direction,
            "why": self.found.why,
            "remedy": self.remedy,
            "comparisons": [
                {key: getattr(part, key) for key in keys}
                | {key: end(getattr(part.ratio, key, 0.0)) for key in ends}
                for part in self.found.parts
            ],
        }


def sessions_needed(found: Ratio, claim: Claim) -> float:
    """Return the factor by which the number of sessions must grow to decide the claim.

    The claim is decided when the ratio's interval lies on one side of the nearest border of the
    claim's range. The estimate assumes that the ratio stays the same, and that the width of its
    interval is proportional to 1 / sqrt(sessions). Return infinity if the ratio lies exactly on the
    border.
    """
    off = abs(math.log(claim.nearest_border(found.ratio) / found.ratio))
    reach = max(
        abs(math.log(end / found.ratio)) for end in (found.low, found.high) if 0 < end < math.inf
    )
    return max(2, math.ceil((reach / off) ** 2)) if off else math.inf


@functools.lru_cache(maxsize=1)
def judge_all(tables: Tables) -> tuple[Judged, ...]:
    """Return every claim with its outcome in a run.

    Raise LabError if an entry of claims.toml is incomplete.
    """
    return tuple(Judged(claim, judge(tables, claim)) for claim in claims.read_claims())


def judge(tables: Tables, claim: Claim) -> Outcome:
    """Return the outcome of a claim in the trials of a run.

    A claim about a language is judged separately for each framework of this language that ran. If
    the claim can be read in several ways (`reading`), it is judged separately for each reading.
    """
    if claim.judge:
        return JUDGES[claim.judge](tables)
    language = next(
        (name for each in claim.compare for name in each.servers if name in STAND_INS), ""
    )
    loads = [load.trials for each in claim.compare for load in _loads(tables, each, ())]
    names = counterparts.standing_in(language, pd.concat(loads))
    outcomes = {}
    seen = dict[str, None]()
    for name in names:
        readings: dict[str, list[ClaimPart]] = {}
        for each in claim.compare:
            readings.setdefault(each.reading, []).extend(
                _parts(tables, claim, each, {language: name})
            )
        cells = [part.cells for parts in readings.values() for part in parts]
        seen |= {sentence: None for note in claim.also for sentence in NOTES[note](tables, cells)}
        alpha = level(tables.manifest)
        count = len(names) * len(readings)
        found = {
            reading: combined(parts, claim, alpha, count) for reading, parts in readings.items()
        }
        outcomes[name] = _whichever(found, claim.depends_on)
    return replace(_whichever(outcomes, f"which framework `{language}` is"), seen=tuple(seen))


# --- from the comparisons of a claim to its outcome -----------------------------------------------


def combined(
    parts: Sequence[ClaimPart], claim: Claim, alpha: float = ALPHA, readings: int = 1
) -> Outcome:
    """Decide a claim from its parts (its comparisons), at the level `alpha`.

    A claim with `combine = "all"` holds if every part holds. This is an intersection-union test,
    which needs no correction (Berger 1982, Technometrics 24, 295). Such a claim fails if at least
    one part fails. Therefore Holm's method corrects the p-values for failing.

    A claim with `combine = "any"` holds if at least one part holds, and fails if every part fails.
    Therefore Holm's method corrects the p-values for holding instead.

    A claim fails if it fails in one of several readings. Therefore the p-values for failing are
    first multiplied by the number of `readings`.
    """
    every = claim.combine == "all"
    whole = list(parts)
    known = [place for place, part in enumerate(parts) if part.outcome != ABSENT]
    holds = [parts[place].p_holds for place in known]
    fails = [readings * parts[place].p_fails for place in known]
    tests = zip(
        known, holds if every else holm(holds), holm(fails) if every else fails, strict=True
    )
    for place, p_holds, p_fails in tests:
        finding = Finding.of_tests(p_holds, p_fails, alpha)
        bound = parts[place].why
        why = finding.reason + (f", by a bound: {bound}" if bound else "")
        whole[place] = replace(parts[place], finding=finding, why=why)
    outcome = combined_outcome([part.outcome for part in whole], claim.combine)
    decisive = [part for part in whole if part.outcome == outcome]
    counts = Counter(part.why for part in decisive).most_common()
    total = len(whole)
    share = {total: "both" if total == 2 else f"all {total}"}
    why = "; ".join(
        f"{why} ({share.get(count, f'{count} of {total}')} comparisons)" for why, count in counts
    )
    why = why if total > 1 else whole[0].why
    if outcome == CLOSE:
        ends = [
            (part.ratio, claim.nearest_border(part.ratio.ratio)) for part in decisive if part.ratio
        ]
        reach = (
            max(
                max(found.high / end, end / found.low if found.low else math.inf)
                for found, end in ends
            )
            - 1
        )
        why += f": within ±{short_number(100 * reach)} % of it" if math.isfinite(reach) else ""
    return Outcome(outcome, why, tuple(whole))


def _whichever(outcomes: Mapping[str, Outcome], depends_on: str) -> Outcome:
    """Return the outcome of a claim that can be read in several ways.

    The claim holds if it holds in all readings. It fails if it fails in at least one reading.
    `outcomes` maps the name of each reading to the outcome in this reading. `depends_on` says in
    words what the source left open.
    """
    found = list(outcomes.values())
    parts = tuple(part for each in found for part in each.parts)
    outcome = combined_outcome([each.outcome for each in found], "all")
    if len({(each.outcome, each.why) for each in found}) == 1:
        why = found[0].why
    elif len({each.outcome for each in found}) == 1:
        why = "; ".join(f"{name}: {each.why}" for name, each in outcomes.items())
    else:
        readings = "; ".join(
            f"{name}: {each.outcome} ({each.why})" for name, each in outcomes.items()
        )
        why = f"it depends on {depends_on}, which the source does not name: {readings}"
    return Outcome(outcome, why, parts)


# --- from an entry of claims.toml to ratios -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LoadTrials:
    """The trials of one load under all conditions, such as quotas (`TERMS` lists them)."""

    label: str
    """Short name of the load. It is printed with the ratio that was measured under this load."""
    trials: pd.DataFrame
    sought: str
    """The load in words, for a sentence that says that the run has no trials of the load."""


TERMS = ["idle", "share", "quota_cores", "database_share"]
"""Columns with the conditions under which a load ran: the state of idle CPUs, and the CPU quotas.

If a load ran under several conditions, a claim is judged under the conditions that allow the best
comparison (`Worth`). If several conditions are equally good, idle CPUs that poll are preferred, and
then the largest quotas.
"""


def _parts(
    tables: Tables, claim: Claim, asked: Comparison, stand_in: Mapping[str, str]
) -> list[ClaimPart]:
    """Return the comparisons that an entry of claims.toml describes, one for each load.

    If a load ran under several conditions, its comparison is made under the best of these
    conditions (see `TERMS`). `stand_in` maps a published language to the framework that stands for
    this language.
    """
    servers = [stand_in.get(name, name) for name in asked.servers]
    kind = asked.against.load or asked.load
    sizes = asked.against.connections or asked.connections
    loads = _loads(tables, asked, servers)
    others = _loads(tables, replace(asked, load=kind, connections=sizes), servers)
    if asked.against.load:  # compare only at the rates at which both loads ran
        by_label = {other.label: other for other in others}
        loads = [load for load in loads if load.label in by_label] or loads[:1]
        others = [by_label.get(load.label, others[0]) for load in loads]
    found = []
    # Choose the conditions by the limits of the trials, never by a measured value.
    for load, other in zip(loads, others, strict=True):
        rows = _by_terms(load.trials)
        rest = _by_terms(other.trials)
        candidates = []
        for terms in [terms for terms in rows if terms in rest] or list(rows)[:1]:
            a = cell(rows[terms], servers[0], load.sought)
            b = cell(rest.get(terms, other.trials), servers[-1], other.sought)
            candidates.append(_part(tables, claim, asked, load.label, a, b))
        found.append(min(candidates, key=lambda part: part.worth))
    # A claim about offered rates does not say which rates a run should offer. Therefore leave out
    # the rates at which the servers cannot be compared. But if the servers cannot be compared at
    # any rate, keep all rates.
    return [part for part in found if asked.load.endswith(" offered") and part.serves] or found


def _loads(tables: Tables, asked: Comparison, servers: Sequence[str]) -> list[LoadTrials]:
    """Return the loads that an entry of claims.toml describes.

    If the entry names the load `count`, return a load for each combination of the entry's modes and
    numbers of connections. If the entry names `experiments` or `experiments-md5`, return a single
    load. If the entry names any other load, return each load of this kind under which all `servers`
    ran. If there is no such load, return one load, so that its cells say which server did not run.
    """
    if asked.load == "count":
        pairs = product(asked.modes, asked.connections)
        return [
            LoadTrials(
                label=f"{MODES[mode]}, {size}",
                trials=counterparts.connections(tables, mode, size),
                sought=counterparts.connections_words(mode, size),
            )
            for mode, size in pairs
        ]
    scenario, choices, sought = counterparts.LOADS[asked.load]
    trials = pd.concat([choose(tables, scenario) for choose in choices])
    if asked.load in ("experiments", "experiments-md5"):
        return [LoadTrials("", trials, sought)]
    loads = [rows for _, rows in trials.groupby("load_without_terms", sort=False)]
    common = [rows for rows in loads if set(servers) <= set(rows["server"])]
    chosen = common or loads[:1]
    if not chosen:
        return [LoadTrials(sought, trials, sought)]
    # Use `load_shape` as the label, because a shape names the rate but not the workload. So loads
    # of two workloads at the same rate have the same label, by which `_parts` pairs them.
    return [LoadTrials(str(rows["load_shape"].iloc[0]), rows, sought) for rows in chosen]


def _by_terms(trials: pd.DataFrame) -> dict[tuple[Any, ...], pd.DataFrame]:
    """Return the trials by their conditions, with the preferred conditions first.

    A key of the result contains the values of the columns `TERMS`. If there are no trials, return a
    single entry whose key is an empty tuple.
    """
    ordered = trials.sort_values(TERMS, ascending=[True, False, False, False], kind="stable")
    return {
        tuple(terms): rows for terms, rows in ordered.groupby(TERMS, sort=False, dropna=False)
    } or {(): trials}


def _part(
    tables: Tables, claim: Claim, asked: Comparison, load: str, a: Counterpart, b: Counterpart
) -> ClaimPart:
    """Return the comparison of two cells: the ratio a / b, or the reason why there is no ratio.

    The finding of this comparison is preliminary. `combined` decides it later, when the tests of
    all comparisons of the claim are known.
    """
    name = asked.quantity
    other = asked.against.quantity or asked.quantity
    quantity = CLAIM_QUANTITIES[name]
    one_server = a.server == b.server
    cells = (a,) if one_server and a.load == b.load else (a, b)
    words = asked.words or ("{servers} {noun}, {load}" if load else "{servers} {noun}")
    servers = a.server if one_server else f"{a.server}/{b.server}"
    words = (
        words.replace("{servers}", servers)
        .replace("{noun}", quantity.in_a_claim)
        .replace("{load}", load)
    )
    samples = sample_for(quantity, tables, a), sample_for(CLAIM_QUANTITIES[other], tables, b)
    counts = [len(sample) for sample in samples]
    if absence := a.absence or b.absence or ("" if min(counts) else "this run did not record it"):
        return ClaimPart(words, cells, why=absence)
    names = [each.load if one_server else each.server for each in (a, b)]
    sides = [each.replace("{server}", a.server) for each in asked.names] or names
    found = ratio(*samples, confidence=1 - level(tables.manifest))
    means = [found.mean_a, found.mean_b] if found else map(geometric_mean, samples)
    values = "; ".join(f"{side}: {number(mean)}" for side, mean in zip(sides, means, strict=True))
    trials = (
        captions.plural(counts[0], "trial")
        if counts[0] == counts[1]
        else f"{counts[0]} and {counts[1]} trials"
    )
    obstacles: dict[str, Obstacle] = {}
    for called, each in zip(names, cells, strict=False):
        in_the_way = obstacle(each.sealed, quantity)
        if in_the_way is not None:
            obstacles[called] = in_the_way
    first = foremost(obstacles.values())
    floor = 1.0
    if name == other and quantity.column:
        floor = max(
            ratios.noise_floor(tables, each.load, name, within=all(each.sealed["session"]))
            for each in cells
        )
    part = ClaimPart(
        words,
        cells,
        f"{values} (means of {trials})",
        found and widen(found, floor),
        why=obstacle_words(first) if first else "",
        numbers="; ".join(
            f"{called}: {obstacle_numbers(tables, each, obstacles[called])}"
            for called, each in zip(names, cells, strict=False)
            if called in obstacles
        ),
        worth=Worth(
            nothing_measured=False,
            obstacles=sum(1 if each.is_floor else 2 for each in obstacles.values()),
            too_few_trials=found is None,
        ),
    )
    of_second = obstacles.get(names[1]) if len(cells) > 1 else None
    compared = decide(part.ratio, obstacles.get(names[0]), of_second)
    if isinstance(compared, NotComparable):
        return _not_compared(part, first)
    measured = compared.ratio if isinstance(compared, Bound) else compared
    return tested(replace(part, ratio=measured, finding=Finding.AT_THE_BORDER), claim, floor)


def _not_compared(part: ClaimPart, obstacle: Obstacle | None) -> ClaimPart:
    """Return a comparison that has neither a ratio nor a bound, with the reason and the remedy.

    The reason is the obstacle. Without an obstacle, the reason is that there are too few trials.
    """
    if obstacle is None:
        finding = Finding.TOO_FEW_TRIALS
        return replace(part, finding=finding, why=finding.reason, remedy="more sessions")
    remedy = SUCH_A_LOAD if obstacle.limit is None else obstacle.limit.remedy
    return replace(part, finding=Finding.NOT_COMPARABLE, remedy=remedy)


def tested(part: ClaimPart, claim: Claim, floor: float) -> ClaimPart:
    """Return the comparison with the p-values of one-sided tests against the claim's range.

    If only an upper bound of the ratio is known, the tests can only show that the ratio is below a
    border. If only a lower bound is known, they can only show that the ratio is above a border.
    `floor` (>= 1) is the largest ratio that noise alone caused in this run. A ratio counts as above
    or below a border only if the two differ by more than this factor.
    """
    found = part.ratio
    tests = []
    assert found is not None
    for border, within_above in ((claim.at_least, True), (claim.at_most, False)):
        if 0 < border < math.inf:
            above = 1.0 if found.low == 0 else found.p_beyond(border * floor, above=True)
            below = 1.0 if found.high == math.inf else found.p_beyond(border / floor, above=False)
            tests.append((above, below) if within_above else (below, above))
    holds, fails = zip(*tests, strict=True)
    return replace(part, p_holds=max(holds), p_fails=len(fails) * min(fails))
