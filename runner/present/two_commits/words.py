"""Report the comparison of two commits as a sentence, a table, Markdown, or JUnit XML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import pandas as pd

from runner.present.look.markup import to_markdown
from runner.present.look.numbers import number
from runner.present.two_commits.comparing import Kept, Row, outcome_of, sessions_of
from runner.present.two_commits.decision import SMALLEST_FOUND, Change, Outcome

READING = (
    "Changes compare head with base. In each session both commits, and base a second time, "
    "ran side by side and were loaded in turn. `base again` compares base with itself in "
    "the same way, which shows the noise. A difference counts if it is beyond the border "
    "(--fail-above) and the noise, and if further sessions confirmed it."
)
INFORMATION = "–"
"""Text shown instead of an outcome for a quantity that does not affect the outcome of the run."""


@dataclass(frozen=True)
class Compared:
    """The result of a run of two commits: the run's rows and settings, and the commits' names."""

    base: str
    head: str
    rows: tuple[Row, ...]
    fail_above_pct: float
    budget: str
    run_id: str
    kept: Kept | None = None
    """The numbers of trials that kept the objective. It is None if the run has no objective."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of the run."""
        return outcome_of(self.rows, self.kept)


def change_words(ratio: float, *, inverted: bool) -> str:
    """Return a ratio as a change in percent, such as `+4.8 %` or `−0.3 %`.

    Return `–` if the ratio is unknown. `inverted` is True if the ratio is base / head.
    """
    if not 0 < ratio < math.inf:
        return "–"
    change_pct = 100 * ((1 / ratio if inverted else ratio) - 1)
    digits = 1 if abs(change_pct) < 100 else 0
    text = f"{abs(change_pct):,.{digits}f}"
    sign = "" if float(text.replace(",", "")) == 0 else "−" if change_pct < 0 else "+"
    return f"{sign}{text} %"


def _words(change: Change, *, inverted: bool) -> str:
    """Return a change with its interval, such as `+4.8 % [+3.1 % to +6.5 %]`."""
    ends = [change.low, change.high]
    if inverted:
        ends.reverse()
    low, high = (change_words(end, inverted=inverted) for end in ends)
    return f"{change_words(change.ratio, inverted=inverted)} [{low} to {high}]"


def _change(row: Row) -> str:
    """Return the change from base to head in words, or the reason why it is not known."""
    if row.judged is None:
        return row.why
    return _words(row.judged.head, inverted=row.quantity.more_is_better)


def _noise(row: Row) -> str:
    """Return the change from base to the second measurement of base, which is noise, in words."""
    if row.judged is None:
        return INFORMATION
    return _words(row.judged.same, inverted=row.quantity.more_is_better)


def _outcome(row: Row) -> str:
    if row.is_suspected:
        return "suspected, not confirmed"
    return INFORMATION if row.outcome is None else row.outcome.value


def table(found: Compared) -> pd.DataFrame:
    """Return the rows as a table of texts.

    The deciding quantities come first, and quantities that are only shown come last.
    """
    ordered = sorted(found.rows, key=lambda row: (not row.is_deciding, row.is_shown_only))
    rows = [
        {
            "load": row.load,
            "quantity": row.quantity.heading,
            "base": number(row.base),
            "head": number(row.head),
            "change [95 %]": _change(row),
            "base again [95 %]": _noise(row),
            "outcome": _outcome(row),
        }
        for row in ordered
    ]
    names = ("load", "quantity", "base", "head", "change [95 %]", "base again [95 %]", "outcome")
    return pd.DataFrame(rows, columns=names)


def sentence(found: Compared) -> str:
    """Return the outcome in one sentence."""
    outcome = found.outcome
    sessions = sessions_of(found.rows)
    what = f"{found.head} against {found.base}"
    border = f"{found.fail_above_pct:g} %"
    if outcome is Outcome.WORSE and found.kept is not None and found.kept.is_broken:
        return f"{what}: worse, with {found.kept.words}."
    if outcome in (Outcome.WORSE, Outcome.BETTER):
        rows = [row for row in found.rows if row.outcome is outcome]
        named = "; ".join(f"{row.quantity.noun} {_change(row)}" for row in _largest_first(rows))
        return (
            f"{what}: {outcome}, with {named}, beyond the border of {border} and the noise, after "
            f"{sessions} sessions."
        )
    deciding = [row for row in found.rows if row.is_deciding and row.judged is not None]
    if outcome is Outcome.TIE:
        named = "; ".join(f"{row.quantity.noun} {_change(row)}" for row in deciding)
        most = f"{SMALLEST_FOUND * found.fail_above_pct:g} %"
        return f"{what}: a tie (no slowdown of {most}), with {named}, after {sessions} sessions."
    if not deciding:
        reasons = dict.fromkeys(row.why for row in found.rows if row.is_deciding)
        why = "; ".join(reasons) or "too few sessions could be compared"
        return f"{what}: not decided: {why}."
    row = next((row for row in deciding if row.outcome is Outcome.UNDECIDED), deciding[0])
    return (
        f"{what}: not decided within {found.budget}, with {row.quantity.noun} {_change(row)} after "
        f"{sessions} sessions; base again {_noise(row)}. Raise --budget or --fail-above, or use a "
        "calmer machine."
    )


def _largest_first(rows: Sequence[Row]) -> list[Row]:
    """Return at most three rows, with the most important row first.

    Rows of deciding quantities are more important than other rows. Among the rows of deciding
    quantities, and among the other rows, the row with the largest change comes first.
    """

    def rank(row: Row) -> tuple[bool, float]:
        return not row.is_deciding, -abs(math.log(row.judged.head.ratio)) if row.judged else 0.0

    return sorted(rows, key=rank)[:3]


def markdown(found: Compared, remarks: Sequence[str], link: str | None = None) -> str:
    """Return the result as Markdown for a comment on a pull request.

    The comment contains a sentence with the outcome, a table, and `remarks`. `link` is the address
    of a flame graph that shows the difference between the commits, or None if there is no graph.
    """
    shown = table(found)
    parts = [f"**{sentence(found)}**", to_markdown(shown)]
    parts += [] if found.kept is None else [f"Objective {found.kept.words}."]
    parts += [f"> {said}" for said in remarks]
    if link is not None:
        parts.append(f"[Difference of the flame graphs]({link})")
    parts.append(f"<sub>{READING} Run `{found.run_id}`.</sub>")
    return "\n\n".join(parts) + "\n"


def junit(found: Compared) -> str:
    """Return the result as JUnit XML, with a test case for each quantity and for the objective.

    Quantities that are only shown have no test case. A quantity that became worse counts as a
    failure. A deciding quantity without a decision counts as an error if the whole run is
    undecided. Any other quantity without a decision counts as skipped.
    """
    judged = [row for row in found.rows if not row.is_shown_only]
    suite = ElementTree.Element("testsuite", name="bench ab")
    counts = {"failures": 0, "errors": 0, "skipped": 0}
    for row in judged:
        name = f"{row.quantity.noun}, {row.load}"
        case = ElementTree.SubElement(suite, "testcase", classname="bench.ab", name=name)
        said = f"{_change(row)}, base again {_noise(row)}, {_outcome(row)}"
        kind = _junit_kind(row, found.outcome)
        if kind:
            ElementTree.SubElement(case, kind, message=said)
            counts[{"failure": "failures", "error": "errors"}.get(kind, kind)] += 1
        else:
            ElementTree.SubElement(case, "system-out").text = said
    if found.kept is not None:
        name = f"objective {found.kept.objective}"
        case = ElementTree.SubElement(suite, "testcase", classname="bench.ab", name=name)
        if found.kept.is_broken:
            ElementTree.SubElement(case, "failure", message=found.kept.words)
            counts["failures"] += 1
    cases = len(suite)
    suite.attrib |= {"tests": str(cases)} | {key: str(count) for key, count in counts.items()}
    suites = ElementTree.Element("testsuites", name=sentence(found))
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(
        suites, encoding="unicode"
    )


def _junit_kind(row: Row, of_run: Outcome) -> str:
    """Return the name of the XML element that marks a test case as failed, in error, or skipped.

    Return an empty text if the test case passed.
    """
    if row.outcome is Outcome.WORSE:
        return "failure"
    is_open = row.outcome in (None, Outcome.UNDECIDED)
    if of_run is Outcome.UNDECIDED and row.is_deciding and is_open:
        return "error"
    return "skipped" if row.outcome in (None, Outcome.UNDECIDED) else ""
