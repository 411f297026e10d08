"""Compose a post about a run, and the report that it links to.

All texts are computed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pandas as pd

from runner.generator_traits import TRAITS
from runner.manifest import Manifest
from runner.model import CALIBRATION, LabError
from runner.present.answers import evidence, findings
from runner.present.blog import story
from runner.present.blog.front_matter import PostFacts, Site
from runner.present.blog.story import Command, Story
from runner.present.comparison import ratios
from runner.present.comparison.quantity import CPU_PER_REQUEST, THROUGHPUT
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions, markup
from runner.present.look.markup import (
    Block,
    Bullets,
    Downloads,
    Heading,
    Link,
    Paragraph,
    Picture,
    TextTable,
)
from runner.present.look.palette import identities
from runner.present.notebook import parts

FOUND_BY = (CPU_PER_REQUEST, THROUGHPUT)
"""Quantities for the title: the first with a finding is used.

CPU per request comes first, because it is known under every load.
"""
MOST_NAMED = 4  # servers named in a title; if there are more, it says how many
PUBLIC = (
    "schema",
    "run_id",
    "started_at",
    "seed",
    "engine",
    "engine_reason",
    "images",
    "artifacts",
)
PUBLIC_INSIDE = {
    "campaign": ("name", "title", "scale"),
    "git": ("commit", "dirty"),
    "machine": (
        *(
            "cpu_model",
            "cpus",
            "smt_siblings",
            "memory_bytes",
            "kernel",
            "os",
            "hypervisor",
            "governor",
            "turbo",
        ),
        *("cgroup_version", "clock_source"),
    ),
    "tools": (*TRAITS, "nginx", "python"),
    "placement": ("server", "generator", "database", "disjoint", "database_shared"),
    "database": ("version", "image"),
}
"""Fields of a manifest that may be published.

A list of allowed fields keeps fields of later versions from being published by accident.
"""


def allowed(manifest: Manifest) -> dict[str, Any]:
    """Return the publishable part of a manifest.

    It has no path, no name of a user or host, and nothing of the environment.
    """

    def only(facts: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        return {name: facts[name] for name in names if name in facts}

    given = manifest.as_json()
    inside = {
        name: only(given[name], names) for name, names in PUBLIC_INSIDE.items() if given.get(name)
    }
    facts = only(given, PUBLIC) | inside
    if manifest.database is not None and "database" in facts:
        facts["database"]["settings"] = only(manifest.database.settings, captions.DURABILITY)
    return facts


MOST_FIGURES = 4
HIGHEST = 1100 / 700
"""Height of a post's figure at most, in widths: higher ones are linked."""
PREFERRED = ("verdict-two-clients", "ratios", "wrk-requests", "wrk-cpu-per-request")
"""Figures that a post takes, the first of these that the run has."""
OTHERWISE = ("latency-spectrum", "rates-latency", "inserts-answered")
"""Figures of a post about a run that has none of the preferred ones."""
CARD = "card.png"
"""File of the picture that other sites show with a link to the post."""
SENTENCE = re.compile(r"(?<=\.) (?=[A-Z0-9])")


@dataclass(frozen=True, eq=False)
class Post:
    """The content of a post, and the report that it links to."""

    title: str
    started_at: str
    description: str
    about: str
    """What was measured, when, and on which machine."""
    tags: tuple[str, ...]
    blocks: tuple[Block, ...]
    report: tuple[Block, ...]

    @property
    def text_tables(self) -> tuple[TextTable, ...]:
        """The tables that are written to files."""
        return tuple(
            block
            for block in (*self.blocks, *self.report)
            if isinstance(block, TextTable) and block.name and block
        )

    @property
    def figures(self) -> int:
        """Number of figures in the post."""
        return sum(isinstance(block, Picture) for block in self.blocks)

    def html(self) -> str:
        """Return the post as one page without other files; SVGs, light and dark, are embedded."""
        top = (Heading(self.title, rank=1),)
        body = markup.html([*top, *self.blocks])
        return markup.page(self.title, body, self.description, image=CARD)

    def report_html(self) -> str:
        """Return the report as a page whose figures are files beside it."""
        title = f"Report: {self.title}"
        top = (Heading(title, rank=1), Paragraph(self.about, "lead"))
        linked = [
            replace(block, inside=False) if isinstance(block, Picture) else block
            for block in self.report
        ]
        return markup.page(title, markup.html([*top, *linked]), self.about)

    def markdown(self, site: Site | None = None) -> str:
        """Return the post as Markdown with front matter; its figures and tables are separate files.

        It has no first-level heading, because blogs print the front matter's title.
        """
        facts = PostFacts(self.title, self.started_at, self.description, self.tags, CARD)
        return "\n".join((facts.written_for(site), "", markup.markdown(self.blocks), ""))


def compose(
    tables: Tables, figures: Sequence[Picture], commands: Mapping[str, Command] | None = None
) -> Post:
    """Return the post about a run with these figures; raise LabError if no trial is sealed.

    `commands` are those of the generators, by trial.
    """
    sealed = sealed_trials(tables.trials)
    if sealed.empty:
        raise LabError("No trial of this run was sealed: publish another run.", exit_code=1)
    told = Story(tables, Manifest.of(allowed(tables.manifest)), commands or {})
    database = ["postgresql"] if tables.has_database() else []
    named = [
        *sorted(set(sealed["tool"])),
        *database,
        *sorted(set(sealed["language"])),
        *sorted(set(sealed["server"])),
    ]
    return Post(
        story.headline(told) or _title(tables, sealed),
        tables.manifest.started_at or "",
        _hook(told),
        _description(tables),
        tuple(dict.fromkeys(name.lower() for name in named)),
        tuple(_story(told, figures)),
        tuple(_report(tables, sealed, figures)),
    )


def _story(told: Story, figures: Sequence[Picture]) -> list[Block]:
    """Return the post: at most `MOST_FIGURES` figures and one table; the rest is linked."""
    chosen = _chosen(told, figures)

    def shown(*names: str) -> list[Block]:
        return [chosen.pop(name) for name in names if name in chosen]

    surprise = story.proof(told)
    files = (
        Link("The whole report", "report.html", ": every load, ratio, verdict and figure"),
        Link("Every sealed trial", "tables/trials.csv", ", as CSV"),
        Link("Every mean", "tables/summary.csv", ", as CSV"),
        Link("Provenance", "provenance.json", ": hashes of all that this was made of"),
    )
    chapters = (
        ("What surprised", [*surprise[:2], *shown("verdict-two-clients"), *surprise[2:]]),
        (
            "Which server does more",
            [*story.answer_table(told), *shown("ratios", "wrk-requests")],
        ),
        ("Why", [*story.why(told), *shown("wrk-cpu-per-request")]),
        ("What became of what was published", story.claims(told)),
        ("What to take", story.advice(told)),
        ("More figures", [*chosen.values()]),
        ("What was sent, and to what", story.request_and_code(told)),
        ("Repeat it", story.repeating(told)),
        ("Sources and files", story.sources(told, files)),
    )
    blocks = [*story.finding(told), *story.caveat(told)]
    for title, content in chapters:
        blocks += story.chapter(title, content)
    return blocks


def _chosen(told: Story, figures: Sequence[Picture]) -> dict[str, Picture]:
    """Return the post's figures by name, with a caption of one sentence and one of its source."""
    low = {
        figure.name: figure for figure in figures if figure.height_px <= HIGHEST * figure.width_px
    }
    preferred = [name for name in PREFERRED if name in low]
    names = (preferred or [name for name in OTHERWISE if name in low])[:MOST_FIGURES]
    source = f"Data: run {told.tables.manifest.run_id}; how it was measured is in the report."
    return {
        name: replace(low[name], caption=f"{SENTENCE.split(low[name].caption)[0]} {source}")
        for name in names
    }


def _report(tables: Tables, sealed: pd.DataFrame, figures: Sequence[Picture]) -> list[Block]:
    """Return all that is known of a run: answer, figures, tables, verdicts and machine."""
    blocks: list[Block] = []
    left = {figure.name: figure for figure in figures}
    for title, name, content in _chapters(tables, sealed):
        if any(content):
            beside = [left.pop(name)] if name in left else []
            blocks += [Heading(title), *content[:1], *beside, *content[1:]]
    if left:
        blocks += [Heading("More figures"), *left.values()]
    found = [
        block for part in ("loads", "inserts", "rates") for block in parts.OF_A_RUN[part](tables)
    ]
    lists = [block.sentences for block in found if isinstance(block, Bullets) and not block.warn]
    return [
        *blocks,
        Heading("Tables"),
        *(block for block in found if isinstance(block, TextTable)),
        *dict.fromkeys(
            block for block in found if isinstance(block, Paragraph) and block.kind == "note"
        ),
        Heading("Load by load"),
        Bullets(tuple(dict.fromkeys(chain.from_iterable(lists)))),
        Heading("Verdicts"),
        *parts.verdicts(tables),
        Heading("Machine and provenance"),
        *parts.machine(replace(tables, manifest=Manifest.of(allowed(tables.manifest)))),
        Downloads(),
    ]


def started(manifest: Manifest) -> str:
    """Return which server a trial loads: a fresh one, or the user's running one."""
    if manifest.engine == "attached":
        return "a server that was running before the run and is the same in every trial"
    return "a freshly started server"


def _chapters(tables: Tables, sealed: pd.DataFrame) -> Iterator[tuple[str, str, list[Block]]]:
    """Yield the first chapters of the report: title, figure, and the remaining content.

    Chapters on loads that the run lacks are left out.
    """
    case = findings.queued_case(tables)
    surprise = (
        (
            evidence.generator_said(case),
            evidence.range_words(case),
            evidence.probe_saw(case),
            evidence.law_words(case),
        )
        if case
        else ()
    )
    yield "The answer", "ratios", list(parts.OF_A_RUN["answer"](tables))
    yield "What surprised", "verdict-two-clients", [*map(Paragraph, filter(None, surprise))]
    yield "What became of what was published", "published-claims", list(parts.claims_of(tables))
    yield (
        "How it was measured",
        "",
        [Bullets(tuple(_methods(tables, sealed)))],
    )
    yield "What is not known", "", list(parts.OF_A_RUN["unknown"](tables))


def _methods(tables: Tables, sealed: pd.DataFrame) -> Iterator[str]:
    """Yield a paragraph on how each kind of load in the run was measured."""
    models = set(sealed["load_model"])
    yield (
        f"A trial is one load on {started(tables.manifest)}. It is sealed only if the counts of "
        "everything involved agree; no figure and no table here has a value of any other. Values "
        "are means of the trials, ± their 95 % interval."
    )
    if "closed" in models:
        yield (
            "In a closed loop without think time each user sends the next request as soon as the "
            "last is answered, so that the mean response time is the number of users divided by "
            "the throughput (Little's law). Throughput is ranked only where the server was the "
            "limit in every trial."
        )
    if "open" in models:
        yield (
            "In an open loop requests are sent on a schedule, whether or not earlier ones have "
            "been answered. Response times are compared only where the rate was kept and nobody "
            "was at a limit."
        )
    if sealed["probe_requests"].notna().any():
        yield (
            "Beside each load a probe, a second client, sends the same request at a low rate: "
            "where a busy generator measures its own queue, the two differ."
        )
    place = captions.database_place(tables.manifest)
    if tables.has_database() and place:
        yield place


def _title(tables: Tables, sealed: pd.DataFrame) -> str:
    """Return the main finding, or what was measured if nothing can be compared."""
    if found := next(filter(None, (ratios.finding(tables, each) for each in FOUND_BY)), ""):
        return found
    ranked = set(sealed.loc[sealed["tier"] != CALIBRATION, "server"]) or set(sealed["server"])
    ranked -= tables.copies.keys()
    servers = [server for server in identities(tables.trials) if server in ranked]
    who = (
        captions.joined(servers)
        if len(servers) <= MOST_NAMED
        else f"{len(servers)} web API servers"
    )
    behind = ", with PostgreSQL behind them" if sealed["pool_size"].notna().all() else ""
    return f"{who} under {captions.joined(sorted(set(sealed['tool'])))}{behind}"


def _hook(told: Story) -> str:
    """Return the first sentence of the finding, for those who see only a link to the post."""
    first = story.finding(told)[0]
    return SENTENCE.split(first.text)[0] if isinstance(first, Paragraph) else ""


def _description(tables: Tables) -> str:
    manifest = tables.manifest
    day = manifest.day
    about = (manifest.campaign.title or manifest.campaign.name or "A run").rstrip(".")
    when = f"Measured on {day}" if day else "Measured"
    return (
        f"{about}. {captions.trial_counts(tables.trials)}. {when} on {captions.machine(manifest)}."
    )
