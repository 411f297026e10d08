"""What the notebooks open: a run, two runs compared, or the same loads over many runs."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pandas as pd
from pydantic import NonNegativeFloat

from runner.model import OWN_SCRIPT, LabError
from runner.present.answers.evidence import NOTHING
from runner.present.case import Case, choose
from runner.present.chart import Chart, charts
from runner.present.comparison import compare
from runner.present.comparison.conditions import word
from runner.present.comparison.history import findings, history, table, timeline
from runner.present.frames import Tables, read_tables
from runner.present.look import captions
from runner.present.look.content import Block, Bullets, Paragraph, TextTable
from runner.present.look.palette import identities
from runner.present.notebook import parts
from runner.present.notebook.page import Page, opener
from runner.store import figures_folder, find_run


class RunPage(Page):
    """A page about one run, with all parts and figures that notebooks show."""

    tables: Tables  # the tables of the run, for a reader who wants to look further
    case: Case | None  # the trial that the page is about, if any

    def __init__(self, run: str, trial: str | None = None) -> None:
        """Read a run: an id, a path, `latest` or `sample`; an empty `trial` is chosen as `case.choose` does.

        LabError where there is no such run or trial, and for a trial that cannot be compared with the probe.
        """
        folder = find_run(run)
        self.tables = read_tables(folder)
        self.case = None if trial is None else choose(self.tables, trial)
        if self.case is not None and self.case.row["workload"] == OWN_SCRIPT:
            raise LabError(f"In the trial {trial!r} a script did not send what the probe did: nothing can be compared.")
        self.subjects: dict[type, Any] = {Tables: self.tables, Case: self.case}  # what figures are made from
        super().__init__(
            about=f"run {self.tables.manifest['run_id']}",
            figures=figures_folder(folder),
            parts=parts.about(self.tables, parts.OF_A_RUN) | parts.about(self.case, parts.OF_A_TRIAL, NOTHING),
            charts={name: partial(self._chart, name) for name in charts()},
        )

    def _chart(self, name: str) -> Chart | None:
        found = charts()[name]
        subject = self.subjects.get(found.subject)
        is_ready = subject is not None and (found.subject is not Tables or found.needs(self.tables))
        return found.make(subject) if is_ready else None


@opener
def open_report(run: str, trial: str | None = None) -> RunPage:
    """Open a run for a notebook, and for a notebook about one trial that `trial` too, as `RunPage` does."""
    return RunPage(run, trial)


@opener
def open_comparison(run_a: str, run_b: str, force: bool = False, fail_above: NonNegativeFloat | None = None) -> Page:
    """Compare run B with run A for a notebook; both are an id, a path, `latest` or `sample`.

    `force` compares runs of different machines, tools or CPUs; `fail_above` is the % from which on worse is a
    regression. LabError as of `compare.compare_runs`.
    """
    folders = find_run(run_a), find_run(run_b)
    found = compare.compare_runs(*folders, force=force, fail_above_pct=fail_above)
    tables = [read_tables(folder) for folder in folders]
    looks = identities(pd.concat([each.trials for each in tables], ignore_index=True))
    about = Paragraph(f"A is run {found.run_a}, B is run {found.run_b}; ratios are B / A.")
    return Page(
        about=f"runs {found.run_a} and {found.run_b}",
        figures=figures_folder(folders[1]).with_name("--".join(figures_folder(folder).name for folder in folders)),
        parts={
            "answer": lambda: [about, Bullets(tuple(compare.findings(found)))],
            "conditions": partial(_conditions, found, [each.manifest for each in tables]),
            # A table for each load: medians, ratio with interval, what difference was detectable, and verdict.
            "loads": lambda: [TextTable(texts, load) for load, texts in compare.tables(found).items()],
            "left out": partial(_left_out, found),
        },
        charts={"compare-ratios": partial(compare.ratios, found, looks)},
    )


def _conditions(found: compare.RunComparison, manifests: list[dict[str, Any]]) -> Iterator[Block]:
    """Yield what differs between the runs, what was changed, and both manifests."""
    rows = [{"differs": each.what, "A": word(each.a), "B": word(each.b)} for each in found.differences]
    if not rows:
        yield Paragraph("Machine, engine, CPUs and tools are the same in both runs.")
    yield TextTable(pd.DataFrame(rows), "Compared by force: these conditions change numbers by themselves")
    yield Bullets(tuple(compare.provenance(found)))
    sides = dict(zip("AB", map(captions.manifest_facts, manifests), strict=True))
    facts = pd.DataFrame(sides).fillna("–").rename_axis("what").reset_index()
    alike = facts["A"] == facts["B"]
    yield TextTable(facts[~alike], "Not the same in both runs")
    yield TextTable(facts.loc[alike, ["what", "A"]].rename(columns={"A": "value"}), "The same in both runs")


def _left_out(found: compare.RunComparison) -> Iterator[Block]:
    rows = [{"what": cell, "why": why} for why, cells in compare.left_out(found).items() for cell in cells]
    if not rows:
        yield Paragraph("Every cell of either run is in the other one, and could be compared.")
    yield TextTable(pd.DataFrame(rows))


@opener
def open_history(runs: str, force: bool = False, fail_above: NonNegativeFloat | None = None) -> Page:
    """Follow the cells of runs for a notebook; `runs` are ids, paths, `latest` or `sample`, with commas between.

    LabError as of `history.history`.
    """
    folders = [find_run(name.strip()) for name in runs.split(",") if name.strip()]
    found = history(folders, force=force, fail_above_pct=fail_above)
    first, last = figures_folder(folders[0]), figures_folder(folders[-1])
    return Page(
        about=captions.plural(len(folders), "run"),
        figures=last.with_name(f"history-{first.name}--{last.name}"),
        parts={
            "answer": lambda: [Bullets(tuple(findings(found)))],
            "courses": lambda: [TextTable(table(found), about="Medians by run")],
        },
        charts={"history": partial(timeline, found)},
    )
