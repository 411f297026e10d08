"""What is said of one trial's CPU spikes, in words and tables; all of it is computed."""

from __future__ import annotations

import math

import pandas as pd

from runner.present.answers import evidence
from runner.present.look import captions, style
from runner.present.spikes.coincidence import ALPHA, Coincidence, Events, seen
from runner.present.spikes.found import BASELINE_S, ENOUGH, FEWEST_WINDOWS, FLOOR_PCT, LIMIT, SETTLING_S, Spike
from runner.present.spikes.view import View

NOTHING = "This run has no sealed trial whose server's CPU was sampled, which is what this page is about."
FULL = 0.9
"""Share of the CPU that a server was given from which on a spike has no room."""


# --- the trial and its spikes -----------------------------------------------------------------------------


def trial_words(view: View) -> str:
    """Say which trial this is, how it was driven, and why it is this one."""
    return f"{evidence.trial_words(view.case)} {view.why}"


def verdict_words(view: View) -> str:
    """Say what limited the trial."""
    return evidence.verdict_words(view.case)


def spike_words(view: View) -> str:
    """Say how many spikes the server has and how its peaks read in two windows."""
    server, row = view.server, view.case.row
    if math.isnan(server.deviation_pct):
        windows = captions.plural(len(server.cpu_pct), "window")
        return f"The load has {windows} of the sampler: at least {ENOUGH} are needed to look for spikes."
    counted, settling = len(server.counted), len(server.spikes) - len(server.counted)
    said = "No spike" if not counted else captions.plural(counted, "spike")
    begun = f", and {captions.plural(settling, 'spike')} with the load's begin" if settling else ""
    part = "" if len(view.numbered) == len(server.spikes) else f" Of these, {len(view.numbered)} in the part shown."
    peaks = ", ".join(
        f"{style.number(float(row[f'server_cpu_peak_{name}_pct']))} % over {words}"
        for name, words in (("100ms", "0.1 s"), ("1s", "1 s"))
        if math.isfinite(row[f"server_cpu_peak_{name}_pct"])
    )
    peak = f" Its peak is {peaks}; its mean {style.number(row['server_cpu_mean_pct'])} %." if peaks else ""
    return (
        f"{said} of the server in {style.number(server.settled_s)} s{begun}.{part} A spike is more than {LIMIT:g} "
        f"deviations, here {style.number(LIMIT * server.deviation_pct)} % of a core, above the baseline in "
        f"{server.fewest} windows or more in a row.{_bursty(view)}{peak}"
    )


def _bursty(view: View) -> str:
    """Say why a spike must be longer here than elsewhere."""
    if view.server.fewest == FEWEST_WINDOWS:
        return ""
    return (
        f" It takes more than {FEWEST_WINDOWS} windows here, because so many stand out singly that as many would "
        "come in a row by chance."
    )


def spike_table(view: View) -> pd.DataFrame:
    """Return the server's spikes in the part that is shown, as texts, with what else happened meanwhile."""
    rows = [_spike_row(view, number, spike) for number, spike in view.numbered.items()]
    return pd.DataFrame(rows)


def _spike_row(view: View, number: int, spike: Spike) -> dict[str, str]:
    happened = [*(["the load began"] if spike.settling else []), *seen(view.events, spike)]
    row = {
        "spike": str(number),
        "start, s": f"{spike.start_s:.2f}",
        "length, s": f"{spike.length_s:.2f}",
        "height, % of a core": style.number(spike.height_pct),
        "meanwhile": ", ".join(happened) or "nothing of what is looked at",
        "baseline, %": style.number(spike.baseline_pct),
        "deviations": style.number(spike.deviations),
        "CPU ms above baseline": style.number(spike.excess_ms),
    }
    probe = view.case.probe
    if probe is not None:
        due = probe.loc[probe["ok"] & probe["t_s"].between(spike.start_s, spike.end_s), "latency_ms"]
        row["probe's slowest, ms"] = style.number(float(due.max()))
    return row


# --- coincidence ------------------------------------------------------------------------------------------


def coincidence_table(view: View) -> pd.DataFrame:
    """Return how often the spikes overlap events of each kind, beside chance, as texts; what is not known too."""
    known = {of.kind: of for of in view.found}
    return pd.DataFrame([_kind_row(view, kind, known.get(kind.kind)) for kind in view.events])


def _kind_row(view: View, kind: Events, of: Coincidence | None) -> dict[str, str]:
    dash = style.number(math.nan)
    if of is None:
        names = ("spikes with one", "by chance", "p, Holm", "p", "events", "time with one", "looked at every")
        return {"event": kind.kind, "what it says": f"not known: {kind.unknown}", **dict.fromkeys(names, dash)}
    spikes = len(view.server.counted)
    return {
        "event": kind.kind,
        "what it says": reading(of, spikes),
        "spikes with one": f"{of.together} of {spikes}",
        "by chance": f"{of.expected * spikes:.1f}" if math.isfinite(of.expected) else dash,
        "p, Holm": _p(of.p_holm),
        "p": _p(of.p),
        "events": f"{of.events:,}",
        "time with one": f"{100 * of.covered:.1f} %",
        "looked at every": f"{kind.every_s:.2f} s" if math.isfinite(kind.every_s) else dash,
    }


def _p(p: float) -> str:
    return style.number(math.nan) if math.isnan(p) else f"{p:.4f}" if p < 0.1 else f"{p:.2f}"


def reading(of: Coincidence, spikes: int) -> str:
    """Return what a coincidence says, in a few words."""
    if not spikes:
        return "there is no spike"
    if not of.events:
        return "there was none"
    if math.isnan(of.p):
        return "nothing: there was one all the time"
    if of.p_holm <= ALPHA:
        return "coincides with spikes more than by chance"
    if of.least_p > ALPHA:
        return "nothing: too common, or the spikes too few, to tell from chance"
    return "no more than by chance"


def coincidence_words(view: View) -> str:
    """Say with what the spikes coincide."""
    if not view.server.counted:
        return "There is no spike to hold against other events; the table says which there were."
    tied = [of.kind for of in view.found if of.p_holm <= ALPHA]
    if tied:
        return (
            f"Beyond chance (Holm's p at most {ALPHA:g}) the spikes coincide with: {', '.join(tied)}. "
            "What coincides is not thereby the cause: both may come of something else."
        )
    return "With no kind of event do the spikes coincide more than by chance."


# --- what is not known -------------------------------------------------------------------------------------


def limits(view: View) -> tuple[str, ...]:
    """Return what this page cannot tell of this trial, a sentence each."""
    row, server = view.case.row, view.server
    window_s = float(pd.Series(server.end_s).diff().median())
    length = f"{server.fewest * window_s:.2f} s" if math.isfinite(window_s) else f"{server.fewest} windows"
    said = [
        f"Bursts shorter than {length} are too short to tell, and are seen as peaks only. What lasts longer than "
        f"{min(BASELINE_S / 2, view.duration_s / 4):.2g} s is a level, not a spike. A spike is at least "
        f"{LIMIT * FLOOR_PCT:g} % of a core high.",
        *_full(view),
        *_coarse(view),
        *_one_sided(view),
    ]
    if row["tool"] == "wrk":
        said.append("wrk keeps no times of single requests: of this load neither latency nor rate are known by second.")
    if view.case.probe is None:
        said.append(evidence.NO_PROBE)
    settling = len(server.spikes) - len(server.counted)
    if settling:
        said.append(
            f"{captions.plural(settling, 'spike')} began in the first {SETTLING_S:g} s, in which connections are "
            "opened and the rate rises: listed, but neither counted nor held against events."
        )
    if float(row["steps"] if math.isfinite(row["steps"]) else 1) > 1:
        said.append(
            "The load rises in steps. Spikes and events may both get more frequent with it, and then coincide without "
            "being tied: the test's chance does not know of steps."
        )
    return tuple(said)


def _full(view: View) -> list[str]:
    given, mean = view.case.given("server"), float(view.case.row["server_cpu_mean_pct"])
    if not (math.isfinite(given) and math.isfinite(mean)) or mean < FULL * given:
        return []
    return [
        f"The server used {style.number(mean)} % of the {given:.0f} % of CPU that it was given: a spike has no room, "
        "and that there is none says nothing."
    ]


def _coarse(view: View) -> list[str]:
    spikes = view.server.counted
    if not spikes:
        return []
    usual = float(pd.Series([spike.length_s for spike in spikes]).median())
    coarse = [kind for kind in view.events if kind.every_s > usual]
    if not coarse:
        return []
    named = ", ".join(f"{kind.kind} every {kind.every_s:.2f} s" for kind in coarse)
    return [
        f"Looked at more coarsely than a spike is long ({usual:.2f} s, median): {named}. Such an event lies somewhere "
        "between two looks: that it overlaps a spike says only that it was near."
    ]


def _one_sided(view: View) -> list[str]:
    missing = [kind.kind for kind in view.events if kind.unknown]
    hosts = [kind.kind for kind in view.events if kind.kind in {"context switches", "steal"} and not kind.unknown]
    said = [f"Not known of this trial: {', '.join(missing)}."] if missing else []
    if hosts:
        verb = "are" if len(hosts) > 1 or hosts[0].endswith("s") else "is"
        said.append(f"Of the whole machine, not of the server alone, {verb}: {', '.join(hosts)}.")
    return said
