"""Tests of `bench audit`: its figures, its page, and tables fetched from a web server."""

import contextlib
import functools
import http.server
import io
import json
import ssl
import subprocess
import threading
from types import SimpleNamespace

import pandas as pd
import pytest
from audited_tables import WRK_OUTPUT, sound, table, with_row
from built import ROOT
from captions_held import caption_faults
from figure_checks import readable

from runner.audit import figures
from runner.audit.checks import audit
from runner.audit.formats.catalog import NAMES
from runner.audit.stored import load
from runner.model import LabError
from runner.present.chart.drawing import draw
from runner.present.chart.sentences import describe
from runner.present.notebook import notebooks


@pytest.fixture
def run(bench):
    """Return a function that runs `bench audit` in this process."""
    return functools.partial(bench, command="audit")


def test_the_figures_show_every_row_and_what_is_found():
    rows = pd.concat(
        [with_row(5, mean_ms=40), with_row(3, cpu_pct=120).assign(test="other")], ignore_index=True
    )
    done = audit(rows)
    for make, filled in ((figures.little, 1), (figures.rates, 0), (figures.cpu, 1)):
        chart = make(done)
        assert chart is not None and len(chart.frame) == 24
        readable(draw(chart))
        assert caption_faults(chart.caption) == []
        assert "12 rows" in describe(chart) and chart.frame["solid"].sum() == filled
    nothing = audit(table(framework=["a", "b"], rps=[1, 2]))
    assert figures.little(nothing) is None and figures.cpu(nothing) is None


def test_each_panel_says_all_of_its_name_and_counts_rows():
    test = (
        "count (a comparison of two servers with a name that is much longer than one line of a "
        "figure has room for)"
    )
    loads = [
        with_row(5, connections=size).assign(test=test, connections=size)[:2] for size in (10, 1000)
    ]
    loads.append(loads[0][:1].assign(test="one row"))
    chart = figures.rates(audit(pd.concat(loads, ignore_index=True)))
    assert chart is not None
    figure = draw(chart)
    readable(figure)
    said = " ".join(text.get_text() for text in figure.texts).replace("\n", " ")
    assert said.count("count (a comparison of two servers") == 2 and "…" not in said
    assert all(f"room for), {size} connections" in said for size in ("10", "1,000"))
    assert all(tick == round(tick) for ax in figure.axes for tick in ax.get_xticks())


def test_the_command(tmp_path, run, monkeypatch):
    file = tmp_path / "table.csv"
    file.write_text(pd.DataFrame(sound()).to_csv(index=False))
    assert run(str(file))[0] == 0
    named = {"rate": "rps", "subject": "framework"}
    bad = (
        with_row(5, mean_ms=40)
        .rename(columns=named)
        .drop(columns=["source", "row", "test", "missing"])
    )
    bad.to_csv(file, index=False)
    code, out, err = run(str(file))
    assert (
        code == 1 and "impossible" in out and "Little's law" in out and "12 rows of 1 test" in err
    )
    assert run(str(file), "--fail-on", "never")[0] == 0
    code, out, _ = run(str(file), "--json", "--fail-on", "never")
    assert code == 0 and json.loads(out)["counts"]["impossible"] >= 1
    for wrong in (["--fail-on", "x"], ["--map", "rps"], ["--format", "nope"]):
        assert run(str(file), *wrong)[0] == 2
    assert run(str(tmp_path / "none.csv"))[0] == 1
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(WRK_OUTPUT.encode())))
    code, _, err = run("-")
    assert code == 0 and "1 row of 1 test in 1 file" in err


class Board(http.server.BaseHTTPRequestHandler):
    """A web server with a table, a table that never ends, and redirections to any address.

    The path of a redirection is /to/ADDRESS.
    """

    def do_GET(self):
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/to/"))
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(pd.DataFrame(sound()).to_csv(index=False).encode())
            while self.path == "/endless":
                self.wfile.write(bytes(2**20))

    def log_message(self, *_):
        pass


@pytest.fixture
def board(tmp_path, monkeypatch):
    """Return the address of a web server whose self-signed certificate this process trusts."""
    key = tmp_path / "key.pem"
    certificate = tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-keyout",
            key,
            "-out",
            certificate,
        ],
        check=True,
        capture_output=True,
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Board)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_address_is_fetched_only_by_https_and_when_asked_to(board, run, monkeypatch):
    table = f"{board}/table.csv"
    plain = board.replace("https", "http")
    only = "only with --fetch"
    for address, fetch, code, words in (
        (table, True, 0, "12 rows"),
        (f"{board}/to/{table}", True, 0, "12 rows"),
        (table, False, 2, only),
        (plain, True, 2, only),
        ("file:///etc/hostname", True, 2, only),
        (f"{board}/to/file:///etc/hostname", True, 1, "file:///etc/hostname' is not allowed"),
        (f"{board}/to/{plain}/table.csv", True, 1, "which is not https"),
        (f"{board}/endless", True, 1, "more than 64 MiB"),
    ):
        ended, _, err = run(address, *(["--fetch"] if fetch else []))
        assert ended == code and words in err, address
    monkeypatch.delenv("SSL_CERT_FILE")
    code, _, err = run(table, "--fetch")
    assert code == 1 and "cannot be downloaded" in err and "certificate" in err.lower()


def test_the_page_reads_what_the_command_reads(tmp_path, run, bare_lab):
    file = tmp_path / "of <b>others.csv"
    page = tmp_path / "audit.html"
    file.write_text("who,req/s,avg\n<script>alert(1)</script>,1000,50\n<b>bold</b>,2000,10\n")
    options = [
        "--map",
        "subject=who,rps=req/s,mean_ms=avg",
        "--connections",
        "10",
        "--html",
        str(page),
    ]
    code, out, _ = run(str(file), *options)
    assert code == 1 and "5 times the possible number" in " ".join(out.split())
    text = page.read_text()
    assert "5 times the possible number" in text
    assert "<script>alert" not in text and "<b>bold" not in text
    assert notebooks.figures_shown(page.with_suffix(".ipynb")) == ["audit-little", "audit-rates"]


def test_a_page_needs_neither_the_table_nor_a_second_reading(tmp_path, run, bare_lab, monkeypatch):
    """The page of an audit is made from the stored audit, not from the table.

    The reason is that the table may come from a pipe, which cannot be read a second time.
    """
    text = b"who,rps,mean_ms,connections\na,1000,50,10\nb,2000,10,10\n"
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    page = tmp_path / "piped.html"
    code, out, _ = run("-", "--html", str(page))
    assert code == 1 and "5 times the possible number" in " ".join(out.split())
    assert "5 times the possible number" in page.read_text()
    stored = load(page.with_suffix(".audit.parquet"))
    assert stored.rows["rate"].tolist() == [1000, 2000]
    assert str(stored.findings[0].severity) == "impossible"


def test_a_page_takes_the_place_of_no_table(tmp_path, run, bare_lab):
    """Writing the page results.html does not overwrite a file results.parquet in the same folder.

    The stored audit of the page must therefore have another name.
    """
    mine = tmp_path / "results.parquet"
    mine.write_bytes(b"mine")
    source = tmp_path / "source.csv"
    source.write_text("who,rps,mean_ms,connections\na,1000,5,10\n")
    code, _, _ = run(str(source), "--html", str(tmp_path / "results.html"))
    assert code == 0 and mine.read_bytes() == b"mine"


def test_another_table_is_no_stored_audit(tmp_path):
    pd.DataFrame({"rps": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(LabError, match="is not a stored audit"):
        load(tmp_path / "other.parquet")


def test_rubbish_is_no_stored_audit(tmp_path):
    (tmp_path / "rubbish.audit.parquet").write_bytes(b"\x00rubbish" * 40)
    with pytest.raises(LabError, match=r"cannot be read as a stored audit: .*[^.]\.$"):
        load(tmp_path / "rubbish.audit.parquet")


@pytest.mark.long
def test_the_notebook_runs_as_it_is(tmp_path, bare_lab):
    assert notebooks.execute(ROOT / "notebooks" / "audit.ipynb", {}, tmp_path / "out.ipynb") == [
        "audit-rates"
    ]


def test_formats_are_those_of_the_page():
    text = (ROOT / "docs" / "audit.md").read_text()
    assert all(f"`{name}`" in text for name in NAMES)


def test_what_a_file_holds_does_not_steer_the_terminal(bench, tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(b"a\x1b]0;title\x07,\x1b[31mb\n1,2\n")
    code, out, err = bench(str(file), command="audit")
    assert (code, out) == (1, "")
    assert "columns are a�]0;title�, b." in err.replace("\n", " ") and "\x1b" not in err
