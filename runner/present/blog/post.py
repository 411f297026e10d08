"""Write a post about a run, as a story: the answer, surprises, published claims, and the method.

All texts are computed.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pandas as pd

from runner.generator_traits import TRAITS
from runner.manifest import Manifest
from runner.model import CALIBRATION, LabError
from runner.present.answers import evidence, findings
from runner.present.comparison import ratios
from runner.present.comparison.quantity import CPU_PER_REQUEST, THROUGHPUT
from runner.present.frames import Tables, sealed_trials
from runner.present.look import captions, markup
from runner.present.look.markup import (
    Block,
    Bullets,
    Downloads,
    Heading,
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


@dataclass(frozen=True, eq=False)
class Post:
    """The content of a post."""

    title: str
    started_at: str
    description: str
    tags: tuple[str, ...]
    blocks: tuple[Block, ...]

    @property
    def text_tables(self) -> tuple[TextTable, ...]:
        """The tables that are written to files."""
        return tuple(
            block for block in self.blocks if isinstance(block, TextTable) and block.name and block
        )

    def html(self) -> str:
        """Return the post as one page without other files; SVGs, light and dark, are embedded."""
        top = (Heading(self.title, rank=1), Paragraph(self.description, "lead"))
        return markup.page(self.title, markup.html([*top, *self.blocks]), self.description)

    def markdown(self) -> str:
        """Return the post as Markdown with front matter; its figures and tables are separate files.

        It has no first-level heading, because blogs print the front matter's title. The front
        matter is YAML, which includes strings of JSON.
        """
        facts = {
            "title": self.title,
            "date": self.started_at,
            "description": self.description,
            "tags": self.tags,
        }
        lines = (
            f"{name}: {json.dumps(value, ensure_ascii=False)}"
            for name, value in facts.items()
            if value
        )
        return "\n".join(("---", *lines, "---", "", markup.markdown(self.blocks), ""))


def compose(tables: Tables, figures: Sequence[Picture]) -> Post:
    """Return the post about a run with these figures; raise LabError if no trial is sealed."""
    sealed = sealed_trials(tables.trials)
    if sealed.empty:
        raise LabError("No trial of this run was sealed: publish another run.", exit_code=1)
    blocks: list[Block] = []
    left = {figure.name: figure for figure in figures}
    for title, name, chapter in _chapters(tables, sealed):
        if any(chapter):
            beside = [left.pop(name)] if name in left else []
            blocks += [Heading(title), *chapter[:1], *beside, *chapter[1:]]
    if left:
        blocks += [Heading("More figures"), *left.values()]
    found = [
        block for part in ("loads", "inserts", "rates") for block in parts.OF_A_RUN[part](tables)
    ]
    lists = [block.sentences for block in found if isinstance(block, Bullets) and not block.warn]
    blocks += [
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
    database = ["postgresql"] if tables.has_database() else []
    named = [
        *sorted(set(sealed["tool"])),
        *database,
        *sorted(set(sealed["language"])),
        *sorted(set(sealed["server"])),
    ]
    tags = tuple(dict.fromkeys(name.lower() for name in named))
    started_at = tables.manifest.started_at or ""
    return Post(_title(tables, sealed), started_at, _description(tables), tags, tuple(blocks))


def started(manifest: Manifest) -> str:
    """Return which server a trial loads: a fresh one, or the user's running one."""
    if manifest.engine == "attached":
        return "a server that was running before the run and is the same in every trial"
    return "a freshly started server"


def _chapters(tables: Tables, sealed: pd.DataFrame) -> Iterator[tuple[str, str, list[Block]]]:
    """Yield the first chapters: title, figure, and the remaining content.

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


def _description(tables: Tables) -> str:
    manifest = tables.manifest
    day = manifest.day
    about = (manifest.campaign.title or manifest.campaign.name or "A run").rstrip(".")
    when = f"Measured on {day}" if day else "Measured"
    return (
        f"{about}. {captions.trial_counts(tables.trials)}. {when} on {captions.machine(manifest)}."
    )
