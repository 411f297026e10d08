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
from runner.present import captions, cpu, inserts, latency, pool_sweep, published, ramp, summary, throughput, wrk_matrix
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

DAGGER = (
    f"{NOT_RANKED} A rate of this load, not a rank of this server: the server was not the limit in every trial, or the "
    "rate was set, or the server is there for calibration."
)
COMPLETE = "lab_complete"
"""Key of the output metadata by which a notebook proves that its last cell ran."""


def open_report(run: str) -> Report:
    """Open a run (an id, a path, `latest` or `sample`) for a notebook.

    LabError where papermill injected a parameter that the notebook does not have, and where there is no such
    run; in a notebook a LabError shows as one sentence.
    """
    shell = get_ipython()
    if shell is not None:
        shell.set_custom_exc((LabError,), _show_sentence)
        _check_parameters(shell)
    if not isinstance(run, str):
        raise LabError(f"The parameter run must be text, such as sample or latest, not {run!r}.")
    folder = find_run(run)
    return Report(folder, read_tables(folder), figures_folder(folder))


def _show_sentence(shell: Any, kind: type, error: LabError, _traceback: Any, **_: Any) -> None:
    """Show an error as its sentence; the reply to papermill stays an error."""
    shell._showtraceback(kind, error, [f"{kind.__name__}: {error}"])


def _check_parameters(shell: Any) -> None:
    """Raise LabError for plain values that are not parameters: papermill only warns of them.

    A cell run again in an open notebook finds the reader's own variables, so only a fresh kernel is checked.
    """
    plain = (str, int, float, bool, list, tuple, dict, type(None))
    names = {
        name
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and name not in shell.user_ns_hidden and isinstance(value, plain)
    }
    unknown = sorted(names - {"run"})
    if unknown and not any(isinstance(value, Report) for value in shell.user_ns.values()):
        raise LabError(f"Unknown parameter {', '.join(unknown)}: this notebook has the parameter run only.")


@dataclass(frozen=True)
class Report:
    """An open run in a notebook; each method shows one cell's output."""

    folder: RunFolder
    tables: Tables
    figures: Path
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

    def show(self, name: str) -> None:
        """Draw a figure by its name, save it as PNG and SVG in the run's figures folder, and show it.

        Nothing happens where the run has no load of the kind that the figure is about.
        """
        known = FIGURES | DATABASE_FIGURES | RAMP_FIGURES
        if name not in known:
            raise LabError(f"There is no figure {name!r}: choose from {', '.join(known)}.")
        if not has_loads(self.tables, name):
            return
        figure = known[name](self.tables)
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
        _show_table(pd.DataFrame(manifest_rows(self.tables.manifest)))

    def finish(self) -> None:
        """Say that the notebook reached its end; `notebooks.execute` looks for this."""
        words = f"{captions.plural(len(self.shown), 'figure')} of run {self.tables.manifest['run_id']}."
        display({"text/plain": words}, raw=True, metadata={COMPLETE: list(self.shown)})


def has_loads(tables: Tables, name: str) -> bool:
    """Return whether a run has a load of the kind that a figure is about, as the figures of every run always do."""
    if name in DATABASE_FIGURES:
        return tables.has_database
    return name not in RAMP_FIGURES or not tables.ramps(database=False).empty


def manifest_rows(manifest: dict[str, Any]) -> list[dict[str, str]]:
    """Return the facts of a manifest that a reader asks for, as rows of `what` and `value`."""
    campaign, git = manifest.get("campaign") or {}, manifest.get("git") or {}
    facts, place = manifest.get("machine") or {}, manifest.get("placement") or {}
    dirty = ", with uncommitted changes" if git.get("dirty") else ""
    memory = facts.get("memory_bytes")
    values = {
        "Run": manifest.get("run_id"),
        "Started": manifest.get("started_at"),
        "Campaign": f"{campaign.get('title') or campaign.get('name')} (scale {campaign.get('scale', 1):g})",
        "Seed": manifest.get("seed"),
        "Commit": f"{git['commit']}{dirty}" if git.get("commit") else None,
        "Engine": f"{manifest.get('engine')}: {manifest.get('engine_reason')}",
        "CPUs": ", ".join(f"{who} {place[who]}" for who in ("server", "generator", "database") if place.get(who)),
        "Database": captions.durability(manifest),
        "Machine": captions.machine(manifest),
        "Memory": f"{memory / 2**30:.1f} GiB" if memory else None,
        "System": " ".join(str(facts[key]) for key in ("os", "kernel") if facts.get(key)),
        "CPU governor": facts.get("governor"),
        "Tools": ", ".join(f"{name} {version}" for name, version in (manifest.get("tools") or {}).items()),
    }
    return [{"what": what, "value": str(value)} for what, value in values.items() if value not in (None, "")]


def _show_table(table: pd.DataFrame, words: str = "") -> None:
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
