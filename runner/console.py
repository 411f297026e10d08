"""What the terminal shows: tables on stdout, progress and notes on stderr; plain text where it is no terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from runner.model import Trial, number
from runner.planning.plan import TimeLeft

_LEVELS = {"ok": "green", "warning": "yellow", "missing": "red", "failed": "red"}


class Console:
    """Prints for people; colours only on a terminal (rich decides, and honours NO_COLOR)."""

    def __init__(self) -> None:
        self.out = rich.console.Console(highlight=False, soft_wrap=False)
        self.err = rich.console.Console(stderr=True, highlight=False, soft_wrap=True)
        if not self.out.is_terminal:
            self.out.width = 160

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a table; a cell that names a level is coloured."""
        table = Table(title=escape(title), title_justify="left", box=rich.box.SIMPLE_HEAD, pad_edge=False)
        for column in columns:
            table.add_column(escape(column), overflow="fold")
        for row in rows:
            table.add_row(*(f"[{_LEVELS[c]}]{c}[/]" if c in _LEVELS else escape(str(c)) for c in row))
        self.out.print(table)

    def rows(self, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Print a list of like mappings as a table."""
        if not rows:
            self.note(f"{title}: no trial came to a result.")
            return
        columns = list(rows[0])
        self.table(title, columns, [["" if row[c] is None else row[c] for c in columns] for row in rows])

    def note(self, text: str) -> None:
        """Print a line beside the result."""
        self.err.print(escape(text))

    def error(self, text: str) -> None:
        """Print an error as one sentence; control characters, as files of others may have, do not reach a terminal."""
        shown = "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)
        self.err.print(f"[red]Error:[/] {escape(shown)}")

    def errors(self, sentences: Sequence[str]) -> None:
        """Print the first ten errors, and how many there are beyond."""
        for sentence in sentences[:10]:
            self.error(sentence)
        if len(sentences) > 10:
            self.note(f"… and {len(sentences) - 10} more: see the trial.json files.")


class TrialProgress(Progress):
    """Live progress on a terminal; one line per trial elsewhere."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            TextColumn("trial {task.completed:.0f} of {task.total:.0f}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[what]}"),
            TextColumn("{task.fields[left]}"),
            console=console.err,
            # The display shares the generator's CPUs: twice a second is enough.
            refresh_per_second=2,
            disable=not console.err.is_terminal,
        )
        self._note = console.note
        self._task = self.add_task("", total=0, what="", left="", visible=False)
        self._clock, self._total, self._what = TimeLeft(()), 0, ""

    def say(self, text: str) -> None:
        """Print a line above the progress."""
        self._note(text)

    def plan(self, trials: Sequence[Trial]) -> None:
        """Begin to count."""
        self._clock, self._total = TimeLeft(trials), len(trials)
        self._show(total=len(trials), visible=True)

    def begin(self, trial: Trial) -> None:
        """Show which trial runs."""
        self._what = f"{trial.cell.server}: {trial.cell.load_id}"
        self.step("")

    def step(self, text: str) -> None:
        """Show what the trial is doing."""
        self._show(what=escape(f"{self._what} {text}".strip()))

    def end(self, trial: Trial, record: dict[str, Any]) -> None:
        """Count the trial, and say what came out where no live display does."""
        self._clock.end([trial])
        self._show(advance=1)
        if record["status"] != "sealed":
            said = f"{record['status'].upper()}: {record['error']}"
        elif self.disable:
            times = {name: record["metrics"].get(f"latency_{name}_ms") for name in ("p50", "p99")}
            known = [f"{name} {number(value)} ms" for name, value in times.items() if value is not None]
            said = ", ".join((f"{record['metrics']['rps']:,.0f} requests/s", *known, record["verdict"]))
        else:
            return
        place = f"[{trial.order}/{self._total}] {trial.cell.server} {trial.cell.load_id}"
        self.say(f"{place}: {said}; {self._left()}")

    def skip(self, trials: Sequence[Trial]) -> None:
        """Count trials that are not needed any more."""
        self._clock.skip(trials)
        self._show(advance=len(trials))

    def _show(self, **changes: Any) -> None:
        self.update(self._task, left=self._left(), **changes)

    def _left(self) -> str:
        seconds = int(self._clock.takes_s())
        return f"about {seconds // 60}:{seconds % 60:02d} left"
