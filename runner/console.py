"""Terminal output: tables on stdout, progress and notes on stderr.

If the output does not go to a terminal, it is plain text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rich.console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from runner.model import Trial, carried_percent, short_number
from runner.planning.plan import TimeLeft
from runner.served import throughput_rps
from runner.store import TrialRecord

if TYPE_CHECKING:
    from runner.measure.tool_setup import Step

_LEVELS = {"ok": "green", "warning": "yellow", "missing": "red", "failed": "red"}
NOTED_EVERY_S = 30.0
"""Time between two notes about a program that is being set up, if stderr is not a terminal."""
out = rich.console.Console(highlight=False)
err = rich.console.Console(stderr=True, highlight=False, soft_wrap=True)
"""Console on stderr. Like `out`, it uses colours only on a terminal, and not if NO_COLOR is set."""
if not out.is_terminal:
    out.width = 160


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table. Colour each cell whose text is the name of a level, such as `warning`."""
    shown = Table(
        title=escape(title), title_justify="left", box=rich.box.SIMPLE_HEAD, pad_edge=False
    )
    for column in columns:
        shown.add_column(escape(column), overflow="fold")
    for row in rows:
        shown.add_row(*(f"[{_LEVELS[c]}]{c}[/]" if c in _LEVELS else escape(str(c)) for c in row))
    out.print(shown)


def frame(title: str, texts: Any) -> None:
    """Print a pandas table of texts. If it is empty, say on stderr that no trial has a result."""
    if texts.empty:
        note(f"{title}: there is nothing to show, because no trial has a result.")
    else:
        table(title, list(texts), texts.to_numpy())


def note(*lines: str) -> None:
    """Print lines on stderr, so that stdout contains only the result."""
    for line in lines:
        err.print(escape(line))


def error(text: str) -> None:
    """Print an error on stderr.

    Control characters are replaced by `�`, because the text may quote a file that the lab has not
    written. Line feeds are kept.
    """
    shown = "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
    err.print(f"[red]Error:[/] {escape(shown)}")


def rate_words(metrics: Mapping[str, Any], *, is_open: bool) -> Iterator[str]:
    """Yield texts with a trial's rate and, if requests failed, with the share of failed requests.

    The rate counts only successful requests.
    """
    requests = metrics["requests"]
    failed = metrics.get("failed") or 0
    rate_rps = throughput_rps(metrics, is_open=is_open) or 0.0
    yield f"{short_number(rate_rps)} requests/s" + (" with success" if failed else "")
    if failed:
        yield f"{short_number(100 * failed / requests)} % of the requests failed"


def time_words(metrics: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts with the median, p95 and p99 of a trial's response times.

    p95 and p99 are left out if the trial has too few requests for them. In place of p99, the
    highest percentile for which the trial has enough requests is then shown.
    """
    carried = carried_percent(metrics["requests"]) or 0
    columns: dict[float, str] = {50: "latency_p50_ms"}
    columns |= {percent: f"latency_p{percent}_ms" for percent in (95, 99) if percent <= carried}
    if max(columns) < carried < 99:
        columns[carried] = "latency_tail_ms"
    for percent, column in columns.items():
        if (value := metrics.get(column)) is not None:
            yield f"p{percent:g} {short_number(value)} ms"


class FileProgress(Progress):
    """A bar that shows how much of a file has been read. It appears only on a terminal."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=err,
            refresh_per_second=2,
            disable=not err.is_terminal,
        )
        self._files: dict[str, TaskID] = {}

    def read(self, name: str, read_bytes: int, all_bytes: int) -> None:
        """Show how much of a file was read."""
        if name not in self._files:
            self._files[name] = self.add_task(escape(name), total=all_bytes)
        self.update(self._files[name], completed=read_bytes)


class SetupProgress(Progress):
    """Display of the program that is being set up, with the time that the set-up has taken so far.

    Without a terminal, print a line when the set-up of a program begins, and then every 30 s.
    """

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            console=err,
            refresh_per_second=2,
            disable=not err.is_terminal,
        )
        self._task = self.add_task("", total=None, visible=False)
        self._next_s: dict[str, float] = {}

    def show(self, step: Step) -> None:
        """Show the state of a program's set-up."""
        written = f", {step.lines} lines in its log" if step.lines else ""
        text = f"{step.name}: being set up, {step.seconds:.0f} s{written}"
        self.update(self._task, description=text, visible=True)
        if self.disable and step.seconds >= self._next_s.get(step.name, 0.0):
            self._next_s[step.name] = step.seconds + NOTED_EVERY_S
            note(text)

    def done(self, text: str) -> None:
        """Print the result of a program's set-up."""
        self.update(self._task, visible=False)
        note(text)


class TrialProgress(Progress):
    """Live progress of a run. Without a terminal, a line is printed after each trial."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("trial {task.completed:.0f} of {task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[what]}"),
            TextColumn("{task.fields[left]}"),
            console=err,
            # Update only twice a second, because the display uses the generator's CPUs.
            refresh_per_second=2,
            disable=not err.is_terminal,
        )
        self._task = self.add_task("", total=0, what="", left="", visible=False)
        self._clock = TimeLeft(())
        self._total = 0
        self._passed = 0
        """Number of the planned trials that have ended or are no longer needed."""
        self._what = ""

    say = staticmethod(note)  # lines are printed above the progress display

    def plan(self, trials: Sequence[Trial]) -> None:
        """Begin to show the progress of these planned trials."""
        self._clock = TimeLeft(trials)
        self._total = len(trials)
        self._passed = 0
        self._show(total=len(trials), visible=True)

    def begin(self, trial: Trial) -> None:
        """Show that this trial runs now."""
        self._what = f"{trial.cell.server}: {trial.cell.load_id}"
        self.step("")

    def step(self, text: str) -> None:
        """Show the current step of the trial."""
        self._show(what=escape(f"{self._what} {text}".strip()))

    def end(self, trial: Trial, record: TrialRecord) -> None:
        """Count the trial as ended, and print its result.

        With a live display, print nothing about a sealed trial.
        """
        self._clock.end([trial])
        self._passed += 1
        self._show(advance=1)
        if record["status"] != "sealed":
            said = f"{record['status'].upper()}: {record['error']}"
        elif self.disable:
            metrics = record["metrics"]
            said = ", ".join(
                (
                    *rate_words(metrics, is_open=trial.cell.is_open),
                    *time_words(metrics),
                    record["verdict"],
                )
            )
        else:
            return
        place = f"[{self._passed}/{self._total}] {trial.cell.server} {trial.cell.load_id}"
        self.say(f"{place}: {said}; {self._left()}")

    def skip(self, trials: Sequence[Trial]) -> None:
        """Count trials that are no longer needed, as if they had ended."""
        self._clock.skip(trials)
        self._passed += len(trials)
        self._show(advance=len(trials))

    def _show(self, **changes: Any) -> None:
        self.update(self._task, left=self._left(), **changes)

    def _left(self) -> str:
        seconds = int(self._clock.takes_s())
        return f"about {seconds // 60}:{seconds % 60:02d} left"
