"""Parts of a post, from the finding to how to repeat it; all texts are computed.

A part without content is empty, so that a post about any run has only what the run can tell.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from runner.manifest import Manifest
from runner.model import CALIBRATION, LabError
from runner.planning.catalog import load_workload
from runner.present.answers import evidence, findings
from runner.present.answers.findings import Row
from runner.present.answers.ranking_text import standing
from runner.present.answers.summary import summarize, value_words
from runner.present.blog.handlers import framework_version, handler
from runner.present.comparison.quantity import CPU_PER_REQUEST, P99, THROUGHPUT, Quantity
from runner.present.comparison.ratios import YARDSTICKS
from runner.present.frames import Case, Tables, sealed_trials
from runner.present.look import captions
from runner.present.look.markup import (
    Block,
    Bullets,
    Code,
    Heading,
    Link,
    Links,
    Paragraph,
    TextTable,
)
from runner.present.look.numbers import number
from runner.present.published import outcomes
from runner.present.published.counterparts import repeats
from runner.present.published.judging import Judged, judge_all
from runner.present.published.sources import addresses
from runner.present.statistics.inference import FEWEST_TRIALS
from runner.verdict.limits import Limit

MOST_ROWS = 10
"""Rows of the post's table."""
MOST_CLAIMS = 6
"""Claims that a post tells one by one."""
MOST_HANDLERS = 2
"""Servers whose code a post shows."""
REPORTS_ONLY = ("--no-usage-report", "--quiet", "--log-output", "--summary", "--system-tags")
"""Beginnings of k6's options that decide only what it reports."""
GENERIC_CPU = re.compile(r"^[^\d]+$")
"""A CPU's name without a number is that of a family."""


@dataclass(frozen=True, eq=False)
class Story:
    """A run as a post tells it.

    `public` is what may be published of its manifest. `commands` are those of the generators, by
    trial.
    """

    tables: Tables
    public: Manifest
    commands: Mapping[str, "Command"]

    @property
    def sealed(self) -> pd.DataFrame:
        """The sealed trials."""
        return sealed_trials(self.tables.trials)

    @property
    def case(self) -> Case | None:
        """The trial in which a generator timed its own queue; None if the run has none."""
        return findings.queued_case(self.tables)

    @property
    def load(self) -> Row | None:
        """A trial of the load by which servers are compared first; None without one."""
        return findings.best_known_load(findings.known_ratios(self.tables), self.sealed)


@dataclass(frozen=True)
class Command:
    """What a trial's generator was started with."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def words(self) -> str:
        """The command as a reader would type it.

        Folders, the address of the server and options that decide only what is reported are left
        out.
        """
        kept = [
            re.sub(r"(?<==)(?:json=)?TRIAL/", "json=", argument)
            for argument in self.arguments
            if not argument.startswith(REPORTS_ONLY)
        ]
        shown = [
            re.sub(r"^https?://[^/]+", "http://server", each) if "://" in each else Path(each).name
            for each in kept
        ]
        scenario = self.environment.get("SCENARIO")
        return " ".join([f"SCENARIO='{scenario}'"] * bool(scenario) + shown)


def finding(story: Story) -> list[Block]:
    """Return the result in at most three sentences."""
    known = findings.known_ratios(story.tables)
    said = [
        findings.two_clients(story.tables),
        findings.one_load(known, story.sealed),
        findings.response_times(story.tables, known),
    ]
    told = [sentence for sentence in said if sentence]
    return [Paragraph(" ".join(told or findings.sentences(story.tables)[:3]))]


def caveat(story: Story) -> list[Block]:
    """Return what a reader must know before quoting a number."""
    manifest = story.public
    facts = manifest.machine
    cpu = facts.cpu_model or "a CPU of unknown model"
    if facts.hypervisor and GENERIC_CPU.match(cpu):
        cpu += " (the hypervisor does not tell the model)"
    kind = "a virtual machine" if facts.hypervisor else "a machine"
    place = f"{kind} with {captions.plural(facts.cpus or 0, 'CPU')}, {cpu}"
    engine = "in containers" if manifest.engine == "docker" else "as processes"
    apart = (
        "server and load generator had CPUs of their own"
        if manifest.placement.disjoint
        else "server and load generator shared CPUs"
    )
    said = [f"**Before you quote this:** measured on {place}; servers ran {engine}, and {apart}."]
    loads = story.sealed.drop_duplicates("load")
    shared = int(((loads["share"] < 1) | (loads["database_share"] < 1)).sum())
    if shared:
        said.append(
            f"In {shared} of {len(loads)} loads the server had a share of a core, so that it and "
            "not the generator was the limit."
        )
    said.append(
        "Ratios may carry over to other machines; rates will not. ± is the 95 % interval over "
        "repeats."
    )
    return [Paragraph(" ".join(said).replace("**", ""))]


def proof(story: Story) -> list[Block]:
    """Return how the generator's report differs from what a second client saw."""
    case = story.case
    if case is None:
        return []
    words = (
        evidence.generator_said(case),
        evidence.range_words(case),
        evidence.probe_saw(case),
        evidence.law_words(case),
    )
    return [Paragraph(sentence) for sentence in words if sentence]


# --- which server does more -----------------------------------------------------------------------


def answer_table(story: Story) -> list[Block]:
    """Return a row for each server: its rate and costs under one load, and times at one rate."""
    table = summarize(story.tables)
    table = table[table["tier"].ne(CALIBRATION) & ~table["server"].isin(story.tables.copies)]
    load = story.load
    if load is None:
        return []
    first = table[table["load"].eq(load["load"])].sort_values("rps", ascending=False)
    timed = _timed_rows(table)
    rows = []
    for row in first.head(MOST_ROWS).to_dict("records"):
        times = timed.get(row["server"], {})
        known = {
            "requests/s": value_words(row, "rps") + ("" if row["server_bound"] else " †"),
            "CPU ms/request": value_words(row, "cpu_ms_per_request"),
        }
        if timed:
            known["p50 at a set rate, ms"] = value_words(times, "p50_ms") if times else "–"
        rows.append({"server": row["server"], "language": row["language"], **known})
    words = [f"{_phrase(load)}."]
    if timed:
        rate = str(next(iter(timed.values()))["load"])
        words.append(f"Response times: {_phrase_of(story, rate)}.")
    if any("†" in str(value) for row in rows for value in row.values()):
        words.append("† The server was not the limit: do not rank.")
    return [
        Paragraph(" ".join(words), "note"),
        TextTable(pd.DataFrame(rows), about="Servers compared", name="servers"),
    ]


def _timed_rows(table: pd.DataFrame) -> dict[str, Row]:
    """Return, by server, rows of the summary at the offered rate that most servers kept."""
    kept = table[table["limit"].eq(Limit.NONE) & table["p50_ms"].notna()]
    if kept.empty:
        return {}
    load = kept["load"].value_counts(sort=False).idxmax()
    return {str(row["server"]): row for row in kept[kept["load"] == load].to_dict("records")}


def _phrase(trial: Row) -> str:
    """Return a trial's load as a phrase: `On half a core, with 100 kept connections`."""
    return findings.load_phrase(trial).rstrip(",")


def _phrase_of(story: Story, load: str) -> str:
    """Return a load as a phrase within a sentence."""
    trial = story.sealed[story.sealed["load"] == load].iloc[0].to_dict()
    words = _phrase(trial)
    return words[0].lower() + words[1:]


def why(story: Story) -> list[Block]:
    """Return what the difference is made of, as far as the run knows."""
    known = findings.known_ratios(story.tables)
    costs = findings.over_loads(known, CPU_PER_REQUEST)
    if not costs:
        return []
    words = (
        "A server at its limit answers as many requests as its CPU time pays for, so the cost of a "
        "request decides the rate. It compares under any load, whatever was the limit."
    )
    return [Paragraph(f"{words} {costs}")]


# --- what was published ---------------------------------------------------------------------------


def claims(story: Story) -> list[Block]:
    """Return the outcomes of the published claims, and those with the clearest result."""
    if not repeats(story.tables, FEWEST_TRIALS):
        return []
    judged = judge_all(story.tables)
    told = [_claim_words(each) for each in _clearest(judged)]
    counts = outcomes.count_words([each.direction for each in judged])
    return [Paragraph(counts), Bullets(tuple(told))]


def _clearest(judged: Sequence[Judged]) -> list[Judged]:
    """Return at most `MOST_CLAIMS` claims with a ratio, in turn by outcome, one a source first."""
    known = [each for each in judged if each.found.outcome != outcomes.ABSENT]
    known = [each for each in known if each.measured != "–" and each.claim.range_words]
    by_direction: dict[str, list[Judged]] = {}
    for each in known:
        by_direction.setdefault(each.direction, []).append(each)
    chosen: list[Judged] = []
    while any(by_direction.values()) and len(chosen) < MOST_CLAIMS:
        for alike in by_direction.values():
            if alike and len(chosen) < MOST_CLAIMS:
                told = {each.claim.source for each in chosen}
                fresh = next((each for each in alike if each.claim.source not in told), alike[0])
                alike.remove(fresh)
                chosen.append(fresh)
    return chosen


def _claim_words(judged: Judged) -> str:
    outcome = judged.outcome_words
    return (
        f"Published: {judged.claim.says} Here: {outcome}. Measured {judged.measured}, claimed "
        f"{judged.claim.range_words}."
    )


# --- what to take ---------------------------------------------------------------------------------


def advice(story: Story) -> list[Block]:
    """Return which server to take for which need."""
    table = summarize(story.tables)
    table = table[
        table["tier"].ne(CALIBRATION)
        & ~table["server"].isin([*story.tables.copies, *YARDSTICKS])
        & (table["trials"] > 0)
    ]
    if table["server"].nunique() < 2:
        return []
    needs = (
        (THROUGHPUT, table[table["server_bound"].astype(bool)], "requests per second count"),
        (CPU_PER_REQUEST, table[table["cost_counts"].astype(bool)], "CPU time is what you pay for"),
        (P99, _at_kept_rates(table, "p99_ms"), "the slowest requests count"),
    )
    said = [_first_of(story.tables, *need) for need in needs]
    return [Bullets(tuple(filter(None, [*said, _of_little_load(story, table)])))]


def _at_kept_rates(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return the rows of rates that nobody was at the limit of, with a value."""
    return table[table["limit"].eq(Limit.NONE) & table[column].notna()]


def _first_of(tables: Tables, quantity: Quantity, rows: pd.DataFrame, need: str) -> str:
    """Return the server that no other was ahead of, under the largest part of its loads.

    Empty if no load shows a difference between servers.
    """
    loads = Counter[str]()
    firsts = Counter[str]()
    for _, alike in rows.groupby("load", sort=False):
        ranking = standing(tables, alike, quantity).ranking if len(alike) > 1 else None
        if ranking is None or not any(pair.differ for pair in ranking.pairs.values()):
            continue
        loads.update(place.name for place in ranking.places)
        firsts.update(place.name for place in ranking.places if place.rank == 1)
    # A server that ran under few loads was beaten under few.
    enough = [name for name in firsts if 2 * loads[name] >= max(loads.values())]
    if not enough:
        return ""
    name = max(enough, key=lambda each: (firsts[each] / loads[each], loads[each], each))
    where = f"its {captions.plural(loads[name], 'load')} on which servers differ"
    if firsts[name] == loads[name]:
        return f"Take {name} if {need}: under none of {where} was another server ahead of it."
    return (
        f"Take {name} if {need}, but measure your own load: under {firsts[name]} of {where} no "
        "other server was ahead of it."
    )


def _of_little_load(story: Story, table: pd.DataFrame) -> str:
    """Return that servers hardly differ at a rate which all kept; empty without such a rate."""
    timed = _timed_rows(table)
    if len(timed) < 2:
        return ""
    ordered = sorted(timed.values(), key=lambda row: float(row["p50_ms"]))
    ends = [
        f"{row['server']} {number(float(row['p50_ms']))} ms" for row in (ordered[0], ordered[-1])
    ]
    return (
        f"Take what your team knows if you are far from any limit: "
        f"{_phrase_of(story, str(ordered[0]['load']))}, one in two requests takes {ends[0]} to "
        f"{ends[1]}."
    )


# --- what was sent, and how to repeat it ----------------------------------------------------------


def request_and_code(story: Story) -> list[Block]:
    """Return the request, the generators' commands, the code that answers, and the versions."""
    manifest = story.tables.manifest
    if manifest.campaign.apis:
        return []
    load = story.load
    rows = [row for row in (load, story.case.row if story.case else None) if row is not None]
    lines = list(dict.fromkeys(_request_words(str(row["workload"])) for row in rows))
    lines += [
        f"{_turns_words(row)}{story.commands[str(row['trial_id'])].words}"
        for row in rows
        if str(row["trial_id"]) in story.commands
    ]
    blocks: list[Block] = []
    if any(lines):
        blocks.append(Code("\n".join(filter(None, lines)), "sh"))
    blocks += _handlers(story, load or (rows[0] if rows else None))
    return [*blocks, *_versions(story)]


def _turns_words(row: Mapping[Any, Any]) -> str:
    """Return, as a comment, how many turns a trial has; empty if it is one load."""
    slices = row["slices"]
    if not slices > 1:
        return ""
    return (
        f"# {slices:.0f} turns of this make a trial: the servers are loaded one after the other\n"
    )


def _request_words(name: str) -> str:
    """Return the request of a workload as a comment; empty if the lab no longer has it."""
    try:
        workload = load_workload(name)
    except LabError:
        return ""
    body = f" {workload.body}" if workload.body else ""
    return f"# {name}: {workload.method} {workload.path}{body}"


def _handlers(story: Story, row: Mapping[Any, Any] | None) -> Iterator[Block]:
    """Yield the code that answers, of the first server of each language."""
    if row is None:
        return
    path = _path_of(str(row["workload"]))
    alike = story.sealed[story.sealed["load"] == row["load"]].drop_duplicates("server")
    shown = 0
    for _, rows in alike.groupby("language", sort=True):
        for each in rows.to_dict("records"):
            found = handler(story.tables.manifest, each["server"], each["language"], path)
            if found is not None and shown < MOST_HANDLERS:
                shown += 1
                yield Paragraph(f"{path} in {found.server}:", "note")
                yield Code(found.code, found.language.lower())
                break


def _path_of(workload: str) -> str:
    try:
        return str(load_workload(workload).path)
    except LabError:
        return ""


def _versions(story: Story) -> list[Block]:
    """Return the versions of frameworks, tools, database and system."""
    manifest = story.public
    of_server = story.sealed.drop_duplicates("server").sort_values("server")
    frameworks = [
        f"{row['framework']} {version}"
        for row in of_server.to_dict("records")
        if (version := framework_version(manifest, row["server"], row["framework"]))
    ]
    tools = [f"{name} {version}" for name, version in manifest.tools.items()]
    stored = captions.durability(manifest) if story.tables.has_database() else ""
    system = " ".join(filter(None, (manifest.machine.os, manifest.machine.kernel)))
    known = {"Frameworks": ", ".join(frameworks), "Tools": ", ".join(tools), "System": system}
    words = "; ".join(f"{what}: {value}" for what, value in known.items() if value)
    return [Paragraph(f"{words}. {stored}".strip(), "note")]


def repeating(story: Story) -> list[Block]:
    """Return the commands that repeat the run, and the run's identity."""
    manifest = story.public
    name = manifest.campaign.name
    identity = f"This is run {manifest.run_id}" + _commit_words(manifest)
    blocks: list[Block] = [Paragraph(f"{identity}, seed {manifest.seed}.")]
    if name and not story.tables.manifest.campaign.apis:
        commands = (
            "make setup",
            f".venv/bin/bench run {name}",
            ".venv/bin/bench publish latest --out post",
        )
        blocks.append(Code("\n".join(commands), "sh"))
    return blocks


def _commit_words(manifest: Manifest) -> str:
    git = manifest.git
    if git is None or not git.commit:
        return ""
    changes = ", with uncommitted changes" if git.dirty else ""
    return f", made at commit {git.commit[:12]}{changes}"


def sources(story: Story, files: Iterable[Link]) -> list[Block]:
    """Return links to what was published, and to the files of this run."""
    links = [*files]
    if repeats(story.tables, FEWEST_TRIALS):
        named = (each.claim.source for each in judge_all(story.tables))
        links += [Link(words, address) for words, address in addresses(named).items()]
    return [Links(tuple(links))]


def command_of(record: Mapping[str, Any]) -> Command:
    """Return the command of a trial's record."""
    measurement = record.get("measurement") or {}
    environment = {str(name): str(value) for name, value in measurement.get("generator_env") or ()}
    return Command(tuple(map(str, measurement.get("argv") or ())), environment)


def headline(story: Story) -> str:
    """Return the finding of two clients as a title; empty without it."""
    case = story.case
    if case is None:
        return ""
    theirs = number(float(case.row["latency_p50_ms"]))
    ours = number(float(case.row["probe_p50_ms"]))
    return f"{case.tool} said {theirs} ms. The server took {ours} ms."


def chapter(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Return blocks below a heading; nothing without a block that has content."""
    kept = [block for block in blocks if block]
    return [Heading(title), *kept] if kept else []
