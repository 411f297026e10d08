"""Write texts and tables about a trial's CPU spikes, and about how often each server spikes."""

import math
from collections.abc import Iterator

import pandas as pd

from runner.generator_traits import traits_of
from runner.model import CALIBRATION
from runner.present.answers import evidence
from runner.present.look.captions import plural
from runner.present.look.numbers import number
from runner.present.spikes.cause_words import cause_words, hold_words, neighbour_words
from runner.present.spikes.coincidence import ALPHA, Events, seen
from runner.present.spikes.found import (
    BASELINE_S,
    ENOUGH,
    FEWEST_WINDOWS,
    FLOOR_PCT,
    LIMIT,
    SETTLING_S,
)
from runner.present.spikes.hindrance import Hindrance
from runner.present.spikes.view import View

NO_TRIAL_TO_LOOK_AT = (
    "This page is about one trial, but this run has no sealed trial whose server's CPU was sampled."
)
FULL = 0.9
"""A server that uses more than this share of its CPUs is too close to its limit to show spikes."""


def why(found: pd.DataFrame, trial_id: str) -> str:
    """Return the reason why a trial is shown although the user chose no trial.

    `found` is the survey of the run's trials (`view.survey`).
    """
    row = found[found["trial_id"] == trial_id].iloc[0]
    short = int((found["seconds"] == 0).sum())
    long_enough = len(found) - short
    highest = f"this one has the highest CPU over 0.1 s, {number(row['peak_pct'])} %."
    if not long_enough:
        return f"No trial of this run is long enough to look for spikes; {highest}"
    looked = plural(long_enough, "trial")
    if short:
        looked += f" that {'is' if long_enough == 1 else 'are'} long enough ({short} are too short)"
    if math.isnan(row["deviations"]):
        return f"No server spiked in the {looked} of this run; of these trials, {highest}"
    return (
        f"Of the {looked} of this run, this one has the spike that stands out most: "
        f"{number(row['height_pct'])} % of a core above its baseline, {number(row['deviations'])} "
        f"deviations, {row['start_s']:.2f} s into the load."
    )


def trial_words(view: View) -> str:
    """Return sentences that name the trial, its load, why it is shown, and its limit."""
    return f"{evidence.trial_words(view.case)} {view.why} {evidence.verdict_words(view.case)}"


def peak_words(view: View) -> str:
    """Return the server's highest mean CPU use over 0.1 s and over 1 s, if known, as text."""
    return ", ".join(f"{number(pct)} % over {window_s:g} s" for pct, window_s in view.peaks)


def spike_words(view: View) -> str:
    """Return sentences that count the server's spikes, define a spike, and give the CPU peaks.

    If the load is too short to look for spikes, a sentence says so instead.
    """
    server = view.server
    if math.isnan(server.deviation):
        windows = plural(len(server.windows.value), "window")
        return (
            f"The load has {windows} of the sampler, but at least {ENOUGH} are needed to look for "
            "spikes."
        )
    counted = len(server.counted)
    settling = len(server.spikes) - len(server.counted)
    begun = (
        f", and {plural(settling, 'spike')} at the beginning of the load or of a slice"
        if settling
        else ""
    )
    found = plural(counted, "spike") if counted else "No spike"
    mean = number(view.case.row["server_cpu_mean_pct"])
    sentences = [f"{found} of the server in {number(server.settled_s)} s{begun}."]
    if len(view.numbered) < len(server.spikes):
        sentences.append(f"Of all these spikes, {len(view.numbered)} are in the part shown.")
    sentences.append(
        f"A spike is a stretch of {server.fewest} or more windows in a row in which the CPU use is "
        f"more than {LIMIT:g} deviations (here {number(LIMIT * server.deviation)} % of a core) "
        "above the baseline."
    )
    if server.fewest > FEWEST_WINDOWS:
        sentences.append(
            f"More than {FEWEST_WINDOWS} windows in a row are required here, because many single "
            "windows stand out."
        )
    if view.peaks:
        sentences.append(f"The server's CPU peak is {peak_words(view)}; its mean is {mean} %.")
    return " ".join(sentences)


def spike_table(view: View) -> pd.DataFrame:
    """Return a table of the server's spikes in the displayed seconds, with cause and events."""
    rows = []
    probe = view.case.probe
    for place, spike in view.numbered.items():
        happened = [
            *(["the load or a slice began"] if spike.settling else []),
            *seen(view.events, spike),
        ]
        row = {
            "spike": str(place),
            "start, s": f"{spike.start_s:.2f}",
            "length, s": f"{spike.length_s:.2f}",
            "height, % of a core": number(spike.height_pct),
            "cause": cause_words(spike, view.explanations[place - 1]),
            "meanwhile": ", ".join(happened) or "no known event",
            "baseline, %": number(spike.baseline_pct),
            "deviations": number(spike.deviations),
            "CPU ms above baseline": number(spike.excess_ms),
        }
        if probe is not None:
            due = probe.loc[
                probe["ok"] & probe["t_s"].between(spike.start_s, spike.end_s), "latency_ms"
            ]
            row["probe's slowest, ms"] = number(float(due.max()))
        rows.append(row)
    return pd.DataFrame(rows)


def hindrance_words(view: View) -> str:
    """Return sentences that say how often something held the server back, and what this means."""
    if not view.hindrances:
        return (
            "Nothing is known to have held the server back: it was not stopped, and stolen, "
            "throttled and waiting time did not stand out."
        )
    return (
        f"Something held the server back {plural(len(view.hindrances), 'time')}. Response times "
        "and CPU use just after such a time say nothing about the server."
    )


def hindrance_table(view: View) -> pd.DataFrame:
    """Return a table of the stretches in which something held the server back, sorted by time."""
    rows = []
    for held in view.hindrances:
        row = {
            "start, s": f"{held.start_s:.2f}",
            "length, s": f"{held.length_s:.2f}",
            "what": hold_words(held),
            "CPU of other programs": neighbour_words(held),
            "a spike followed": "yes" if _was_caught_up(view, held) else "no",
        }
        if view.case.probe is not None:
            row["probe's slowest, ms"] = number(_slowest_ms(view.case.probe, held))
        rows.append(row)
    return pd.DataFrame(rows)


def _was_caught_up(view: View, held: Hindrance) -> bool:
    return any(found.hindrance == held for found in view.explanations)


def _slowest_ms(probe: pd.DataFrame, held: Hindrance) -> float:
    """Return the longest response time, in ms, of the probe's requests during `held`."""
    due = probe["ok"] & probe["t_s"].between(held.start_s, held.end_s)
    return float(probe.loc[due, "latency_ms"].max())


def coincidence_words(view: View) -> str:
    """Return a sentence that names the kinds of events that coincide with the server's spikes.

    A kind is named only if it coincides with spikes more often than by chance.
    """
    if not view.server.counted:
        return "There is no spike to compare with other events; the table lists the events."
    tied = [kind.kind for kind in view.events if kind.p_holm <= ALPHA]
    if tied:
        return (
            f"More often than by chance (Holm's p at most {ALPHA:g}), the spikes coincide with: "
            f"{', '.join(tied)}. Coincidence is not causation: both may have another cause."
        )
    return "The spikes coincide with no kind of event more often than by chance."


def coincidence_table(view: View) -> pd.DataFrame:
    """Return a table of how often the spikes overlap events of each kind, compared with chance.

    If the times of a kind of event are not known, the row of this kind only gives the reason.
    """
    spikes = len(view.server.counted)
    rows = []
    for kind in view.events:
        row = {"event": kind.kind, "what it says": f"not known: {kind.unknown}"}
        if not kind.unknown:
            row |= {
                "what it says": reading(kind, spikes),
                "spikes with one": f"{kind.together} of {spikes}",
                "by chance": number(kind.expected * spikes),
                "p, Holm": number(kind.p_holm),
                "p": number(kind.p),
                "events": f"{kind.count:,}",
                "time with one": f"{100 * kind.covered:.1f} %",
                "sampled every": f"{kind.every_s:.2g} s",
            }
        rows.append(row)
    return pd.DataFrame(rows).fillna(number(math.nan))


def reading(kind: Events, spikes: int) -> str:
    """Return a few words that say what the overlap of spikes with a kind of event means."""
    if not spikes:
        return "there is no spike"
    if not kind.count:
        return "there was no such event"
    if math.isnan(kind.p):
        return "nothing: no time was free of such events"
    if kind.p_holm <= ALPHA:
        return "coincides with spikes more than by chance"
    if kind.least_p > ALPHA:
        return "nothing: with so many events, or so few spikes, chance cannot be excluded"
    return "no more than by chance"


def limits(view: View) -> tuple[str, ...]:
    """Return sentences that say what the page about CPU spikes cannot show about this trial."""
    return tuple(
        sentence
        for sentence in (
            _on_short_and_long(view),
            _on_a_full_server(view),
            *_on_events(view),
            *_on_the_load(view),
        )
        if sentence
    )


def _on_short_and_long(view: View) -> str:
    server = view.server
    window_s = float(pd.Series(server.windows.end_s - server.windows.start_s).median())
    longest_s = min(BASELINE_S / 2, view.duration_s / 4)
    return (
        f"Bursts of less than {server.fewest} windows ({server.fewest * window_s:.2g} s) are too "
        f"short to count, and are seen as peaks only. What lasts longer than {longest_s:.2g} s is "
        f"a level, not a spike. The height of a spike is at least {LIMIT * FLOOR_PCT:g} % of a "
        "core."
    )


def _on_a_full_server(view: View) -> str:
    mean_pct = float(view.case.row["server_cpu_mean_pct"])
    given_pct = view.case.given("server")
    if not mean_pct >= FULL * given_pct:
        return ""
    return (
        f"The server used {number(mean_pct)} % CPU and was given {given_pct:.0f} %: it was near "
        "its CPU limit, so the absence of spikes proves nothing."
    )


def _on_events(view: View) -> Iterator[str]:
    """Yield sentences that name the kinds of events about which too little is known.

    The first sentence names kinds that are sampled too rarely, the second names kinds that are not
    known at all, and the third names kinds that are known only for the whole machine.
    """
    lengths_s = [spike.length_s for spike in view.server.counted]
    usual_s = float(pd.Series(lengths_s, dtype=float).median())
    coarse = [
        f"{kind.kind} every {kind.every_s:.2f} s" for kind in view.events if kind.every_s > usual_s
    ]
    if coarse:
        yield (
            f"Sampled at longer intervals than a spike takes ({usual_s:.2f} s, median): "
            f"{', '.join(coarse)}. Such an event lies somewhere between two samples, so an overlap "
            "with a spike shows only that the event was near."
        )
    missing = [kind.kind for kind in view.events if kind.unknown]
    if missing:
        yield f"Not known for this trial: {', '.join(missing)}."
    of_machine = [
        kind.kind
        for kind in view.events
        if kind.kind in ("context switches", "steal") and not kind.unknown
    ]
    if of_machine:
        yield f"Known for the whole machine, not for the server alone: {', '.join(of_machine)}."


def _on_the_load(view: View) -> Iterator[str]:
    """Yield sentences on what cannot be shown because of the generator, the probe or the load."""
    row = view.case.row
    if not traits_of(row["tool"]).keeps_requests:
        yield (
            f"{row['tool']} keeps no times of single requests, so latency and rate of each second "
            "are unknown."
        )
    if view.case.probe is None:
        yield evidence.NO_PROBE
    settling = len(view.server.spikes) - len(view.server.counted)
    if settling:
        yield (
            f"{plural(settling, 'spike')} began in the first {SETTLING_S:g} s of the load or of a "
            "slice, in which connections are opened and the rate rises. Such spikes are listed, "
            "but neither counted nor compared with events."
        )
    if row["steps"] > 1:
        yield (
            "The load rises in steps. Spikes and events may both become more frequent with the "
            "load, and then coincide without being related, because the test ignores the steps."
        )


def control_table(found: pd.DataFrame) -> pd.DataFrame:
    """Return a table of how often each server spikes over all its trials.

    `found` is the survey of the run's trials (`view.survey`). Servers are sorted by language, as in
    the figures.
    """
    sums = dict.fromkeys(("trials", "seconds", "spikes", "spike_s", "with_one", "settling"), "sum")
    each = found.assign(trials=1, with_one=found["spikes"] > 0).groupby(
        ["language", "server", "tier"], as_index=False
    )
    servers = each.agg({"gc_per_s": "mean", "height_pct": "max", **sums}).query("seconds > 0")
    seconds = servers["seconds"]
    calibrates = servers["tier"] == CALIBRATION
    columns = {
        "server": servers["server"].mask(calibrates, servers["server"] + f" ({CALIBRATION})"),
        "language": servers["language"],
        "GC cycles/s": servers["gc_per_s"]
        .map(number)
        .mask(servers["gc_per_s"].isna(), "none reported"),
        "trials": servers["trials"].map(str),
        "minutes": (seconds / 60).map(number),
        "spikes": servers["spikes"].map("{:,}".format),
        "spikes a minute": (60 * servers["spikes"] / seconds).map(number),
        "share of time": (100 * servers["spike_s"] / seconds).map("{:.2f} %".format),
        "trials with a spike": servers["with_one"].map(str),
        "highest, % of a core": servers["height_pct"].map(number),
        "spikes at the beginning": servers["settling"].map("{:,}".format),
    }
    return pd.DataFrame(columns)


def control_words(found: pd.DataFrame, trial_id: str) -> str:
    """Return sentences that say how often the trial's server spikes, and how often others do.

    `found` is the survey of the run's trials (`view.survey`). All servers are compared under the
    load of the trial. The other servers are listed in two groups: servers that report no garbage
    collector, and servers that report one.
    """
    collects = found["gc_per_s"].notna().groupby(found["server"]).transform("any")
    shown = found["trial_id"] == trial_id
    server, load = found.loc[shown, ["server", "load"]].iloc[0]
    alike = found["load"] == load
    same = found["server"] == server
    article = "a" if collects[shown].iloc[0] else "no"
    said = (
        f"Under this load, {load}: {_rates(found[alike & same])}; it reports {article} garbage "
        "collector."
    )
    if not collects.any():
        return f"{said} No server of this run reports one, so there is no server to compare with."
    others = alike & ~same & (found["tier"] != CALIBRATION)
    beside = [
        f"servers that report {words}: "
        f"{', '.join(_rates(trials) for _, trials in group.groupby('server', sort=True))}"
        for words, group in (("none", found[others & ~collects]), ("one", found[others & collects]))
        if len(group)
    ]
    return (
        f"{said} For comparison, {'; '.join(beside)}."
        if beside
        else f"{said} No other server was under this load, so there is no control."
    )


def _rates(trials: pd.DataFrame) -> str:
    server = trials["server"].iloc[0]
    seconds = float(trials["seconds"].sum())
    spikes = int(trials["spikes"].sum())
    if not seconds:
        return f"{server} {plural(len(trials), 'trial')}, too short to look for spikes"
    time = f"{number(seconds / 60)} minutes" if seconds >= 120 else f"{number(seconds)} s"
    return f"{server} {plural(spikes, 'spike')} in {time}, {number(60 * spikes / seconds)} a minute"
