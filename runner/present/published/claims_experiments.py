"""Claims about POST /experiments with k6, Rust and Echo."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from runner.limits import Limit
from runner.present.answers.standings import times
from runner.present.frames import Tables, is_sealed, limits_of
from runner.present.look import captions, style
from runner.present.published.claims import FAILS, HOLDS, UNTOLD, Claim, Outcome, all_of, whichever
from runner.present.published.claims_evidence import (
    Bar,
    Question,
    anywhere,
    at_its_limit,
    carries,
    compare,
    sample,
    weigh,
)
from runner.present.published.counterparts import USERS, Cell, cell, closed, nearest, stand_ins
from runner.present.published.numbers import WINDOWS
from runner.present.statistics.inference import ratio
from runner.present.statistics.stats import spread

PLAIN, MD5, GO = "experiments", "experiments-md5", "echo"
UNNAMED = "it depends on which framework `rust` is, which the source does not name"
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95}
CPU, MEAN = "server_cpu_ms_per_request", "server_cpu_mean_pct"


def _load(tables: Tables, scenario: str) -> pd.DataFrame:
    """Return the trials of the load whose number of users is nearest to the published one."""
    trials = closed(tables, scenario)
    return nearest(trials[trials["mode"] == "keepalive"], USERS)


def _cell(tables: Tables, server: str, scenario: str) -> Cell:
    return cell(_load(tables, scenario), server, f"a closed loop of {scenario}")


def _rust(tables: Tables, judge: Callable[[str], Outcome]) -> Outcome:
    """Judge a claim for each server that stands for `rust`; for the first, which then says so, where none ran."""
    ran = set(_load(tables, PLAIN)["server"]) | set(_load(tables, MD5)["server"])
    names = stand_ins("rust")
    present = [name for name in names if name in ran] or list(names[:1])
    return whichever({name: judge(name) for name in present}, UNNAMED)


def slightly_more_requests(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether Rust answers slightly more requests/s than Echo."""
    go = _cell(tables, GO, PLAIN)

    def judge(rust: str) -> Outcome:
        asked = compare(f"{rust}/{GO} requests/s", _cell(tables, rust, PLAIN), go, "rps", at_its_limit)
        return all_of(weigh(tables, claim, [asked]))

    return _rust(tables, judge)


def percentiles_alike(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether p50, p90 and p95 of both are alike."""
    go = _cell(tables, GO, PLAIN)

    def judge(rust: str) -> Outcome:
        own = _cell(tables, rust, PLAIN)
        asked = [
            compare(f"{rust}/{GO} {name}", own, go, f"latency_{name}_ms", carries(quantile, at_its_limit))
            for name, quantile in PERCENTILES.items()
        ]
        return all_of(weigh(tables, claim, asked))

    return _rust(tables, judge)


def half_the_cpu(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether Rust needs about half of Echo's CPU for a request, with and without MD5."""

    def judge(rust: str) -> Outcome:
        pairs = {scenario: (_cell(tables, rust, scenario), _cell(tables, GO, scenario)) for scenario in (PLAIN, MD5)}
        asked = [
            compare(f"{rust}/{GO} CPU ms/request, {scenario}", *pair, CPU, anywhere) for scenario, pair in pairs.items()
        ]
        return all_of(weigh(tables, claim, asked), [words for pair in pairs.values() for words in _peaks(tables, pair)])

    return _rust(tables, judge)


def _peaks(tables: Tables, cells: tuple[Cell, ...]) -> list[str]:
    """Say what the published number, the CPU peak, is here, with its windows."""
    known = [each for each in cells if len(each.sealed)]
    if not known:
        return []
    said = [
        f"{each.server} "
        + ", ".join(f"{style.number(spread(each.sealed[column]).median)} % over {w}" for w, column in WINDOWS.items())
        for each in known
    ]
    cpus = (tables.manifest.get("placement") or {}).get("server") or []
    room = f"; the server has {captions.plural(len(cpus), 'CPU')} here" if cpus else ""
    return [f"CPU peaks under {known[0].load}, in % of a core: {'; '.join(said)}{room}."]


def md5_costs_little(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether the MD5 costs Rust hardly any throughput and response time."""

    def judge(rust: str) -> Outcome:
        plain, md5 = _cell(tables, rust, PLAIN), _cell(tables, rust, MD5)
        asked = [
            compare(f"{rust} without/with MD5, requests/s", plain, md5, "rps", at_its_limit),
            compare(f"{rust} with/without MD5, p50", md5, plain, "latency_p50_ms", carries(0.5, at_its_limit)),
        ]
        price = ratio(sample(md5, CPU), sample(plain, CPU))
        seen = (
            [f"In CPU time per request, which tells at any rate, the MD5 costs {rust} {times(price)}."] if price else []
        )
        return all_of(weigh(tables, claim, asked), seen)

    return _rust(tables, judge)


def no_spikes(tables: Tables, claim: Claim) -> Outcome:
    """Judge whether the CPU of the Rust server stays near its mean, in windows of two lengths."""

    def judge(rust: str) -> Outcome:
        own = _cell(tables, rust, PLAIN)
        seen = _steepness(_cell(tables, GO, PLAIN))
        found = {
            f"over {window}": all_of(weigh(tables, claim, [_peak(own, window, column)]), seen)
            for window, column in WINDOWS.items()
        }
        return whichever(found, "it depends on the window, which the source does not name")

    return _rust(tables, judge)


def _peak(own: Cell, window: str, column: str) -> Question:
    names = (f"{own.server}'s peak over {window} in %", "its mean")
    words = f"{own.server} CPU peak over {window} / mean"
    return Question(words, names, (own,), (sample(own, column), sample(own, MEAN)), _room_to_rise)


def _steepness(other: Cell) -> list[str]:
    """Say how far the peaks of the other side stand above its mean, to compare with."""
    mean = spread(other.sealed[MEAN]).median
    if not mean > 0:
        return []
    said = [f"{style.number(spread(other.sealed[column]).median / mean)} over {w}" for w, column in WINDOWS.items()]
    return [f"Peak / mean of {other.server}'s CPU, medians: {', '.join(said)}."]


def _room_to_rise(_tables: Tables, own: Cell) -> Bar | None:
    full = limits_of(own.sealed) == Limit.SERVER
    if not full.any():
        return None
    mean = style.number(spread(own.sealed[MEAN]).median)
    return Bar("its CPUs were full, so that nothing could rise above", f"it used {mean} % of a core (mean)")


def no_failed_requests(tables: Tables, _claim: Claim) -> Outcome:
    """Judge whether any request failed, in trials that were left out of the figures too."""
    loads = [_load(tables, scenario) for scenario in (PLAIN, MD5)]
    servers = (*stand_ins("rust"), GO)
    trials = pd.concat([load[load["server"].isin(servers)] for load in loads])
    counted = trials[trials["failed"].notna() & trials["requests"].notna()]
    missing = [name for name in ("rust", GO) if not set(stand_ins(name)) & set(counted["server"])]
    seen = tuple(_failures(str(server), own) for server, own in counted.groupby("server", sort=False))
    if counted["failed"].gt(0).any():
        return Outcome(FAILS, "requests failed", seen=seen)
    if missing:
        return Outcome(UNTOLD, f"this run has no count of {' and '.join(missing)} under {PLAIN}", seen=seen)
    return Outcome(HOLDS, f"none of {counted['requests'].sum():,.0f} requests failed", seen=seen)


def _failures(server: str, trials: pd.DataFrame) -> str:
    out = int((~is_sealed(trials)).sum())
    left = f", of which {out} did not count otherwise" if out else ""
    total = f"{trials['failed'].sum():,.0f} of {trials['requests'].sum():,.0f} requests failed"
    return f"{server}: {total} in {captions.plural(len(trials), 'trial')}{left}."
