"""Tests of the documents: their tables must agree with the program and the tests."""

import re

import fault_table
import pandas as pd
import pyarrow.parquet as pq
import pytest
from built import ROOT
from figure_checks import tables_of
from scipy.stats import gmean

from runner.columns import columns, schema_of
from runner.commands.machine import servers_table
from runner.planning.catalog import load_server, server_names
from runner.present.comparison import ratios
from runner.present.frames import choose
from runner.present.look.numbers import number

COMMITTED_RUNS = ROOT / "docs" / "committed-runs.md"


@pytest.mark.parametrize(
    ("page", "part", "option"),
    [
        ("docs/servers.md", "servers", "--markdown"),
        ("README.md", "claims", "--claims"),
        ("docs/data.md", "columns", "--columns"),
        ("docs/method.md", "causes", "--causes"),
        ("docs/method.md", "invariants", "--invariants"),
        ("docs/method.md", "outcomes", "--outcomes"),
        ("docs/commands.md", "campaigns", "--campaigns"),
        ("docs/commands.md", "commands", "--commands"),
    ],
)
def test_what_is_written_by_make_readme_has_not_drifted(page, part, option, bench):
    code, out, _ = bench(option, command="list")
    assert code == 0
    found = re.search(
        rf"^<!-- {part}: begin -->\n(.*)^<!-- {part}: end -->$",
        (ROOT / page).read_text(),
        re.S | re.M,
    )
    assert found, f"{page} lacks the markers of {part}"
    assert found.group(1) == out, "run `make readme`"


def test_the_table_of_the_published_size_is_that_of_its_run():
    trials = pd.read_parquet(ROOT / "data" / "seeds" / "tables" / "trials.parquet")
    trials = trials[trials["status"] == "sealed"]
    assert trials[["iterations", "requests", "vus"]].drop_duplicates().to_numpy().tolist() == [
        [1e6, 1e6, 3000]
    ]
    rows = []
    for (workload, server), alike in trials.groupby(["workload", "server"]):
        means = alike[["rps", "latency_p50_ms", "probe_p50_ms", "server_cpu_ms_per_request"]].apply(
            gmean
        )
        md5 = "with" if workload.endswith("md5") else "without"
        rows.append(f"| {server} | {md5} | {' | '.join(map(number, means))} |")
        assert len(alike) == 3
    assert "\n".join(rows) in COMMITTED_RUNS.read_text()


def test_the_table_of_containers_is_that_of_its_run():
    """docs/committed-runs.md compares axum in a container with axum as a process.

    The ratios on this page must be those that a report of the committed run `engines` shows.
    """
    pairs = ratios.frame(tables_of("engines"))
    pairs = pairs[pairs["base"].eq("axum-process") & pairs["server"].eq("axum")]
    text = COMMITTED_RUNS.read_text()
    table = text[text.index("| load | quantity | ratio |") :]
    shown = re.findall(r"\| (\d\.\d\d \[\d\.\d\d–\d\.\d\d\]) \|", table)
    first_two = pairs[pairs["quantity"] == "served_rps"]
    at_a_rate = pairs[pairs["load"].str.startswith("rates")].set_index("quantity")
    last_two = at_a_rate.loc[["server_cpu_ms_per_request", "latency_p50_ms"]]
    rows = [*first_two.to_dict("records"), *last_two.to_dict("records")]
    assert shown == [ratios.words(row) for row in rows]


@pytest.mark.parametrize("run", ["sample", "all", "seeds", "engines"])
def test_the_committed_tables_have_the_documented_columns(run):
    folder = ROOT / "data" / run / "tables"
    files = {
        table: folder / f"{table}.parquet"
        for table in ("trials", "latency", "throughput", "resources")
    }
    files["probe"] = next(folder.glob("probe/*.parquet"))
    for table, path in files.items():
        written = pq.read_schema(path)
        known = [each for each in columns(table) if not each.optional or each.name in written.names]
        assert [(each.name, schema_of(table).field(each.name).type) for each in known] == [
            (name, written.field(name).type) for name in written.names
        ]


def test_the_table_has_each_server_with_its_first_note():
    servers = [load_server(name) for name in server_names()]
    lines = servers_table(servers).splitlines()
    assert len(lines) == len(servers) + 2
    nginx = next(line for line in lines if line.startswith("| `nginx`"))
    assert (
        "| C | nginx |" in nginx and "Reference row: Debian's nginx answers fixed bodies" in nginx
    )
    assert "One worker" not in nginx


def test_the_readmes_numbers_are_those_of_the_committed_run():
    text = " ".join((ROOT / "README.md").read_text().split())
    tables = tables_of("sample")
    row = choose(tables, "").row
    assert f"k6 measures a median of {number(row['latency_p50_ms'])} ms" in text
    assert f"are answered within {number(row['probe_p50_ms'])} ms" in text
    alike = tables.timed("k6")
    alike = alike[alike["load"].eq(row["load"]) & alike["server"].eq(row["server"])]
    low, high = alike["latency_p50_ms"].min(), alike["latency_p50_ms"].max()
    assert (
        len(alike) == 10
        and f"({number(low)} to {number(high)} ms in its ten trials, of which" in text
    )
    found = ratios.frame(tables)
    hundred = found["load"].str.contains("keep-alive, 100 connections") & found["quantity"].eq(
        "served_rps"
    )
    (pair,) = found[hundred & found["server"].eq("gin") & found["base"].eq("axum")].to_dict(
        "records"
    )
    assert (
        f"with 100 kept connections axum answers {ratios.words(pair)} times as many requests as gin"
        in text
    )
    sealed = tables.trials[tables.trials["status"] == "sealed"]
    counts = sealed[sealed["server"] != "gin-b"].groupby(["load", "server"]).size()
    assert (counts.min(), counts.max()) == (6, 10)
    page = " ".join(COMMITTED_RUNS.read_text().split())
    assert (
        f"It took 109 minutes with three short pauses, and has {len(sealed)} sealed trials: six to "
        "ten of each server under each load" in page
    )


def test_the_second_committed_run_is_what_its_page_says():
    text = " ".join(COMMITTED_RUNS.read_text().split())
    trials = tables_of("all").trials
    assert trials["trial_id"].is_unique and trials["status"].eq("sealed").all()
    assert f"all of its {len(trials):,} trials were sealed" in text
    assert trials["server"].nunique() == 9
    assert tables_of("all").manifest.engine == "docker" and trials["idle"].eq("polling").all()


def test_the_table_of_faults_has_not_drifted():
    for page in (fault_table.PAGE, fault_table.FLEET):
        assert fault_table.page(page) == page.read_text(encoding="utf-8"), "run `make reliability`"
    assert len(list(fault_table.faults())) > 30


def test_every_link_between_the_documents_leads_somewhere():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    broken = []
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            is_elsewhere = "://" in target
            if not is_elsewhere and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []


def test_every_anchor_of_a_link_is_a_heading():
    """If a link has an anchor, the page to which it leads has a heading with this anchor.

    GitHub makes the anchor from the heading: in lower case, without punctuation, and with hyphens
    instead of spaces.
    """
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    broken = []
    for page in pages:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)]+)\)", page.read_text()):
            if "://" in target:
                continue
            text = ((page.parent / target) if target else page).read_text()
            headings = re.findall(r"^#+ (.+)$", text, re.M)
            anchors = [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]
            if anchor not in anchors:
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


@pytest.mark.parametrize(
    ("page", "most"), [("README.md", 900), ("CONTRIBUTING.md", 800), ("docs/method.md", 2600)]
)
def test_the_pages_that_are_read_to_the_end_are_short(page, most):
    """Pages that are meant to be read to the end have few words.

    The words in code and tables do not count.
    """
    text = re.sub(r"^(    |\||```).*$", "", (ROOT / page).read_text(), flags=re.M)
    assert len(text.split()) <= most
