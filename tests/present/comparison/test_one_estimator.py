"""Tests that all pages use the same estimator.

A printed ratio must be the quotient of the two values that are printed beside it.

A printed value stands for all numbers that are rounded to it: 29,416 may be any number from
29,415.5 to 29,416.5, and 0.0354 any number from 0.03535 to 0.03545. A printed ratio agrees with two
printed values if some quotient of two such numbers is rounded to the ratio.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from figure_checks import changed, tables_of
from varied_runs import varied

from runner.present.answers import findings, summary
from runner.present.comparison import ratios
from runner.present.comparison.quantity import CPU_PER_REQUEST, P50, P99, THROUGHPUT
from runner.present.frames import Tables
from runner.present.look.markup import TextTable
from runner.present.published import published_table
from runner.present.published.judging import judge_all
from runner.present.two_runs import compare

RUNS = ["sample", "all", "seeds", "engines"]
"""The committed runs.

The run `seeds` has too few trials for a ratio of two servers.
"""


def of_runs(*counts: int) -> list[tuple[str, int]]:
    """Return each of RUNS with its count: a test must find at least this many ratios in the run."""
    return list(zip(RUNS, counts, strict=True))


NUMBER = r"\d[\d,]*(?:\.\d+)?"
HALF = rf"(?: ±{NUMBER} %)?"
HEADINGS = {
    THROUGHPUT.noun: "requests/s",
    CPU_PER_REQUEST.noun: "CPU ms/request",
    P50.noun: "p50, ms",
    P99.noun: "p99, ms",
}
"""For each quantity in the table of ratios, the column of the summary that has this quantity."""


class Rounded(NamedTuple):
    """The range of the numbers that are rounded to the same printed text."""

    low: float
    high: float

    def over(self, other: "Rounded") -> "Rounded":
        """Return the range of the quotients of a number in this range and a number in `other`."""
        return Rounded(self.low / other.high, self.high / other.low)

    def overlaps(self, other: "Rounded") -> bool:
        return self.low <= other.high and other.low <= self.high


def rounded(text: str, digits: int = 99) -> Rounded:
    """Return the range of the numbers for which a printed text stands.

    Only the first `digits` digits of the text are significant.
    """
    whole, _, decimals = text.replace(",", "").partition(".")
    step = max(10.0 ** -len(decimals), 10.0 ** (len(whole) - digits))
    value = float(f"{whole}.{decimals or 0}")
    return Rounded(value - step / 2, value + step / 2)


class Quotient(NamedTuple):
    """A printed ratio, the printed numerator and denominator, and where they are printed.

    Only the first `digits` digits of numerator and denominator are significant.
    """

    ratio: str
    above: str
    below: str
    where: str
    digits: int = 99

    @property
    def agrees(self) -> bool:
        values = [rounded(text, self.digits) for text in (self.above, self.below)]
        if bound := re.fullmatch(rf"at (least|most) ×?({NUMBER})", self.ratio):
            possible = values[0].over(values[1])
            end = rounded(bound[2])
            return possible.high >= end.low if bound[1] == "least" else possible.low <= end.high
        said = re.match(rf"×?({NUMBER})(?= \[|$)", self.ratio)
        assert said, f"{self.ratio!r} is no ratio ({self.where})"
        return values[0].over(values[1]).overlaps(rounded(said[1]))


def test_a_quotient_is_held_to_the_last_digit():
    assert rounded("29,416") == (29_415.5, 29_416.5)
    assert rounded("0.0354") == pytest.approx((0.03535, 0.03545))
    assert rounded("40,700", digits=3) == (40_650, 40_750)
    for ratio, agrees in (
        ("2.00 [1.90–2.10]", True),
        ("2.01 [1.90–2.10]", False),
        ("×2.000 [1.9–2.1]", True),
        ("×2.002 [1.9–2.1]", False),
        ("at least 1.99", True),
        ("at least 2.03", False),
        ("at most ×1.9", False),
    ):
        assert Quotient(ratio, "10,000", "5,000", "here").agrees is agrees, ratio


def assert_agree(quotients: list[Quotient], at_least: int) -> None:
    """Check that each ratio is the quotient of its two values, and that there are enough ratios."""
    assert [each for each in quotients if not each.agrees] == []
    assert len(quotients) >= at_least, f"only {len(quotients)} were found"


# --- ratios in tables -----------------------------------------------------------------------------


def of_the_table(tables: Tables) -> Iterator[Quotient]:
    """Yield the ratios of the table that compares one server to the other servers for each load."""
    for row in ratios.table(tables).to_dict("records"):
        if re.match(rf"{NUMBER} \[|at ", row["ratio"]):
            above, below = row["values"].split(" / ")
            yield Quotient(row["ratio"], above, below, f"{row['load']}: {row['pair']}")


@pytest.mark.parametrize(("run", "count"), of_runs(65, 140, 0, 25))
def test_the_table_of_ratios_has_the_means_of_each(run, count):
    assert_agree(list(of_the_table(tables_of(run))), count)


def on_shares(tables: Tables) -> Iterator[Quotient]:
    """Yield the ratios of two rates per core: on a share of a core, and on a whole core.

    The rate per core on a share is the measured rate divided by the share.
    """
    for row in ratios.linearity(tables).to_dict("records"):
        here = rounded(row["requests/s on the share"])
        each = Rounded(*(end / float(row["share"]) for end in here))
        whole = rounded(row["on the whole core"])
        said = re.match(rf"({NUMBER}) \[", row["per core / whole core"])
        assert said, row
        assert each.over(whole).overlaps(rounded(said[1])), row
        on_share = row["requests/s on the share"]
        yield Quotient(said[1], on_share, row["on the whole core"], row["load"])


def test_the_rate_per_core_is_that_of_the_rates_beside_it():
    for run in RUNS:
        assert list(on_shares(tables_of(run))) == [], "no load ranks both on a share and a core"
    sample = tables_of("sample")
    closed = sample.trials["workload"].eq("experiments")
    alike = {"slices": 4.0, "iterations": 3000.0}
    limited = changed(sample, closed, verdict="server-bound", verdict_reason="full", **alike)
    assert len(list(on_shares(limited))) == 3


@pytest.mark.parametrize(("run", "count"), of_runs(60, 60, 9, 12))
def test_published_numbers_have_the_ratio_of_the_means_beside_them(run, count):
    found = []
    for block in published_table.sheets(tables_of(run)):
        for row in block.frame.to_dict("records") if isinstance(block, TextTable) else ():
            ours = re.findall(NUMBER, row["here"])
            quotients = re.findall(NUMBER, row["here / published"])
            assert len(ours) == len(quotients), row
            found += [
                Quotient(ratio, here, row["published"], f"{row['server']}, {row['metric']}")
                for ratio, here in zip(quotients, ours, strict=True)
            ]
    assert_agree(found, count)


# --- ratios in sentences --------------------------------------------------------------------------


def of_an_order(sentence: str) -> Iterator[Quotient]:
    """Yield the ratios in a sentence that gives an order of servers.

    The sentence has the ratio of each server to the server before it, and may have the ratio of the
    last server to the first.
    """
    order = re.sub(r"; (?!one core).*", "", sentence) if " (×" in sentence else ""
    values = []
    for part in re.split(r" [<>≈] ", order):
        if not values:
            if first := re.search(rf" ({NUMBER}){HALF}$", part):
                values.append(first[1])
            continue
        said = re.match(rf"\S+(?: [a-z]+)? ({NUMBER}){HALF} \((×.*?\])\)", part)
        assert said, f"{part!r} in {sentence!r}"
        yield Quotient(said[2], said[1], values[-1], sentence)
        values.append(said[1])
    assert not order or len(values) > 1, sentence
    if extremes := re.search(r"The cost of \S+ is (×.*?\]) that of ", sentence):
        yield Quotient(extremes[1], values[-1], values[0], sentence)


@pytest.mark.parametrize(("run", "count"), of_runs(25, 100, 0, 30))
def test_orders_have_the_ratios_of_the_means_in_them(run, count):
    sentences = summary.findings(tables_of(run))[1:]
    found = [each for sentence in sentences for each in of_an_order(sentence)]
    ratios_said = sum(sentence.count("×") for sentence in sentences)
    assert len(found) == ratios_said, "each ratio is looked at"
    assert_agree(found, count)


def of_rates(sentence: str) -> Iterator[Quotient]:
    """Yield the ratios of rates in a sentence about one load.

    The rates in the sentence have only three significant digits.
    """
    many = re.search(rf"(\S+) answers ({NUMBER}) requests/s, (.* \(\S+/.*), \d+ \w+", sentence)
    if many:
        beside = re.findall(rf"([\w-]+) ({NUMBER}) \((?:\S+/\S+ )?({NUMBER} \[\S+\])\)", many[3])
        assert len(beside) == sentence.count("[") > 1, "each ratio is beside a rate"
        assert f"({many[1]}/{beside[0][0]} " in sentence, "the first ratio names its servers"
        for _, rate, text in beside:
            yield Quotient(text, many[2], rate, sentence, digits=3)
        return
    said = re.search(
        rf"(\S+) answers ({NUMBER}) requests/s(.*?): (.*) \(\d+ \w+\)(?:; nginx.*: {NUMBER})?\.$",
        sentence,
    )
    assert said, sentence
    rates = dict(re.findall(rf"([\w-]+) ({NUMBER})(?=,| and|$)", said[3]))
    ratio = rf"(at least {NUMBER}|at most {NUMBER}|{NUMBER} \[\S+\])"
    leads = re.findall(rf"{ratio}(?: times as many as|\) from) ([\w-]+)", said[4])
    assert {server for _, server in leads} == set(rates) and rates, sentence
    for text, server in leads:
        yield Quotient(text, said[2], rates[server], sentence, digits=3)


def of_times(sentence: str) -> Iterator[Quotient]:
    """Yield the ratios of response times in a sentence: those of the p50, then those of the p99."""
    for part in sentence.split("; the p99 "):
        base = re.search(rf"[\w-]+ is ({NUMBER}) ms", part)
        others = re.findall(rf"of [\w-]+ ({NUMBER}) ms \((.*?) times ", part)
        assert base and others, sentence
        for value, text in others:
            yield Quotient(text, value, base[1], sentence)


@pytest.mark.parametrize(("run", "count"), [("sample", 4), ("all", 3)])
def test_the_answer_has_the_ratios_of_the_means_in_it(run, count):
    sentences = findings.sentences(tables_of(run))
    (times,) = (sentence for sentence in sentences if "which all of them sustain" in sentence)
    found = [*of_rates(sentences[0]), *of_times(times)]
    assert_agree(found, count)


@pytest.mark.parametrize(("run", "count"), of_runs(60, 60, 0, 5))
def test_claims_have_the_ratio_of_the_means_beside_it(run, count):
    found = []
    for part in (part for each in judge_all(tables_of(run)) for part in each.found.parts):
        if part.ratio is not None:
            said = re.fullmatch(
                rf".*?: ({NUMBER}); .*?: ({NUMBER}) \(means of [\d and]+ trials\)", part.values
            )
            assert said, part.values
            found.append(Quotient(part.ratio_words, said[1], said[2], part.words))
    assert_agree(found, count)


def test_two_runs_have_the_ratios_of_the_means_beside_them(tmp_path):
    factors = {("axum", "served_rps"): 1.3, ("gin", "server_cpu_ms_per_request"): 0.8}
    one, two = varied(tmp_path / "one"), varied(tmp_path / "two", factors)
    found = [
        Quotient(row["B/A [95 %]"], *(row[run].split(" ")[0] for run in "BA"), f"{load}: {row}")
        for load, table in compare.tables(compare.compare_runs(one, two)).items()
        for row in table.to_dict("records")
    ]
    assert_agree(found, 50)


# --- values of one cell on several pages ----------------------------------------------------------


def printed_cells(tables: Tables) -> dict[tuple[str, str], dict[Any, Any]]:
    """Return the summary's rows as they are printed, by load and server."""
    rows = summary.printable(summary.summarize(tables)).to_dict("records")
    return {(row["load"], row["server"]): row for row in rows}


@pytest.mark.parametrize(("run", "count"), of_runs(60, 200, 12, 40))
def test_a_cell_has_one_value_in_the_summary_and_beside_ratios(run, count):
    tables = tables_of(run)
    cells = printed_cells(tables)
    seen = 0
    for row in ratios.table(tables).to_dict("records"):
        heading = HEADINGS.get(row["what"], "")
        pairs = zip(row["pair"].split(" / "), row["values"].split(" / "), strict=True)
        for server, value in pairs:
            there = cells[row["load"], server].get(heading, "–").split(" ")[0]
            if "–" not in (there, value):
                assert there == value, f"{row['load']}, {server}: {heading}"
                seen += 1
    assert seen >= count, f"only {seen} were seen"


@pytest.mark.parametrize(("run", "count"), of_runs(20, 20, 9, 4))
def test_a_cell_has_one_value_beside_published_ones(run, count):
    tables = tables_of(run)
    cells = printed_cells(tables)
    seen = 0
    for row in published_table.rows(tables):
        value = published_table.printable([row]).iloc[0]["here"].split(" ")[0]
        there = cells.get((row.cell.load, row.cell.server), {}).get(row.metric, "–").split(" ")[0]
        if "–" not in (there, value):
            assert rounded(value).overlaps(rounded(there)), (row.number, value, there)
            seen += 1
    assert seen >= count, f"only {seen} were seen"
