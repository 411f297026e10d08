"""Make the chapters of a post: finding, caveat, proof, answer, claims and sources.

All texts are made from the tables of the run. A chapter is empty if the run has no data for it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from runner.model import CALIBRATION
from runner.present.answers import evidence, findings
from runner.present.answers.findings import QuotedRatio, Row
from runner.present.answers.summary import summarize, value_words
from runner.present.blog.story import Story, workload_of
from runner.present.comparison import ratios
from runner.present.comparison.quantity import CPU_PER_REQUEST, THROUGHPUT
from runner.present.comparison.ratios import YARDSTICKS
from runner.present.frames import Case, limits_of
from runner.present.look import captions
from runner.present.look.markup import (
    NOT_LOADED,
    NOT_RANKED,
    Block,
    Bullets,
    Heading,
    Link,
    Links,
    Paragraph,
    TextTable,
)
from runner.present.look.numbers import number, ratio_words
from runner.present.published import outcomes, published_table
from runner.present.published.counterparts import repeats
from runner.present.published.judging import Judged, judge_all
from runner.present.published.sources import addresses, title_of
from runner.present.statistics.inference import FEWEST_TRIALS, Ratio
from runner.present.why import figures as why_figures
from runner.present.why import words as why_words
from runner.verdict.limits import Limit

MOST_SERVERS = 10
"""The table that compares servers has at most this many rows."""
MOST_CLAIMS = 5
"""A post lists at most this many claims one by one."""
MOST_PAIRS = 3
"""A claim's ratios are given for each pair of servers if there are at most this many pairs.

If there are more pairs, one range is given for the ratios of all pairs.
"""
MOST_SENTENCES = 3
"""A post begins with at most this many paragraphs on the result of the run."""
NAME_OF_A_FAMILY = re.compile(r"[^\d]+")
"""Pattern of a CPU's name that has no number and therefore does not say which model the CPU is."""


def chapter(title: str, blocks: Sequence[Block]) -> list[Block]:
    """Return a heading followed by blocks, or an empty list if no block has content."""
    kept = [block for block in blocks if block]
    return [Heading(title), *kept] if kept else []


def headline(story: Story) -> str:
    """Return a title that contrasts the generator's median response time with the probe's median.

    Both medians are from `Story.case`, the trial in which the generator measured its own queue.
    Return an empty text if the run has no such trial.
    """
    case = story.case
    if case is None:
        return ""
    generator_ms = number(float(case.row["latency_p50_ms"]))
    probe_ms = number(float(case.row["probe_p50_ms"]))
    return f"{case.tool} said {generator_ms} ms. A second client waited {probe_ms} ms."


def finding(story: Story) -> list[str]:
    """Return the result of the run in at most `MOST_SENTENCES` paragraphs.

    If a generator measured its own queue, the first paragraph explains this, because the title of
    the post is then about this queue. The next paragraph gives the one ratio that readers may
    quote, with the ratio's interval. If the run has data for neither paragraph, return the first
    findings of the report instead.
    """
    queued = findings.two_clients(story.tables)
    languages = dict(zip(story.sealed["server"], story.sealed["language"], strict=True))
    names = {server: _named_with_language(server, languages[server]) for server in languages}
    ratio = findings.largest_ratio(story.tables, names)
    if ratio and queued:
        ratio = f"A rate describes the server only if the server is its limit. {ratio}"
    sentences = [sentence for sentence in (queued, ratio) if sentence]
    return sentences or list(findings.sentences(story.tables)[:MOST_SENTENCES])


def caveat(story: Story) -> Paragraph:
    """Return a paragraph on what a reader must know before quoting a number of the post."""
    sentences = (
        f"Before you quote this: {_place_words(story)}.",
        _idle_words(story),
        _share_words(story),
        "Ratios may carry over to other machines; rates will not.",
        f"± and [low–high] are 95 % intervals over {_trials_words(story)}.",
    )
    return Paragraph(" ".join(sentence for sentence in sentences if sentence))


def _trials_words(story: Story) -> str:
    """Return the smallest and the largest number of trials of a cell: `6 to 10 trials`."""
    counts = story.sealed.groupby(["server", "load"]).size()
    ends = dict.fromkeys((int(counts.min()), int(counts.max())))
    return f"{' to '.join(map(str, ends))} trials"


def _place_words(story: Story) -> str:
    """Return a phrase that says on which machine the run was measured, and how.

    The phrase says whether servers ran in containers, and whether they shared CPUs with the
    generator.
    """
    manifest = story.public
    facts = manifest.machine
    cpu = facts.cpu_model or "CPU of unknown model"
    if facts.hypervisor and NAME_OF_A_FAMILY.fullmatch(cpu):
        cpu += ", model unknown"
    kind = "a virtual machine" if facts.hypervisor else "a machine"
    engine = "in containers" if manifest.engine == "docker" else "as processes"
    cpus = "had separate CPUs" if manifest.placement.disjoint else "shared CPUs"
    probed = story.sealed["probe_p50_ms"].notna().any()
    names = {"server": "server", "generator": "generator and probe" if probed else "generator"}
    places = [
        f"{name} on CPU{'s' * (len(found) > 1)} {captions.joined([str(cpu) for cpu in found])}"
        for who, name in names.items()
        if (found := manifest.placement.cpus_of(who))
    ]
    if places:
        cpus += f" ({', '.join(places)})"
    return (
        f"measured on {kind} with {captions.plural(facts.cpus or 0, 'CPU')} ({cpu}); servers ran "
        f"{engine}{captions.beside_containers(manifest)}; server and generator {cpus}"
    )


def _idle_words(story: Story) -> str:
    """Return a warning if idle CPUs could sleep in all trials, or else an empty text.

    If idle CPUs could sleep in only some trials, no warning is needed, because the names of the
    loads then say in which trials idle CPUs could sleep.
    """
    asleep = story.sealed["idle"].eq("system").all()
    return "Idle CPUs could fall asleep, and waking one takes time." if asleep else ""


def _share_words(story: Story) -> str:
    """Return a sentence that says under how many loads the servers had only a share of a core.

    Return an empty text if there is no such load.
    """
    loads = story.sealed.drop_duplicates("load")
    narrow = int((loads["share"] < 1).sum())
    if not narrow:
        return ""
    return (
        f"Under {narrow} of {len(loads)} loads each server was restricted to a share of a core, so "
        "that the server was the limit."
    )


def proof(case: Case | None) -> list[Block]:
    """Return paragraphs that compare the generator's report with what a second client measured.

    Both are about the trial `case`. Return an empty list if `case` is None.
    """
    if case is None:
        return []
    sentences = (
        evidence.generator_said(case),
        evidence.range_words(case),
        evidence.probe_saw(case),
        evidence.law_words(case),
    )
    return [Paragraph(sentence) for sentence in sentences if sentence]


# --- the chapters that compare the servers with each other ----------------------------------------


def answer_table(story: Story) -> list[Block]:
    """Return a table that compares servers, and a note that explains the table.

    The table has at most `MOST_SERVERS` rows, one for each server. A row contains the server's rate
    and CPU time per request under one load. One server is the base of the comparison. A further
    column contains the base's rate divided by the rate of the row's server. The last column
    contains the server's median response time under a second load, which offers a fixed rate.

    A server that did not run under the first load has no rate in its row. A server that did not
    sustain the second load has no response time in its row. A server for which both values are
    missing has no row, but the note names this server.

    Return an empty list if the run has no ratio of requests/s.
    """
    load = story.load
    if load is None:
        return []
    table = summarize(story.tables)
    table = table[table["tier"].ne(CALIBRATION) & ~table["server"].isin(story.tables.copies)]
    under_load = table[table["load"].eq(load["load"])].sort_values("rps", ascending=False)
    timed = rows_at_a_sustained_rate(table)
    ahead = _times_ahead(story, str(load["load"]))
    rows = [_server_row(row, timed, ahead) for row in under_load.to_dict("records")]
    others = table[~table["server"].isin(under_load["server"])].drop_duplicates("server")
    is_timed = others["server"].isin(timed)
    others_timed = others[is_timed].to_dict("records")
    rows += [_row_of_another_load(row, timed, ahead) for row in others_timed]
    rows = rows[:MOST_SERVERS]
    phrase = story.phrase_of(str(load["load"]))
    words = [f"Rates and costs: {phrase}{_request_words(load)}."]
    if timed:
        sustained_load = str(next(iter(timed.values()))["load"])
        sustained_words = story.phrase_of(sustained_load)
        words.append(f"Response times: {sustained_words}.")
    if any(NOT_LOADED in row.values() for row in rows):
        words.append(f"“{NOT_LOADED}”: the server did not run under this load.")
    if not is_timed.all():
        absent = captions.joined(list(others.loc[~is_timed, "server"]))
        words.append(f"{absent} ran under other loads only.")
    yardsticks = [name for name in YARDSTICKS if name in set(under_load["server"])]
    if yardsticks:
        words.append(
            f"{captions.joined(yardsticks)} only answers with fixed bodies, so its rate shows what "
            "the machine can do."
        )
    words += [
        f"In figures, {label} is {server} again, which shows the noise."
        for label, server in story.tables.copies.items()
    ]
    if not under_load["server_bound"].all():
        words.append(f"{NOT_RANKED} The server was not the limit: do not rank.")
    return [
        Paragraph(" ".join(words), "note"),
        TextTable(pd.DataFrame(rows), about="Servers compared", name="servers"),
    ]


def _request_words(load: Row) -> str:
    """Return a clause with the request that a load sends: `; each request is GET /count`.

    Return an empty text if the lab does not know the load's workload.
    """
    workload = workload_of(load)
    return f"; each request is {workload.method} {workload.path}" if workload else ""


@dataclass(frozen=True)
class _Ahead:
    """The ratios of the requests/s of the server `base` to those of the other servers.

    `times` maps the name of a server to a ratio as text: the requests/s of `base` divided by the
    requests/s of this server.
    """

    base: str
    times: dict[str, str]

    @property
    def heading(self) -> str:
        """Heading of the column with the base's requests/s divided by each server's requests/s."""
        return f"{self.base}'s rate / this server's"


def _times_ahead(story: Story, load: str) -> _Ahead:
    """Return the server that is the base of the ratios under a load, and these ratios as texts.

    A ratio is the base's requests/s divided by the requests/s of another server.
    """
    known = findings.known_ratios(story.tables)
    pairs = known[known["quantity"].eq(THROUGHPUT.name) & known["load"].eq(load)]
    times = {str(pair["server"]): ratios.words(pair) for pair in pairs.to_dict("records")}
    return _Ahead(str(pairs["base"].iloc[0]), times)


def _server_row(row: Row, timed: dict[str, Row], ahead: _Ahead) -> dict[str, str]:
    """Return a server's row in the table of `answer_table`, as texts by heading.

    `row` is the server's row of the summary under the first load of the table. `timed` contains, by
    server, the rows of the summary that `rows_at_a_sustained_rate` returns.
    """
    rate = value_words(row, "rps")
    return {
        "server": _named_with_language(str(row["server"]), str(row["language"])),
        "requests/s": rate if row["server_bound"] else f"{rate} {NOT_RANKED}",
        ahead.heading: _ratio_cell(row, ahead),
        "CPU ms/request": value_words(row, "cpu_ms_per_request"),
        **_time_at_a_sustained_rate(row, timed),
    }


def _ratio_cell(row: Row, ahead: _Ahead) -> str:
    """Return, as text, the base's requests/s divided by the requests/s of a server.

    Return `1` for the base itself, and `–` if the ratio is unknown.
    """
    server = str(row["server"])
    return "1" if server == ahead.base else ahead.times.get(server, "–")


def _row_of_another_load(row: Row, timed: dict[str, Row], ahead: _Ahead) -> dict[str, str]:
    """Return a row in the table of `answer_table`, as texts by heading.

    The row is about a server that did not run under the first load of the table. `row` is the
    server's row of the summary under another load.
    """
    return {
        "server": _named_with_language(str(row["server"]), str(row["language"])),
        "requests/s": NOT_LOADED,
        ahead.heading: "–",
        "CPU ms/request": "–",
        **_time_at_a_sustained_rate(row, timed),
    }


def _named_with_language(server: str, language: str) -> str:
    """Return a server's name with its language: `axum (Rust)`.

    If the language is unknown, return only the name.
    """
    return server if language == "unknown" else f"{server} ({language})"


def _time_at_a_sustained_rate(row: Row, timed: dict[str, Row]) -> dict[str, str]:
    """Return a server's median response time at a rate that it sustained, as a cell of the table.

    The result maps the heading of the column to the text of the cell. If no server sustained a
    rate, the result is empty, because the table then lacks this column.
    """
    if not timed:
        return {}
    at_the_rate = timed.get(str(row["server"]))
    return {"p50, ms": value_words(at_the_rate, "p50_ms") if at_the_rate else NOT_LOADED}


def rows_at_a_sustained_rate(table: pd.DataFrame) -> dict[str, Row]:
    """Choose the load that the largest number of servers sustained, and return these servers' rows.

    `table` contains rows of the summary. The keys of the result are the names of the servers.
    Return an empty dictionary if no server sustained a load.
    """
    sustained = table[table["limit"].eq(Limit.NONE) & table["p50_ms"].notna()]
    if sustained.empty:
        return {}
    load = sustained["load"].value_counts(sort=False).idxmax()
    of_load = sustained[sustained["load"] == load]
    return {str(row["server"]): row for row in of_load.to_dict("records")}


def why(story: Story) -> list[Block]:
    """Return a paragraph that says why one server answers more requests/s than another.

    On a fixed share of a CPU, a server's CPU time per request decides its rate. So the paragraph
    gives the ratio of the servers' CPU times per request. If the post quotes a ratio of requests/s,
    the paragraph compares the two servers of this ratio, under the load of this ratio. If the post
    quotes no ratio, the paragraph compares all servers under all loads.

    Then the paragraph names the kinds of work on which the more expensive server spends additional
    CPU time, if the run has profiles that show this. Return an empty list if the run shows neither
    a ratio of CPU times nor such kinds of work.
    """
    quoted = findings.quoted_ratio(story.tables)
    costs = _costs_words(story, quoted)
    rule = f"On a fixed share of a CPU, cost per request decides the rate. {costs}" if costs else ""
    said = [rule, _work_words(story, quoted if costs else None)]
    text = " ".join(sentence for sentence in said if sentence)
    return [Paragraph(text)] if text else []


def _costs_words(story: Story, quoted: QuotedRatio | None) -> str:
    """Return a sentence with the ratio of two servers' CPU times per request.

    `quoted` is the ratio of requests/s that the post quotes. The sentence compares the CPU times of
    the same two servers under the same load, which is the load of `answer_table`. If `quoted` is
    None, the sentence compares all servers under all loads. Return an empty text if the CPU times
    per request cannot be compared.
    """
    known = findings.known_ratios(story.tables)
    if quoted is None:
        return findings.over_loads(known, CPU_PER_REQUEST)
    is_pair = known["base"].eq(quoted.pair["base"]) & known["server"].eq(quoted.pair["server"])
    under_load = known[is_pair & known["load"].eq(quoted.trial["load"])]
    costs = findings.over_loads(under_load, CPU_PER_REQUEST)
    return f"Under the load of the table {costs}" if costs else ""


def _work_words(story: Story, quoted: QuotedRatio | None) -> str:
    """Return sentences that say on which kinds of work a server spends additional CPU time.

    The sentences compare the two servers of the ratio that the post quotes. If these two were not
    profiled, the sentences compare the servers with the highest and the lowest CPU time per
    request. The sentences name the load and the servers, with one exception. If the load and the
    servers are those of `quoted`, they are not named, because the sentence before names them.
    Return an empty text if the run has no profiles, or if no difference is significant.
    """
    profiles = why_figures.profiles_of(story.tables)
    if profiles is None:
        return ""
    load = why_figures.load_of_figure(profiles)
    found = why_words.reason(profiles, load, findings.quoted_servers(story.tables))
    trials = why_words.trials_of_load(story.tables, load)
    if found is None or trials.empty:
        return ""
    phrase = findings.load_phrase(trials.iloc[0].to_dict())
    is_named = (
        quoted is not None
        and phrase == findings.load_phrase(quoted.trial)
        and (found.more, found.less) == (quoted.pair["server"], quoted.pair["base"])
    )
    return found.parts if is_named else f"{phrase} {found.words}"


# --- published claims -----------------------------------------------------------------------------


def claims(story: Story) -> list[Block]:
    """Return paragraphs on how many published claims hold, and a list of examples.

    The list has at most `MOST_CLAIMS` claims. Return an empty list if no cell that repeats a
    published scenario has enough trials.
    """
    if not repeats(story.tables, FEWEST_TRIALS):
        return []
    judged = judge_all(story.tables)
    counts = outcomes.count_words([each.direction for each in judged], with_ways=False)
    chosen = _of_every_outcome(judged)
    return [
        Paragraph(counts),
        Paragraph(_medians_words(story)),
        Bullets(tuple(_claim_words(story, each) for each in chosen)),
    ]


def _medians_words(story: Story) -> str:
    """Return a text that compares published median response times with the medians of this run.

    Both are medians under the workload of `Story.case`, in which the generator times its own queue.
    Therefore these medians hardly differ between servers. To show how much the servers themselves
    differ, the text ends with a ratio of medians at a rate that all servers sustained: the slowest
    server's median divided by the fastest server's median. Return an empty text if there is no such
    case, or if fewer than two servers have all these medians.
    """
    timed = rows_at_a_sustained_rate(summarize(story.tables))
    if story.case is None:
        return ""
    medians = [
        row
        for row in published_table.rows(story.tables)
        if row.number.metric == "latency_p50"
        and row.number.scenario == story.case.row["workload"]
        and row.cell.server in timed
        and row.ours.trials
    ]
    published_ms = {row.number.server: row.number.value for row in medians}
    ours_ms = {row.cell.server: row.ours.value for row in medians}
    if len(published_ms) < 2 or len(ours_ms) < 2:
        return ""
    tool = story.case.tool
    users = float(story.case.row["vus"])
    shortest = min(published_ms.values())
    longest = max(published_ms.values())
    apart_pct = 100 * (longest / shortest - 1)
    names = captions.joined(list(published_ms))
    ours = [
        f"{number(ours_ms[name])} ms ({name})"
        for name in sorted(ours_ms, key=lambda each: ours_ms[each])
    ]
    sustained_ms = {name: float(timed[name]["p50_ms"]) for name in ours_ms}
    by_median = sorted(sustained_ms, key=lambda name: sustained_ms[name])
    fastest = by_median[0]
    slowest = by_median[-1]
    return (
        f"The published medians of {names} with {users:,.0f} users, {shortest:.1f} and "
        f"{longest:.1f} ms, differ by {apart_pct:.1f} %. Here the means of {tool}'s medians "
        f"are {captions.joined(ours)}. "
        f"At a rate that all sustain, {slowest}'s median is "
        f"{number(sustained_ms[slowest] / sustained_ms[fastest])} times {fastest}'s."
    )


def _of_every_outcome(judged: Sequence[Judged]) -> list[Judged]:
    """Return at most `MOST_CLAIMS` claims with a ratio, as examples of the different outcomes.

    Claims that this run cannot judge are left out. The other claims are grouped by outcome. Claims
    that fail are further grouped by the direction in which they fail. The groups contribute one
    claim each in turn, until there are enough claims. Within a group, a claim is preferred if no
    claim from the same source has been chosen yet.
    """
    by_direction: dict[str, list[Judged]] = {}
    for each in judged:
        has_ratio = each.measured != "–" and each.claim.range_words != ""
        if each.found.outcome != outcomes.ABSENT and has_ratio:
            by_direction.setdefault(each.direction, []).append(each)
    chosen: list[Judged] = []
    while any(by_direction.values()):
        for alike in filter(None, by_direction.values()):
            if len(chosen) == MOST_CLAIMS:
                return chosen
            sources_so_far = {each.claim.source for each in chosen}
            alike.sort(key=lambda each: each.claim.source in sources_so_far)
            chosen.append(alike.pop(0))
    return chosen


def _claim_words(story: Story, judged: Judged) -> str:
    """Return a claim with its source, its outcome, and the measured ratios."""
    source = title_of(judged.claim.source)
    published = f"“{source}”: " if source else ""
    return (
        f"{published}{judged.claim.says} Here: {_outcome_by_pair(judged)}. Measured: "
        f"{_with_load(story, judged)}; claimed: {judged.claim.range_words}."
        f"{_limit_of_the_published_load(story, judged)}"
    )


def _outcome_by_pair(judged: Judged) -> str:
    """Return the outcome of a claim in words.

    If the claim fails for some pairs of servers and not for others, the words name the pairs:
    `less than claimed for nginx/axum, holds for nginx/gin`.
    """
    outcomes_of: dict[str, set[str]] = {}
    for part in judged.compared:
        outcomes_of.setdefault(part.words.split()[0], set()).add(part.outcome)
    broken = [pair for pair, found in outcomes_of.items() if outcomes.FAILS in found]
    holding = [pair for pair, found in outcomes_of.items() if found == {outcomes.HOLDS}]
    undecided = [pair for pair in outcomes_of if pair not in (*broken, *holding)]
    is_by_pair = all("/" in pair for pair in outcomes_of)
    if judged.found.outcome != outcomes.FAILS or not is_by_pair or not (holding or undecided):
        return judged.outcome_words
    by_outcome = (
        (judged.outcome_words, broken),
        (outcomes.HOLDS, holding),
        (outcomes.CLOSE, undecided),
    )
    said = [f"{words} for {captions.joined(pairs)}" for words, pairs in by_outcome if pairs]
    return ", ".join(said)


def _limit_of_the_published_load(story: Story, judged: Judged) -> str:
    """Return a sentence that says why a claim was judged only on a share of a core.

    The reason is the generator: under the published load on a whole core, it was the limit of all
    trials, so its rates do not show the servers. Return an empty text if the claim was not judged
    on a share of a core, or if this run does not show that the generator was the limit.
    """
    judged_loads = {cell.load for part in judged.compared for cell in part.cells}
    sealed = story.sealed
    used = sealed[sealed["load"].isin(judged_loads)]
    if used.empty or not used["share"].lt(1).all():
        return ""
    users = list(used["vus"].dropna().unique())
    whole = sealed["share"].eq(1) & sealed["workload"].isin(used["workload"])
    whole &= sealed["vus"].isin(users) & sealed["load_model"].eq("closed")
    published = sealed[whole]
    if published.empty or not limits_of(published).eq(Limit.GENERATOR).all():
        return ""
    tool = published["tool"].iloc[0]
    limit = f"On a whole core, {tool} is the limit"
    return f" {limit}, so its rates do not show the servers."


def _with_load(story: Story, judged: Judged) -> str:
    """Return the measured ratios of a claim, followed by the load under which it was judged.

    If the claim was judged under several loads, the number of loads follows instead. Nothing
    follows if the two sides of a comparison had different loads, because the claim itself then
    names these loads.
    """
    measured = _measured_words(judged)
    sides = [{cell.load for cell in part.cells} for part in judged.compared]
    if any(len(loads) != 1 for loads in sides):
        return measured
    loads = set.union(*sides)
    if len(loads) == 1:
        return f"{measured} ({story.phrase_of(loads.pop())})"
    under = f"under {len(loads)} loads"
    counted = measured.removesuffix(" comparisons)")
    if counted != measured:
        return f"{counted} comparisons {under})"
    return f"{measured} ({under})"


def _measured_words(judged: Judged) -> str:
    """Return the ratios that were measured for a claim, in words.

    A single ratio is followed by its interval: `gnet/axum 1.17 [1.03–1.32]`. If the comparisons are
    about at most `MOST_PAIRS` pairs of servers, each pair is given by itself, and several ratios of
    a pair are given as a range: `nginx/axum 1.04 to 1.17 and nginx/gin 1.91`. If there are more
    pairs, one range is given for all ratios. If the claim is too close to tell, the lowest and the
    highest end of the intervals follow, because the intervals are the reason for this outcome. If
    the claim is decided, but a pair is too close to tell, the ends of this pair's intervals follow
    the pair's ratios (see `_pair_words`).
    """
    parts = judged.compared
    pairs = [part.words.split()[0] for part in parts]
    names = [pair if "/" in pair else "" for pair in pairs]
    ratios_found = [part.ratio for part in parts if part.ratio is not None]
    if len(parts) == 1:
        found = ratios_found[0]
        return f"{names[0]} {ratio_words(found.ratio, found.low, found.high)}".strip()
    by_pair: dict[str, list[outcomes.ClaimPart]] = {}
    for name, part in zip(names, parts, strict=True):
        by_pair.setdefault(name, []).append(part)
    said = judged.measured.replace("×", "")
    if len(by_pair) == 1:
        said = f"{names[0]} {said}".strip()
    elif "" not in by_pair and len(by_pair) <= MOST_PAIRS:
        ranges = [_pair_words(name, judged, alike) for name, alike in by_pair.items()]
        said = captions.joined(ranges)
        if len(parts) > len(by_pair):
            said = f"{said} ({len(parts)} comparisons)"
    if judged.found.outcome != outcomes.CLOSE:
        return said
    return f"{said}, {_intervals_words(ratios_found)}"


def _pair_words(name: str, judged: Judged, parts: Sequence[outcomes.ClaimPart]) -> str:
    """Return the range of one pair's ratios for a claim, in words: `nginx/axum 1.04 to 1.17`.

    `name` is the name of the pair of servers, and `parts` are the comparisons about this pair. The
    outcome of a comparison may be too close to tell although the outcome of the whole claim is
    decided. In this case, the lowest and the highest end of the pair's intervals follow the range.
    If the whole claim is too close to tell, no intervals follow here, because `_measured_words`
    adds the intervals of all pairs.
    """
    ratios_found = [part.ratio for part in parts if part.ratio is not None]
    said = f"{name} {_ends_words([found.ratio for found in ratios_found])}"
    is_pair_close = any(part.outcome == outcomes.CLOSE for part in parts)
    if not is_pair_close or judged.found.outcome == outcomes.CLOSE:
        return said
    return f"{said} with {_intervals_words(ratios_found)}"


def _intervals_words(ratios_found: Sequence[Ratio]) -> str:
    """Return the lowest and the highest end of the ratios' intervals in words."""
    low = min(found.low for found in ratios_found)
    high = max(found.high for found in ratios_found)
    return f"intervals from {low:.2f} to {high:.2f}"


def _ends_words(values: Sequence[float]) -> str:
    """Return the lowest and the highest value as text: `1.04 to 1.17`, or `1.91` if they agree."""
    return " to ".join(dict.fromkeys(f"{each:.2f}" for each in (min(values), max(values))))


def links(story: Story, files: Iterable[Link]) -> list[Block]:
    """Return links to the files of this run, and to the sources of published claims."""
    found = list(files)
    if repeats(story.tables, FEWEST_TRIALS):
        sources = [each.claim.source for each in judge_all(story.tables)]
        found += [Link(words, address) for words, address in addresses(sources).items()]
    return [Links(tuple(found))]
