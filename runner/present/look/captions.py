"""Write the texts around figures: headings, captions, and facts about trials and the machine."""

import math
from collections.abc import Sequence

import pandas as pd

from runner.generator_traits import traits_of
from runner.manifest import Git, Manifest
from runner.model import OWN_SCRIPT
from runner.present.frames import Tables, is_sealed, offered_words, repeated, sealed_trials

BY_LOAD = "Load by load"
"""Heading of the report's table with the means of closed loads."""
IDLE = {
    "polling": "kept awake",
    "system": "left to sleep as the system is set up",
    "both": "kept awake and left to sleep, by load",
}
"""Words that say what happened to idle CPUs, by the value of `idle` in the manifest."""
HOW_SERVERS_RAN = {
    "docker": ", servers in containers",
    "process": ", servers as plain processes",
    "attached": ", a server that was running before the run",
}
"""Phrases that say how the servers ran, by the engine in the manifest."""
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")


def load_words(trials: pd.DataFrame) -> str:
    """Return words that say how a load was driven: `closed loop, N = 3000, zero think time`.

    The words name the rate of an open loop, or the number of users of a closed loop. `trials` are
    the trials of this load.
    """
    first = trials.iloc[0].to_dict()
    size = first.get("pool_size", math.nan)
    pool = "" if math.isnan(size) else f", pool of {size:.0f}"
    if first["load_model"] == "open":
        return f"open loop, {offered_words(first)}{pool}"
    users = first[traits_of(first.get("tool")).size_column]
    if first["workload"] == OWN_SCRIPT:
        return f"closed loop, N = {users:.0f} users of a script"
    return f"closed loop, N = {users:.0f}{pool}, zero think time"


def load_heading(trials: pd.DataFrame, quantity: str) -> str:
    """Return a heading for a figure: how a load was driven, and the quantity that is drawn.

    If the load is a closed loop without think time, the text says that the quantity was measured at
    saturation. In such a loop the N users always wait for the server, so that the mean response
    time follows from the throughput X: it is N / X (Little's law). A user's script may pause
    between requests, so the text about a script does not mention saturation.
    """
    first = trials.iloc[0]
    is_saturated = first["load_model"] != "open" and first["workload"] != OWN_SCRIPT
    return f"{load_words(trials)}: {quantity}{' at saturation' if is_saturated else ''}"


def load_headings(trials: pd.DataFrame, quantity: str) -> dict[str, tuple[str, str]]:
    """Return the name of the workload and the text of `load_heading`, by load.

    If the loads differ in their terms, such as quotas, the terms follow the name of the workload.
    """
    differ = trials["terms"].nunique() > 1
    headings = {}
    for load, alike in trials.groupby("load", sort=False):
        workload, terms = alike[["workload", "terms"]].iloc[0]
        name = f"{workload}, {terms}" if differ and terms else str(workload)
        headings[str(load)] = (name, load_heading(alike, quantity))
    return headings


def verdict_counts(trials: pd.DataFrame) -> str:
    """Return each verdict with its count, as text: `generator-bound 2 of 3, server-bound 1 of 3`.

    The most frequent verdict comes first.
    """
    counts = (
        trials["verdict"].value_counts().sort_index().sort_values(ascending=False, kind="stable")
    )
    return ", ".join(f"{verdict} {count} of {len(trials)}" for verdict, count in counts.items())


def joined(names: Sequence[str]) -> str:
    """Return the names as `a`, `a and b` or `a, b and c`, or `none` if there are no names."""
    return (
        names[0]
        if len(names) == 1
        else f"{', '.join(names[:-1])} and {names[-1]}"
        if names
        else "none"
    )


def trial_counts(trials: pd.DataFrame) -> str:
    """Return a text with the numbers of sealed trials, repeated attempts, and trials left out.

    The text also says how many sealed trials there are per server and load.
    """
    sealed = sealed_trials(trials)
    cells = sealed.groupby(["server", "load"]).size()
    each = " to ".join(map(str, dict.fromkeys((cells.min(), cells.max()))))
    text = f"{plural(len(sealed), 'trial')}, {each} per server and load"
    again = int(repeated(trials).sum())
    text += f"; {plural(again, 'disturbed attempt')} repeated" if again else ""
    out = trials[~is_sealed(trials) & ~repeated(trials)]["status"].value_counts()
    return text + "".join(
        f"; {plural(int(n), f'{status} trial')} left out" for status, n in out.items()
    )


def measured(tables: Tables) -> str:
    """Return a sentence that says when, on which machine and how a run was measured.

    The sentence also counts the trials. It omits facts that are not in the manifest. Return an
    empty text if no trial was sealed.
    """
    if sealed_trials(tables.trials).empty:
        return ""
    manifest = tables.manifest
    place = machine(manifest)
    known = (
        f" on {manifest.day}" if manifest.day else "",
        f" on {place}" if place != "unknown" else "",
        " (a virtual machine)" if manifest.machine.hypervisor else "",
        HOW_SERVERS_RAN.get(manifest.engine or "", ""),
        beside_containers(manifest),
    )
    return f"Measured{''.join(known)}: {trial_counts(tables.trials)}."


def plural(count: int, noun: str) -> str:
    """Return `1 trial` or `3 trials`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def machine(manifest: Manifest) -> str:
    """Return the machine's CPU model and number of CPUs, or `unknown` if neither is known."""
    facts = manifest.machine
    if facts.cpu_model is None and facts.cpus is None:
        return "unknown"
    return f"{facts.cpu_model or 'unknown CPU'}, {plural(facts.cpus or 0, 'CPU')}"


def manifest_facts(manifest: Manifest) -> dict[str, str]:
    """Return the most important facts of a manifest in words, by heading.

    A fact that the manifest does not contain is left out.
    """
    campaign = manifest.campaign
    git = manifest.git or Git()
    facts = manifest.machine
    place = manifest.placement
    dirty = ", with uncommitted changes" if git.dirty else ""
    memory = facts.memory_bytes
    values = {
        "Run": manifest.run_id,
        "Started": manifest.started_at,
        "Campaign": f"{campaign.title or campaign.name} (scale {campaign.scale:g})",
        "Seed": manifest.seed,
        "Commit": f"{git.commit}{dirty}" if git.commit else None,
        "Engine": (
            f"{manifest.engine}: {manifest.engine_reason}{beside_containers(manifest)}"
            if manifest.engine
            else None
        ),
        "CPUs": ", ".join(
            f"{who} {list(cpus)}"
            for who in ("server", "generator", "database")
            if (cpus := place.cpus_of(who))
        ),
        "Database": durability(manifest),
        "Machine": machine(manifest),
        "Memory": f"{memory / 2**30:.1f} GiB" if memory else None,
        "System": " ".join(filter(None, (facts.os, facts.kernel))),
        "CPU governor": facts.governor,
        "Idle CPUs": IDLE.get(manifest.idle or ""),
        "Compilers": compilers(manifest, campaign.servers),
        "Tools": ", ".join(f"{name} {version}" for name, version in manifest.tools.items()),
    }
    return {what: str(value) for what, value in values.items() if value not in (None, "")}


def beside_containers(manifest: Manifest) -> str:
    """Return a clause that names the servers that ran as plain processes beside containers.

    Return an empty text if there are no such servers.
    """
    names = manifest.campaign.processes
    if not names:
        return ""
    kind = "a plain process" if len(names) == 1 else "plain processes"
    return f"; {joined(names)} ran as {kind}"


def compilers(manifest: Manifest, servers: Sequence[str]) -> str:
    """Return the compilers of a run's servers: `go 1.26.8 (echo, gin), unknown (nginx)`.

    Return an empty text if the lab started no server. Return `unknown` for a run that was made
    before compilers were recorded.
    """
    if manifest.engine is None or not servers:
        return ""
    if not manifest.compilers:
        return "unknown"
    found: dict[str, list[str]] = {}
    for server in servers:
        found.setdefault(manifest.compilers.get(server, "unknown"), []).append(server)
    known = sorted(found, key=lambda compiler: (compiler == "unknown", compiler))
    return ", ".join(f"{compiler} ({', '.join(found[compiler])})" for compiler in known)


def database_place(manifest: Manifest) -> str:
    """Return a sentence that says how many CPUs PostgreSQL may use.

    The sentence also says whether the load generator uses the same CPUs. Return an empty text if
    PostgreSQL's CPUs are unknown.
    """
    cpus = manifest.placement.database
    if not cpus:
        return ""
    shared = ", which it shares with the load generator: what one of them uses, the other lacks"
    whose = shared if manifest.placement.database_shared else " of its own"
    return f"PostgreSQL has {plural(len(cpus), 'CPU')}{whose}."


def durability(manifest: Manifest) -> str:
    """Return the database's version and durability settings as a text.

    Return an empty text for a run without a database.
    """
    facts = manifest.database
    if facts is None:
        return ""
    settings = facts.settings
    known = [f"{name} {settings[name]}" for name in DURABILITY if name in settings]
    return (
        f"PostgreSQL {facts.version or 'of unknown version'}: "
        f"{', '.join(known) or 'settings not recorded'}."
    )


def rows_equal_answers(trials: pd.DataFrame) -> str:
    """Return a sentence that compares the number of inserted rows with the number of answers.

    The sentence counts the rows in the database after the trials, and the answers whose status was
    2xx. Each such answer should have inserted one row. Return an empty text if no trial counted
    both rows and answers.
    """
    known = trials[trials["rows_inserted"].notna() & trials["inserts"].notna()]
    if known.empty:
        return ""
    apart = (known["rows_inserted"] - known["inserts"]).abs()
    whole = (
        f"{known['rows_inserted'].sum():,.0f} rows were in the database after "
        f"{plural(len(known), 'trial')}"
    )
    if not apart.any():
        return f"{whole}, in each trial as many as answers with 2xx."
    count = int((apart > 0).sum())
    most = apart.max()
    return (
        f"{whole}; in {count} of the trials, up to {most:,.0f} more than answers with 2xx, because "
        "some answers came too late or never."
    )


def caption(tables: Tables, words: str = "") -> str:
    """Return a figure's caption: `words`, and a line that names the run."""
    return "\n".join(filter(None, [words, f"Data: run {tables.manifest.run_id}."]))


def provenance(tables: Tables) -> str:
    """Return a text that says where a run's figures come from.

    The text names run, trials, verdicts, engine, machine and tools. It is written into the metadata
    of each figure's files, and at the end of pages.
    """
    manifest = tables.manifest
    tools = ", ".join(f"{name} {version}" for name, version in manifest.tools.items())
    counts = trials_and_verdicts(tables.trials)
    sentences = (
        f"Run {manifest.run_id}{f' of {manifest.day}' if manifest.day else ''}.",
        *(f"{what}: {words}." for what, words in counts.items()),
        durability(manifest) if tables.has_database() else "",
        f"Engine: {manifest.engine or 'unknown'}{beside_containers(manifest)}.",
        f"Machine: {machine(manifest)}.",
        f"Tools: {tools}." if tools else "",
    )
    return " ".join(filter(None, sentences))


def trials_and_verdicts(trials: pd.DataFrame) -> dict[str, str]:
    """Return the counts of trials and of verdicts in words, by heading."""
    sealed = sealed_trials(trials)
    if sealed.empty:
        return {}
    return {"Trials": trial_counts(trials), "Verdicts": verdict_counts(sealed)}


def nothing(tables: Tables, tool: str) -> str:
    """Return a sentence that says why there is no figure of `tool`'s trials."""
    if len(tables.sealed(tool)) and not len(tables.timed(tool)):
        return (
            f"Every closed load by {tool} was on a share of a core, so its response times include "
            "the server's wait for the next period of its quota."
        )
    return unsealed(tables.of(tool), f"closed-load {tool} trial")


def unsealed(trials: pd.DataFrame, noun: str) -> str:
    """Return a sentence that says why no trial can be shown.

    The reason is that there are no trials, or that no trial is sealed. `noun` is the word for a
    trial in the sentence.
    """
    if trials.empty:
        return f"This run has no {noun}s to show."
    return (
        f"No {noun} of this run was sealed: {plural(len(trials), 'trial')} failed or stopped early."
    )


def printable(name: str) -> str:
    """Return a function's name in which U+FFFD replaces each character that is not printable.

    Without the replacement, a page could not show the character, or the character would hide other
    characters.
    """
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in name)
