"""What a notebook calls: open a run, show the answer and the figures, and say that it reached its end."""

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import Image, display

from runner.model import OWN_SCRIPT, LabError
from runner.present.answers import evidence, headline, inserts, little, ratios, summary
from runner.present.answers.caveats import warnings_of
from runner.present.case import Case, choose
from runner.present.chart import Chart, charts, describe, draw, registered
from runner.present.figures import objectives, rates
from runner.present.frames import Tables, is_sealed, read_tables, sealed_trials
from runner.present.look import captions
from runner.present.look.markup import DAGGER
from runner.present.look.style import save
from runner.present.notebook.showing import show_list, show_table, show_text
from runner.present.published.numbers import read_published
from runner.present.published.short import experiments_table, matrix_table
from runner.store import RunFolder, figures_folder, find_run

VERDICT_PARTS: dict[str, tuple[Callable[[Case], str | pd.DataFrame], ...]] = {
    "trial": (evidence.trial_words,),
    "generator": (evidence.generator_said,),
    "probe": (evidence.probe_saw, evidence.percentile_table),
    "law": (little.words,),
    "cpu": (evidence.cpu_words,),
    "servers": (evidence.servers_table, evidence.price_words),
    "verdict": (evidence.verdict_words, evidence.evidence_table),
}
"""What is told of one trial, in words and tables."""

COMPLETE = "lab_complete"
"""Key of the output metadata by which a notebook proves that its last cell ran."""


def open_report(run: str, trial: str | None = None) -> Report:
    """Open a run (an id, a path, `latest` or `sample`) for a notebook, and for one about a trial that `trial` too.

    An empty `trial` is the one in which generator and probe differ most. LabError where papermill injected a parameter
    that the notebook does not have, and where there is no such run or trial; in a notebook a LabError shows as one
    sentence.
    """
    guard_notebook(("run",) if trial is None else ("run", "trial"), Report)
    for name, value in {"run": run, "trial": trial or ""}.items():
        if not isinstance(value, str):
            raise LabError(f"The parameter {name} must be text, not {value!r}.")
    folder = find_run(run)
    tables = read_tables(folder)
    case = None if trial is None else choose(tables, trial)
    if case is not None and case.row["workload"] == OWN_SCRIPT:
        raise LabError(f"In the trial {trial!r} a script did not send what the probe did: nothing can be compared.")
    return Report(folder, tables, figures_folder(folder), case)


def guard_notebook(known: tuple[str, ...], opened: type) -> None:
    """Show a LabError as one sentence in a notebook from now on, and hold its variables against its parameters.

    `opened` is what the notebook's first cell makes: where there is one, the cell is run again.
    """
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((LabError,), _show_sentence)
        _check_parameters(shell, known, opened)


def _show_sentence(shell: Any, kind: type, error: LabError, _traceback: Any, **_: Any) -> None:
    """Show an error as its sentence; the reply to papermill stays an error."""
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])


def _check_parameters(shell: Any, known: tuple[str, ...], opened: type) -> None:
    """Raise LabError for plain values that are not parameters: papermill only warns of them.

    A cell run again in an open notebook finds the reader's own variables, so only a fresh kernel is checked.
    """
    plain = (str, int, float, bool, list, tuple, dict, type(None))
    names = {
        name
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and name not in shell.user_ns_hidden and isinstance(value, plain)
    }
    unknown = sorted(names - set(known))
    if unknown and not any(isinstance(value, opened) for value in shell.user_ns.values()):
        listed = " and ".join([*([", ".join(known[:-1])] if known[1:] else []), known[-1]])
        has = f"parameter{'s' * (len(known) > 1)} {listed}"
        raise LabError(f"Unknown parameter {', '.join(unknown)}: this notebook has the {has} only.")


@dataclass(frozen=True)
class Report:
    """An open run in a notebook; each method shows one cell's output."""

    folder: RunFolder
    tables: Tables
    figures: Path
    case: Case | None = None
    """The trial that the notebook is about."""
    shown: list[str] = field(default_factory=list)

    def answer(self) -> None:
        """Show which server is ahead in what, by how much and how sure, what could not be told, and the warnings."""
        found = headline.headlines(self.tables)
        if not found:
            show_text(headline.NOTHING)
        show_table(headline.printable(found))
        if any("×" in of.margin for of in found):
            show_text(headline.READING)
        show_list((*headline.untold(found), *headline.doubled(self.tables)))
        show_list(tuple(warnings_of(self.tables, summary.summarize(self.tables))), strong=True)

    def loads(self) -> None:
        """Show the medians of every load and server, and what they say in sentences."""
        table = summary.summarize(self.tables)
        for tool in dict.fromkeys(table["tool"]):
            of_tool = table[table["tool"] == tool]
            if tool == "k6":
                show_table(summary.printable(of_tool))
            else:
                show_table(summary.pivot(of_tool, "rps"), f"Requests/s with {tool}, median of the trials")
                show_table(summary.pivot(of_tool, "cpu_ms_per_request"), f"CPU ms per request with {tool}, median")
        show_text(DAGGER)
        show_list(summary.answer(self.tables).findings)

    def ratios(self) -> None:
        """Show every load's servers against each other, and whether shares of a core are linear, where known."""
        found, linear = ratios.table(self.tables), ratios.linearity(self.tables)
        if found.empty:
            show_text("No load has two servers with five trials each, which a ratio with an interval takes.")
            return
        show_table(found)
        show_text(ratios.READING)
        if not linear.empty:
            show_table(linear, "Requests/s per core on a share, beside the whole core")
            show_text(ratios.LINEAR)

    def inserts(self) -> None:
        """Show the answer about inserts into a database, or that the run has none."""
        if not self.tables.has_database:
            show_text(inserts.NO_DATABASE)
            return
        words = inserts.answer(self.tables)
        show_list(words.warnings, strong=True)
        show_list(words.findings)
        show_table(inserts.printable(self.tables), "Loads with a database, median of the trials")
        show_text(DAGGER)

    def rates(self) -> None:
        """Show what open loads at constant rates say: the knees, and the highest rates that keep an objective."""
        if not any(found.needs(self.tables) for found in charts("rates").values()):
            show_text("This run has no load at a constant arrival rate, and no search for an objective.")
            return
        show_list(tuple(summary.answer(self.tables).warnings), strong=True)
        show_list(tuple(objectives.findings(self.tables)))
        show_table(objectives.printable(objectives.answers(self.tables)), "The highest rate that keeps the objective")
        show_table(rates.knee_table(self.tables), "Response times by offered rate, medians of the trials")

    def tell(self, part: str) -> None:
        """Show one of VERDICT_PARTS of the notebook's trial; without a trial the first of them says so."""
        if self.case is None:
            if part == next(iter(VERDICT_PARTS)):
                show_text(evidence.NOTHING)
            return
        for say in VERDICT_PARTS[part]:
            said = say(self.case)
            show_text(said) if isinstance(said, str) else show_table(said)

    def chart(self, name: str) -> Chart | None:
        """Return a figure as a value, whose `frame` holds its points; None where the run has no load for it."""
        found = charts().get(name)
        subject = self.case if found is not None and found.subject is Case else self.tables
        if subject is None:
            return None
        found = registered(name, subject)
        return found.make(subject) if found.subject is Case or found.needs(self.tables) else None

    def show(self, name: str) -> None:
        """Draw a figure by its name, save it as PNG and SVG in the run's figures folder, and show it.

        Nothing happens where the run has no load of the kind that the figure is about.
        """
        chart = self.chart(name)
        if chart is None:
            return
        png, _ = save(draw(chart), self.figures, name)
        self.shown.append(name)
        words = describe(chart) + charts()[name].place
        display(Image(data=png.read_bytes(), format="png", width=700, alt=words))

    def published(self) -> None:
        """Show our numbers beside the published ones, where the run has any of those workloads."""
        known = read_published()
        parts = {
            "GET /count with wrk, requests/s: median [minimum–maximum]": matrix_table(self.tables, known),
            "POST /experiments with k6, median of the trials": experiments_table(self.tables, known),
        }
        if all(table.empty for table in parts.values()):
            show_text("This run has no workload that was published.")
            return
        for words, table in parts.items():
            if not table.empty:
                show_table(table, words)
        show_text(f"{DAGGER} Published numbers were taken on other machines: compare ratios, not rates.")

    def failures(self) -> None:
        """Show the trials that no figure has, with the reason of each."""
        trials = self.tables.trials
        out = trials[~is_sealed(trials)].sort_values("trial_order")
        if out.empty:
            show_text(f"None: all {captions.plural(len(trials), 'trial')} were sealed.")
            return
        columns = {"trial_id": "trial", "status": "status", "error": "reason"}
        show_table(out[list(columns)].rename(columns=columns))

    def verdicts(self) -> None:
        """Show how often each verdict was given, and an example of its reason."""
        sealed = sealed_trials(self.tables.trials)
        groups = sealed.groupby(["tool", "verdict"], sort=True)
        rows = [
            {"tool": tool, "verdict": verdict, "trials": str(len(of)), "for example": of["verdict_reason"].iloc[0]}
            for (tool, verdict), of in groups
        ]
        show_table(pd.DataFrame(rows)) if rows else show_text("No trial was sealed, so there is no verdict.")

    def machine(self) -> None:
        """Show where and how the run was made, from its manifest."""
        show_table(pd.DataFrame(captions.manifest_rows(self.tables.manifest)))

    def finish(self) -> None:
        """Say that the notebook reached its end; `notebooks.execute` looks for this."""
        words = f"{captions.plural(len(self.shown), 'figure')} of run {self.tables.manifest['run_id']}."
        display({"text/plain": words}, raw=True, metadata={COMPLETE: list(self.shown)})
