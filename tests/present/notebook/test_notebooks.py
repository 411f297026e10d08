"""Tests of notebooks.

papermill can execute the notebooks. If a notebook fails, the error is one sentence. An executed
notebook is exported as a page that loads no other files.
"""

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import synthetic_database
import synthetic_run
from built import ROOT, bare_lab
from jupyter_client.manager import KernelManager
from marking import long_but
from shown import cells, outputs

from runner.model import LabError
from runner.present.chart.value import charts
from runner.present.notebook import notebooks
from runner.present.notebook.explore_page import open_tables
from runner.present.notebook.kernels import FOLDER, Kernels
from runner.present.notebook.pages import open_report
from runner.store import find_run

CELLS = ("distributions", "cpu-by-rate", "cpu-of-a-trial", "wrk-matrix", "percentiles-over-time")
EXPLORED = tuple(f"explore-{cell}" for cell in CELLS)
PARAMETERS = {"compare": {"run_a", "run_b"}, "history": {"runs"}, "audit": {"files"}}
"""The parameters of the notebooks that are not about a single run, by notebook."""
FIGURES = charts("report").keys() - {"cpu-peaks", "ratios"}
"""The figures of the report for which the synthetic sample has data.

The sample has no load at an offered rate, and only three trials.
"""
OF_WRK = {"wrk-requests", "wrk-cpu-per-request"}
STORED_FIGURES = charts("postgres")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a separate lab with the real notebooks, a synthetic sample and another run."""
    lab = bare_lab(tmp_path_factory.mktemp("lab"))
    synthetic_run.build(lab / "data" / "sample")
    synthetic_run.build(lab / "data" / "runs" / synthetic_run.RUN_ID, trials=1, wrk=False)
    return lab


@pytest.fixture(scope="module")
def kernels(in_lab: Path) -> Iterator[Kernels]:
    """Yield a pool whose only kernel, in the lab, runs one notebook after the other."""
    with Kernels(1) as ready:
        yield ready


@pytest.fixture
def kernel(kernels: Kernels) -> Iterator[KernelManager]:
    with kernels.one() as one:
        yield one


def papermill(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "BENCH_ROOT"}
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", *arguments]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=200, check=False
    )


# --- notebooks as they are committed --------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.name
)
def test_notebooks_are_stored_clean(path):
    raw = json.loads(path.read_text())
    nbformat.validate(raw)
    assert (raw["nbformat"], raw["nbformat_minor"]) == (4, 5)
    assert raw["metadata"]["kernelspec"]["name"] == "python3"
    code = [cell for cell in raw["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in raw["cells"]}) == len(raw["cells"])
    assert notebooks.parameters(path) >= PARAMETERS.get(path.stem, {"run"})


@pytest.mark.parametrize("name", sorted({found.notebook for found in charts().values()}))
def test_every_figure_stands_in_its_notebook_one_line_a_cell(name):
    shown = [source for source in cells(name) if ".show_figure(" in source]
    page = "page" if name in {"cpu_spikes", "published"} else "report"
    assert sorted(shown) == sorted(f'{page}.show_figure("{figure}")' for figure in charts(name))


# --- notebooks executed by papermill on the command line ------------------------------------------


@pytest.mark.long
def test_papermill_without_parameters_rebuilds_the_sample(lab):
    done = papermill(lab, "notebooks/report.ipynb")
    assert done.returncode == 0, done.stderr
    images = [output.data["image/png"] for output in outputs(io.StringIO(done.stdout), "image/png")]
    assert len(set(images)) == len(images) == len(FIGURES)
    names = {path.name for path in (lab / "figures" / "sample").iterdir()}
    assert names >= {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    text = str(outputs(io.StringIO(done.stdout), "text/html"))
    assert "Not in containers" in text and "k6 ended with exit code 107." in text


@pytest.mark.long
def test_papermill_inside_notebooks_with_a_run(lab, tmp_path):
    out = tmp_path / "out.ipynb"
    done = papermill(lab / "notebooks", "report.ipynb", str(out), "-p", "run", "latest")
    assert done.returncode == 0, done.stderr
    assert sorted(notebooks.figures_shown(out) or []) == sorted(FIGURES - OF_WRK)
    assert (lab / "figures" / synthetic_run.RUN_ID / "latency-spectrum.svg").exists()


WRONG = [
    (
        ("-p", "bogus", "1"),
        "LabError: Unknown parameter bogus: this notebook has only the parameter run.",
    ),
    (("-p", "run", "nope"), "LabError: There is no run 'nope': "),
]


@pytest.mark.long
@pytest.mark.parametrize(("parameters", "sentence"), long_but(WRONG[:1], WRONG))
def test_a_wrong_parameter_is_one_sentence_and_an_error(lab, tmp_path, parameters, sentence):
    out = tmp_path / "out.ipynb"
    done = papermill(lab, "notebooks/report.ipynb", str(out), *parameters)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert [len(output.traceback) for output in outputs(out) if output.output_type == "error"] == [
        1
    ]


# --- notebooks executed by the lab ----------------------------------------------------------------


@pytest.fixture(scope="module")
def report(in_lab: Path) -> dict[Path, list[str]]:
    """Build the pages of the sample, and return the names of the figures of each page."""
    return notebooks.build_report(find_run("sample"))


def differing(before: bytes, now: bytes) -> list[tuple[str, str]]:
    """Return (old line, new line) of the first five lines in which two versions of a file differ.

    Lines are cut to 200 characters.
    """
    lines = zip_longest(before.decode().splitlines(), now.decode().splitlines(), fillvalue="")
    return [(a[:200], b[:200]) for a, b in lines if a != b][:5]


@pytest.mark.long
def test_build_report(in_lab, report, capfd):
    folder = in_lab / "figures" / "sample"
    assert list(report) == [
        folder / f"{name}.html" for name in ("report", "cpu_spikes", "explore", "published")
    ]
    shown = (*FIGURES, "cpu-spikes", "published-ratios", *EXPLORED)
    assert sorted(chain.from_iterable(report.values())) == sorted(shown)
    assert all(
        (folder / f"{name}.{kind}").stat().st_size for name in shown for kind in ("png", "svg")
    )

    page = (folder / "report.html").read_text()
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?\s*(?:https?:)?//""", page)
    assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", page)
    assert "<script" not in page and "report.show_part(" not in page
    assert "<title>Report of a run: sample</title>" in page
    assert page.count('alt="') == len(FIGURES) and 'alt="Line chart of response time' in page
    assert page.index("Not in containers") < page.index("data:image/png")

    files = [file for page in report for file in (page, page.with_suffix(".ipynb"))]
    first = [file.read_bytes() for file in files]
    assert not any(str(in_lab).encode() in data for data in first)
    notebooks.build_report(find_run("sample"))
    again = [file.read_bytes() for file in files]
    assert {
        file.name: differing(before, now)
        for file, before, now in zip(files, first, again, strict=True)
        if before != now
    } == {}
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_build_report_of_a_run_with_a_database(in_lab):
    run = synthetic_database.build(
        in_lab / "data" / "runs" / "database", synthetic_database.THREE, trials=2
    )
    report = notebooks.build_report(find_run(run.name))
    pages = {page.name: page for page in report}
    assert list(pages) == [
        "report.html",
        "cpu_spikes.html",
        "explore.html",
        "postgres.html",
        "published.html",
    ]
    assert set(chain.from_iterable(report.values())) >= {*OF_WRK, *STORED_FIGURES}
    page = pages["postgres.html"].read_text()
    assert "<title>Inserts into PostgreSQL: " in page and "<script" not in page
    assert page.count('alt="') == len(STORED_FIGURES)
    assert page.index("Most inserts per second") < page.index("data:image/png")
    assert 'alt="Line charts (up) by seconds of rising rates' in page
    assert "the server died under load with exit code 101." in page


@pytest.mark.long
def test_kernels_that_have_just_worked_end_without_a_word(capfd):
    """A kernel that is ended while it makes an empty namespace prints no traceback.

    A kernel makes an empty namespace when a notebook has ended, so that it forgets the notebook's
    variables. The test ends kernels at this moment.
    """
    for _ in range(3):
        with Kernels(1) as kernels, kernels.one() as kernel:
            assert kernel.kernel_id
    assert capfd.readouterr() == ("", "")


def test_a_notebook_begins_when_the_variables_of_the_last_are_forgotten(tmp_path, monkeypatch):
    """A notebook begins only after the kernel has forgotten the previous notebook's variables.

    The request to forget and the request to execute are sent over different connections. A kernel
    may handle them in any order, so the second request must wait for the first.
    """
    done = tmp_path / "done"
    slow = f"import time, pathlib; time.sleep(0.5); pathlib.Path({str(done)!r}).touch()"
    monkeypatch.setattr("runner.present.notebook.kernels.FORGET", slow)
    with Kernels(1) as kernels:
        with kernels.one():
            pass
        with kernels.one():
            assert done.exists()


def test_a_kernel_that_died_is_said_at_once_and_none_is_left(in_lab):
    with (
        pytest.raises(LabError, match="kernel that executes a notebook died"),
        Kernels(2) as kernels,
    ):
        pids = [kernel.provisioner.pid for kernel in kernels.started]
        os.kill(pids[0], signal.SIGKILL)
        kernels.started[0].provisioner.process.wait(10)
        begun = time.monotonic()
        for _ in pids:
            with kernels.one():
                pass
    assert time.monotonic() - begun < 20
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_an_empty_run_shows_sentences(in_lab, tmp_path, capsys):
    folder = synthetic_run.build(tmp_path / "run", k6=(), wrk=False)
    report = open_report(str(folder))
    for name in ("answer", "failures", "verdicts", "machine", "inserts"):
        report.show_part(name)
    assert report.chart("rates-objective") is report.chart("inserts-over-time") is None
    printed = capsys.readouterr().out
    assert (
        "No trial of this run was sealed" in printed
        and "This run has no workload with a database" in printed
    )


@pytest.mark.parametrize(
    ("name", "is_shown"), [("wrk-requests", False), ("ratios", False), ("latency-spectrum", True)]
)
def test_a_figure_without_data_is_left_out(name, is_shown, in_lab):
    """A figure is left out if the run has no data for it.

    The run `seeds` has no load by wrk, and too few trials for a ratio.
    """
    report = open_report(str(ROOT / "data" / "seeds"))
    shown = []
    report.display = lambda *given, **_: shown.append(given)
    report.figures = in_lab / "figures" / "seeds"
    report.show_figure(name)
    assert report.chart(name).frame.empty is not is_shown
    assert (len(shown), report.shown) == ((1, [name]) if is_shown else (0, []))


# --- the notebook for exploring a run -------------------------------------------------------------


def explored(notebook: Path) -> dict[str, tuple[bool, str]]:
    """Return what the cells of CELLS show, by the name of the cell.

    The values are pairs: whether the cell shows a picture, and the words that the cell shows.
    """
    cells = {
        cell.id: cell.outputs
        for cell in nbformat.read(notebook, as_version=4).cells
        if cell.id in CELLS
    }
    return {
        name: (
            any("image/png" in output.data for output in shown),
            " ".join(
                output.data["text/plain"] for output in shown if "image/png" not in output.data
            ),
        )
        for name, shown in cells.items()
    }


@pytest.mark.long
def test_the_notebook_for_exploring_shows_five_pictures(report):
    page = next(iter(report)).with_name("explore.html")
    out = page.with_suffix(".ipynb")
    assert notebooks.figures_shown(out) == list(EXPLORED)
    found = explored(out)
    assert list(found) == list(CELLS) and all(picture for picture, _ in found.values())
    images = outputs(out, "image/png")
    texts = [image.metadata["image/png"]["alt"] for image in images]
    assert len(set(texts)) == len(CELLS)
    for text, (_, words) in zip(texts, found.values(), strict=True):
        assert text.startswith(words) and "Across: " in text and "Up: " in text
    assert (
        "Across: latency, ms (log scale), labelled" in texts[0]
        and "Legend: axum, gin, nginx." in texts[0]
    )
    assert page.read_text().count('alt="') == len(CELLS) and "sns." not in page.read_text()


NO_WRK = {"wrk-matrix"}
NO_K6 = {"percentiles-over-time"}
NEITHER = {"distributions", "cpu-by-rate", "cpu-of-a-trial"}
LACKING = [
    ({"k6": (), "wrk": False}, NEITHER | NO_WRK | NO_K6),
    ({"wrk": False}, NO_WRK),
    ({"k6": ()}, NO_K6),
]


@pytest.mark.parametrize(
    ("given", "without"), long_but((), LACKING), ids=["empty", "without wrk", "without k6"]
)
def test_a_cell_without_data_shows_nothing(kernel, tmp_path, given, without):
    run = synthetic_run.build(tmp_path / "run", trials=2, **given)
    out = tmp_path / "out.ipynb"
    notebooks.execute(ROOT / "notebooks" / "explore.ipynb", {"run": str(run)}, out, kernel)
    found = explored(out)
    assert {name for name, (picture, words) in found.items() if not (picture or words)} == without
    assert all(picture and words for name, (picture, words) in found.items() if name not in without)


@pytest.mark.parametrize("name", ["sample", "all"])
def test_the_explored_load_has_response_times_if_any_has(name):
    page = open_tables(str(ROOT / "data" / name))
    assert set(page.latency.loc[page.latency["load"] == page.load, "tool"]) == {"k6"}


def test_the_tables_of_a_run_are_tidy(in_lab, capsys):
    page = open_tables(str(in_lab / "data" / "sample"))
    trials = page.trials.set_index("trial_id")
    assert set(page.trials["status"]) == {"sealed"} and len(page.trials) == 87
    for table in (page.latency, page.throughput, page.resources):
        assert set(table["trial_id"]) <= set(trials.index) and len(table)
        assert (table["server"] == table["trial_id"].map(trials["server"])).all()
        assert (table["load"] == table["trial_id"].map(trials["load"])).all()
    assert page.load == "experiments, N = 3000"
    assert set(page.colors) == set(synthetic_run.THREE)
    assert set(page.chart("wrk-requests").frame["server"]) == set(synthetic_run.THREE)
    assert (
        trials["server_cpu_peak_100ms_pct"][page.trial] == trials["server_cpu_peak_100ms_pct"].max()
    )
    rows = page.latency[page.latency["trial_id"] == "gin-experiments-vus3000-b1"]
    known = synthetic_run.quantiles(synthetic_run.THREE["gin"][3] / 0.98)
    ms = page.percentiles(rows, ["server"]).set_index("percentile")["ms"]
    assert dict(ms) == pytest.approx(
        {p: known[f"latency_{p}_ms"] for p in ("p50", "p95", "p99")}, rel=0.011
    )
    page.show_tables()
    assert "| latency |" in capsys.readouterr().out
    with pytest.raises(LabError, match="no sealed trial 'nope'"):
        open_tables(str(in_lab / "data" / "sample"), "nope")


def test_single_requests_are_there_where_a_run_has_kept_them(in_lab, tmp_path, monkeypatch, capsys):
    run = synthetic_run.build(tmp_path / "run", trials=1, wrk=False)
    trial = "gin-experiments-vus3000-b1"
    assert open_tables(str(run), trial).requests().empty
    rows = pd.DataFrame(
        {"t_s": [0.1, 0.2], "latency_ms": [1.0, 2.0], "waiting_ms": 0.5, "status": 200, "ok": True}
    )
    rows = rows.assign(
        blocked_ms=0.0, connecting_ms=0.0, sending_ms=0.1, receiving_ms=0.1, error_code=0
    )
    (run / "tables" / "requests").mkdir()
    path = run / "tables" / "requests" / f"{trial}.parquet"
    rows.to_parquet(path)
    page = open_tables(str(run), trial)
    requests = page.requests()
    assert list(requests["latency_ms"]) == [1.0, 2.0] and set(requests["server"]) == {"gin"}

    # A trial may have millions of requests, so they must be counted without being read.
    monkeypatch.delattr(type(page), "requests")
    page.show_tables()
    assert re.search(r"\| requests\(\) +\| +2 +\|", capsys.readouterr().out)
    path.write_bytes(b"PAR1 damaged")
    with pytest.raises(LabError, match=f"{trial}.parquet cannot be read"):
        page.show_tables()


# --- broken notebooks -----------------------------------------------------------------------------


def make(folder: Path, *sources: str, parameters: str = 'run = "sample"') -> Path:
    cells = [nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    path = folder / "broken.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("1 / 0", r"broken\.ipynb failed with ZeroDivisionError: division by zero"),
        ("print('no finish')", r"did not reach its last cell"),
        ("from runner.model import LabError; raise LabError('Say this.')", r"^Say this \(see "),
        ("import os; os.kill(os.getpid(), 9)", r"broken\.ipynb"),
    ],
    ids=["exception", "no sentinel", "lab error", "dead kernel"],
)
def test_a_broken_notebook_is_kept_and_one_sentence(kernel, tmp_path, source, sentence):
    out = tmp_path / "out.ipynb"
    broken = make(tmp_path, source, "pass")
    in_kernel = None if "os" in source else kernel
    with pytest.raises(LabError, match=sentence) as caught:
        notebooks.execute(broken, {"run": "sample"}, out, in_kernel)
    assert out.exists() and str(out) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_notebook_without_the_parameter_is_refused(tmp_path):
    with pytest.raises(LabError, match="has no parameter run"):
        notebooks.execute(
            make(tmp_path, parameters="other = 1"), {"run": "sample"}, tmp_path / "out.ipynb"
        )
    (tmp_path / "text.ipynb").write_text("not JSON")
    with pytest.raises(LabError, match="cannot be read as a notebook"):
        notebooks.execute(tmp_path / "text.ipynb", {"run": "sample"}, tmp_path / "out.ipynb")


def test_only_folders_of_killed_reports_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, lives = (tmp_path / f"{FOLDER}{name}" for name in ("left", "lives"))
    left.mkdir()
    lives.mkdir()
    held = os.open(lives, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with Kernels(count=0):
        (own,) = set(tmp_path.iterdir()) - {lives}
        assert own.name.startswith(FOLDER)
        with Kernels(count=0):
            assert own.exists()
    assert set(tmp_path.iterdir()) == {lives}
    os.close(held)
