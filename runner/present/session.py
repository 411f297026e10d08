"""What a notebook calls: open a run, show the answer and the figures, and say that it reached its end."""

# mypy: allow-untyped-calls
# IPython ships without type annotations of its own.

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.core.getipython import get_ipython
from IPython.display import Image, display
from matplotlib.figure import Figure

from runner.model import LabError
from runner.present import (
    captions,
    clients,
    cpu,
    evidence,
    inserts,
    latency,
    little,
    objectives,
    pool_sweep,
    published,
    ramp,
    rates,
    summary,
    throughput,
    wrk_matrix,
)
from runner.present.case import Case, choose, probed
from runner.present.frames import Tables, read_tables
from runner.present.markup import NOT_RANKED, to_html, to_markdown
from runner.present.style import save
from runner.store import RunFolder, figures_folder, find_run

FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "latency-spectrum": latency.spectrum,
    "latency-density": latency.density,
    "requests-over-time": throughput.over_time,
    "cpu-over-time": cpu.over_time,
    "cpu-peaks": cpu.peaks,
    "wrk-requests": wrk_matrix.requests,
    "wrk-cpu-per-request": wrk_matrix.cpu_per_request,
}
"""Name of a figure of every run, as in its files -> the function that draws it."""
DATABASE_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "inserts-answered": ramp.inserts_answered,
    "inserts-latency-p90": ramp.inserts_p90,
    "inserts-server-cpu": ramp.inserts_server_cpu,
    "inserts-server-memory": ramp.inserts_memory,
    "inserts-pool-in-use": ramp.pool_in_use,
    "inserts-database-cpu": ramp.database_cpu,
    "inserts-rows": ramp.rows_inserted,
    "inserts-by-pool-size": pool_sweep.rate,
    "inserts-latency-by-pool-size": pool_sweep.p99,
}
"""Figures of runs that have a database behind their servers."""
RAMP_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "static-answered": ramp.static_answered,
    "static-latency-p90": ramp.static_p90,
    "static-server-cpu": ramp.static_server_cpu,
}
"""Figures of runs that have a ramp of arrival rates without a database."""
RATES_FIGURES: dict[str, Callable[[Tables], Figure]] = {
    "rates-latency": rates.latency,
    "rates-objective": objectives.kept,
}
"""Figures of runs that have loads at constant arrival rates, or searches for the highest that keeps an objective."""
VERDICT_FIGURES: dict[str, Callable[[Case], Figure]] = {
    "verdict-two-clients": clients.two_clients,
    "verdict-cpu": clients.cpu,
}
"""Figures of one trial."""
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

DAGGER = (
    f"{NOT_RANKED} A rate of this load, not a rank of this server: the server was not the limit in every trial, or the "
    "rate was set, or the server is there for calibration."
)
COMPLETE = "lab_complete"
"""Key of the output metadata by which a notebook proves that its last cell ran."""


def open_report(run: str, trial: str | None = None) -> Report:
    """Open a run (an id, a path, `latest` or `sample`) for a notebook, and for one about a trial that `trial` too.

    An empty `trial` is the one in which generator and probe differ most. LabError where papermill injected a parameter
    that the notebook does not have, and where there is no such run or trial; in a notebook a LabError shows as one
    sentence.
    """
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((LabError,), _show_sentence)
        _check_parameters(shell, ("run",) if trial is None else ("run", "trial"))
    for name, value in {"run": run, "trial": trial or ""}.items():
        if not isinstance(value, str):
            raise LabError(f"The parameter {name} must be text, not {value!r}.")
    folder = find_run(run)
    tables = read_tables(folder)
    return Report(folder, tables, figures_folder(folder), None if trial is None else choose(tables, trial))


def _show_sentence(shell: Any, kind: type, error: LabError, _traceback: Any, **_: Any) -> None:
    """Show an error as its sentence; the reply to papermill stays an error."""
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])


def _check_parameters(shell: Any, known: tuple[str, ...]) -> None:
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
    if unknown and not any(isinstance(value, Report) for value in shell.user_ns.values()):
        has = f"parameter{'s' * (len(known) > 1)} {' and '.join(known)}"
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
        """Show the warnings, the summary and the computed sentences."""
        words, table = summary.answer(self.tables), summary.summarize(self.tables)
        _show_list(words.warnings, strong=True)
        for tool in dict.fromkeys(table["tool"]):
            of_tool = table[table["tool"] == tool]
            if tool == "k6":
                _show_table(summary.printable(of_tool))
            else:
                _show_table(summary.pivot(of_tool, "rps"), f"Requests/s with {tool}, median of the trials")
                _show_table(summary.pivot(of_tool, "cpu_ms_per_request"), f"CPU ms per request with {tool}, median")
        _show_text(DAGGER)
        _show_list(words.findings)

    def inserts(self) -> None:
        """Show the answer about inserts into a database, or that the run has none."""
        if not self.tables.has_database:
            _show_text(inserts.NO_DATABASE)
            return
        words = inserts.answer(self.tables)
        _show_list(words.warnings, strong=True)
        _show_list(words.findings)
        _show_table(inserts.printable(self.tables), "Loads with a database, median of the trials")
        _show_text(DAGGER)

    def rates(self) -> None:
        """Show what open loads at constant rates say: the knees, and the highest rates that keep an objective."""
        if not any(has_loads(self.tables, name) for name in RATES_FIGURES):
            _show_text("This run has no load at a constant arrival rate, and no search for an objective.")
            return
        _show_list(tuple(summary.answer(self.tables).warnings), strong=True)
        _show_list(tuple(objectives.findings(self.tables)))
        _show_table(objectives.printable(objectives.answers(self.tables)), "The highest rate that keeps the objective")
        _show_table(rates.knee_table(self.tables), "Response times by offered rate, medians of the trials")

    def tell(self, part: str) -> None:
        """Show one of VERDICT_PARTS of the notebook's trial; without a trial the first of them says so."""
        if self.case is None:
            if part == next(iter(VERDICT_PARTS)):
                _show_text(evidence.NOTHING)
            return
        for say in VERDICT_PARTS[part]:
            said = say(self.case)
            _show_text(said) if isinstance(said, str) else _show_table(said)

    def show(self, name: str) -> None:
        """Draw a figure by its name, save it as PNG and SVG in the run's figures folder, and show it.

        Nothing happens where the run has no load of the kind that the figure is about.
        """
        of_run = FIGURES | DATABASE_FIGURES | RAMP_FIGURES | RATES_FIGURES
        if name not in of_run | VERDICT_FIGURES:
            raise LabError(f"There is no figure {name!r}: choose from {', '.join(of_run | VERDICT_FIGURES)}.")
        if name in VERDICT_FIGURES:
            if self.case is not None:
                self._display(name, VERDICT_FIGURES[name](self.case))
        elif has_loads(self.tables, name):
            self._display(name, of_run[name](self.tables))

    def _display(self, name: str, figure: Figure) -> None:
        png, _ = save(figure, self.figures, name)
        self.shown.append(name)
        alt = " ".join(text.get_text().replace("\n", " ") for text in figure.texts[:3])
        display(Image(data=png.read_bytes(), format="png", width=700, alt=alt))

    def published(self) -> None:
        """Show our numbers beside the published ones, where the run has any of those workloads."""
        known = published.read_published()
        parts = {
            "GET /count with wrk, requests/s: median [minimum–maximum]": published.matrix_table(self.tables, known),
            "POST /experiments with k6, median of the trials": published.experiments_table(self.tables, known),
        }
        if all(table.empty for table in parts.values()):
            _show_text("This run has no workload that was published.")
            return
        for words, table in parts.items():
            if not table.empty:
                _show_table(table, words)
        _show_text(f"{DAGGER} Published numbers were taken on other machines: compare ratios, not rates.")

    def failures(self) -> None:
        """Show the trials that no figure has, with the reason of each."""
        trials = self.tables.trials
        out = trials[trials["status"] != "sealed"].sort_values("trial_order")
        if out.empty:
            _show_text(f"None: all {captions.plural(len(trials), 'trial')} were sealed.")
            return
        columns = {"trial_id": "trial", "status": "status", "error": "reason"}
        _show_table(out[list(columns)].rename(columns=columns))

    def verdicts(self) -> None:
        """Show how often each verdict was given, and an example of its reason."""
        sealed = self.tables.trials[self.tables.trials["status"] == "sealed"]
        groups = sealed.groupby(["tool", "verdict"], sort=True)
        rows = [
            {"tool": tool, "verdict": verdict, "trials": str(len(of)), "for example": of["verdict_reason"].iloc[0]}
            for (tool, verdict), of in groups
        ]
        _show_table(pd.DataFrame(rows)) if rows else _show_text("No trial was sealed, so there is no verdict.")

    def machine(self) -> None:
        """Show where and how the run was made, from its manifest."""
        _show_table(pd.DataFrame(captions.manifest_rows(self.tables.manifest)))

    def finish(self) -> None:
        """Say that the notebook reached its end; `notebooks.execute` looks for this."""
        words = f"{captions.plural(len(self.shown), 'figure')} of run {self.tables.manifest['run_id']}."
        display({"text/plain": words}, raw=True, metadata={COMPLETE: list(self.shown)})


def has_loads(tables: Tables, name: str) -> bool:
    """Return whether a run has a load of the kind that a figure is about, as the figures of every run always do."""
    if name in DATABASE_FIGURES:
        return tables.has_database
    if name in RAMP_FIGURES:
        return not tables.ramps(database=False).empty
    if name in RATES_FIGURES:
        return not (tables.sweeps() if name == "rates-latency" else tables.searches()).empty
    return name not in VERDICT_FIGURES or probed(tables)


def _show_table(table: pd.DataFrame, words: str = "") -> None:
    if table.empty:
        return
    lead = f"<p><strong>{escape(words)}</strong></p>\n" if words else ""
    plain = f"**{words}**\n\n" if words else ""
    markdown = plain + to_markdown(table)
    display({"text/html": lead + to_html(table), "text/markdown": markdown, "text/plain": markdown}, raw=True)


def _show_text(words: str) -> None:
    display({"text/html": f"<p>{escape(words)}</p>", "text/plain": words}, raw=True)


def _show_list(sentences: tuple[str, ...], strong: bool = False) -> None:
    if not sentences:
        return
    items = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in sentences)
    style = ' class="warnings" style="font-weight:bold"' if strong else ""
    plain = "\n".join(f"- {sentence}" for sentence in sentences)
    display({"text/html": f"<ul{style}>\n{items}</ul>", "text/plain": plain}, raw=True)
