"""Compose a post about a run, and the report that the post links to.

All texts are made from the tables of the run.
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
from runner.present.answers import findings
from runner.present.blog import chapters
from runner.present.blog.advice import advice
from runner.present.blog.front_matter import PostFacts, Site
from runner.present.blog.repetition import repetition, requests_and_code
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
from runner.present.published.counterparts import repeats
from runner.present.statistics.inference import FEWEST_TRIALS

FOUND_BY = (CPU_PER_REQUEST, THROUGHPUT)
"""Quantities that the title of a post can report.

The title reports the first of these quantities in which servers differ. CPU time per request comes
first, because it can be compared under every load.
"""
MOST_NAMED = 4  # a title with more servers than this gives their number instead of their names
PUBLIC = (
    "schema",
    "run_id",
    "started_at",
    "seed",
    "engine",
    "engine_reason",
    "images",
    "artifacts",
    "compilers",
)
PUBLIC_INSIDE = {
    "campaign": ("name", "title", "servers", "scale"),
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
"""Fields that may be published, for each object inside a manifest.

The fields in `PUBLIC` and the database's settings on durability are published, too. All other
fields stay private, so that a field that is added later is not published by accident.
"""


def allowed(manifest: Manifest) -> dict[str, Any]:
    """Return the part of a manifest that may be published.

    This part contains no paths, no names of users or hosts, and no environment variables.
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
HIGHEST_OF_WIDTH = 1100 / 700
"""A post shows a figure only if its height divided by its width is at most this number.

A figure that is higher is shown only in the report.
"""
PREFERRED = (
    "verdict-two-clients",
    "ratios",
    "wrk-requests",
    "why-categories",
    "wrk-cpu-per-request",
)
"""Names of the figures that a post shows, in order of priority.

The post shows the first `MOST_FIGURES` of these figures that the run has.
"""
OTHERWISE = ("latency-spectrum", "rates-latency", "inserts-over-time")
"""Names of the figures that a post shows if the run has none of the `PREFERRED` figures."""
OF_A_POST = (*PREFERRED, *OTHERWISE)
"""Names of all figures that a post may show."""
CARD = "card.png"
"""File of the picture that other sites show beside a link to the post."""
BETWEEN_SENTENCES = re.compile(r"(?<=\.)\s(?=[A-Z0-9])")


@dataclass(frozen=True, eq=False)
class Post:
    """The content of a post, and of the report that the post links to."""

    title: str
    started_at: str
    description: str
    about: str
    """A text that says what was measured, when, and on which machine."""
    tags: tuple[str, ...]
    blocks: tuple[Block, ...]
    report: tuple[Block, ...]
    text_tables: tuple[TextTable, ...]
    """The tables that are also written to files: those of post and report that have a name.

    The table of published claims is among them even if there is no report.
    """

    @property
    def figures(self) -> int:
        """Number of figures in the post."""
        return sum(isinstance(block, Picture) for block in self.blocks)

    def html(self) -> str:
        """Return the post as an HTML page that needs no other files.

        The page contains the SVG of each figure twice: in a light and in a dark version.
        """
        top = (Heading(self.title, rank=1),)
        body = markup.html([*top, *self.blocks])
        return markup.page(self.title, body, self.description, image=CARD)

    def report_html(self) -> str:
        """Return the report as an HTML page that links to the figures, which are separate files."""
        title = f"Report: {self.title}"
        top = (Heading(title, rank=1), Paragraph(self.about, "lead"))
        linked = [
            replace(block, inside=False) if isinstance(block, Picture) else block
            for block in self.report
        ]
        return markup.page(title, markup.html([*top, *linked]), self.about)

    def markdown(self, site: Site | None = None) -> str:
        """Return the post as Markdown, with front matter for a static site generator.

        The Markdown links to the figures, which are separate files. It has no first-level heading,
        because blogs print the title from the front matter.
        """
        facts = PostFacts(self.title, self.started_at, self.description, self.tags, CARD)
        return "\n".join((facts.written_for(site), "", markup.markdown(self.blocks), ""))


def compose(
    tables: Tables,
    figures: Sequence[Picture],
    commands: Mapping[str, Command] | None = None,
    *,
    with_report: bool = True,
) -> Post:
    """Return the post about a run.

    `figures` are the pictures that the post and its report can show. `commands` are the commands of
    the load generators, by trial. If `with_report` is False, the post has no report, and does not
    link to a report. Raise LabError if no trial is sealed.
    """
    sealed = sealed_trials(tables.trials)
    if sealed.empty:
        raise LabError("No trial of this run was sealed: publish another run.", exit_code=1)
    story = Story(tables, Manifest.of(allowed(tables.manifest)), commands or {})
    database = ["postgresql"] if tables.has_database() else []
    named = [
        *sorted(set(sealed["tool"])),
        *database,
        *sorted(set(sealed["language"])),
        *sorted(set(sealed["server"])),
    ]
    blocks = tuple(_post(story, figures, with_report=with_report))
    report = tuple(_report(tables, sealed, figures)) if with_report else ()
    return Post(
        chapters.headline(story) or _title(tables, sealed),
        tables.manifest.started_at or "",
        chapters.finding(story)[0],
        _description(tables),
        tuple(dict.fromkeys(name.lower() for name in named)),
        blocks,
        report,
        _named_tables((*blocks, *report, *parts.claims_of(tables))),
    )


def _named_tables(blocks: Iterable[Block]) -> tuple[TextTable, ...]:
    """Return the tables that have a name and at least one row.

    If several tables have the same name, return only the last of them.
    """
    named = [block for block in blocks if isinstance(block, TextTable) and block.name and block]
    return tuple({table.name: table for table in named}.values())


def _post(story: Story, figures: Sequence[Picture], *, with_report: bool) -> list[Block]:
    """Return the blocks of the post, with at most `MOST_FIGURES` figures and one table.

    If there is a report, the post links to it, because the report contains all other figures and
    tables.
    """
    pictures = _chosen(story, figures)

    def shown(*names: str) -> list[Block]:
        """Return the named pictures, except those that an earlier chapter already shows."""
        return [pictures.pop(name) for name in names if name in pictures]

    surprise = chapters.proof(story.case)
    report = Link("The whole report", "report.html", ": every load, ratio, verdict and figure")
    claims = Link("Every judged claim", "tables/claims.csv")
    files = (
        *([report] if with_report else []),
        Link("Every sealed trial", "tables/trials.csv", ", as CSV"),
        Link("Every mean", "tables/summary.csv", ", as CSV"),
        *([claims] if repeats(story.tables, FEWEST_TRIALS) else []),
        Link("Provenance", "provenance.json", ": hashes of all inputs"),
    )
    contents: tuple[tuple[str, list[Block]], ...] = (
        ("What surprised", [*surprise[:2], *shown("verdict-two-clients"), *surprise[2:]]),
        (
            "Which server does more",
            [*chapters.answer_table(story), *shown("ratios", "wrk-requests")],
        ),
        ("Why", [*chapters.why(story), *shown("why-categories", "wrk-cpu-per-request")]),
        ("Which published claims hold here", chapters.claims(story)),
        ("What to take", advice(story)),
        ("More figures", [*pictures.values()]),
        ("What was sent, and to what", requests_and_code(story)),
        ("Repeat it", repetition(story)),
        ("Sources and files", chapters.links(story, files)),
    )
    blocks: list[Block] = [
        *(Paragraph(sentence) for sentence in chapters.finding(story)),
        chapters.caveat(story),
    ]
    for title, content in contents:
        blocks += chapters.chapter(title, content)
    return blocks


def _chosen(story: Story, figures: Sequence[Picture]) -> dict[str, Picture]:
    """Return the post's figures by name.

    The caption of each figure is shortened to its first sentence, followed by the figure's source.
    """
    source = f"Data: run {story.tables.manifest.run_id}."
    low = {}
    for figure in figures:
        if figure.height_px <= HIGHEST_OF_WIDTH * figure.width_px:
            first_sentence = BETWEEN_SENTENCES.split(figure.caption)[0]
            low[figure.name] = replace(figure, caption=f"{first_sentence} {source}")
    preferred = [name for name in PREFERRED if name in low]
    names = preferred or [name for name in OTHERWISE if name in low]
    return {name: low[name] for name in names[:MOST_FIGURES]}


def _report(tables: Tables, sealed: pd.DataFrame, figures: Sequence[Picture]) -> list[Block]:
    """Return the blocks of the report: all figures, tables and verdicts, and the machine."""
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
    """Return words that say whether each trial had a new server or the same running server."""
    if manifest.engine == "attached":
        return "a server that was running before the run and is the same in every trial"
    return "a freshly started server"


def _chapters(tables: Tables, sealed: pd.DataFrame) -> Iterator[tuple[str, str, list[Block]]]:
    """Yield the chapters at the beginning of the report.

    Each chapter consists of the title, the name of the figure, and the other content. The name is
    empty if the chapter has no figure. The content is empty if the run lacks the loads that the
    chapter is about.
    """
    yield "The answer", "ratios", list(parts.OF_A_RUN["answer"](tables))
    surprise = chapters.proof(findings.queued_case(tables))
    yield "What surprised", "verdict-two-clients", surprise
    yield "Which published claims hold here", "published-claims", list(parts.claims_of(tables))
    yield (
        "How it was measured",
        "",
        [Bullets(tuple(_methods(tables, sealed)))],
    )
    yield "What is not known", "", list(parts.OF_A_RUN["unknown"](tables))


def _methods(tables: Tables, sealed: pd.DataFrame) -> Iterator[str]:
    """Yield paragraphs that say how the run was measured.

    The first paragraph explains what a trial is. Further paragraphs explain closed loops, open
    loops, the probe and the place of the database, if the run has them.
    """
    models = set(sealed["load_model"])
    yield (
        f"A trial is one load on {started(tables.manifest)}. It is sealed only if the request "
        "counts of all programs agree, and figures and tables contain only sealed trials. Values "
        "are means of the trials, ± the 95 % interval of the mean."
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
            "been answered. Response times are compared only where the rate was sustained and "
            "nobody was at a limit."
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
    """Return the main finding as a title.

    If nothing can be compared, the title says what was measured.
    """
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


def _description(tables: Tables) -> str:
    manifest = tables.manifest
    day = manifest.day
    about = (manifest.campaign.title or manifest.campaign.name or "A run").rstrip(".")
    when = f"Measured on {day}" if day else "Measured"
    return (
        f"{about}. {captions.trial_counts(tables.trials)}. {when} on {captions.machine(manifest)}."
    )
