"""Tests of the notebook about CPU spikes.

If a program executes the notebook, the notebook shows pictures. If a reader has opened the
notebook, it shows widgets.
"""

import base64
import io
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import synthetic_run
import synthetic_spikes
from built import bare_lab
from jupyter_client.manager import start_new_kernel
from matplotlib.image import imread
from shown import outputs, texts
from synthetic_spikes import PAUSE_MS, STEALS_S

from runner.model import LabError
from runner.present.chart.drawing import draw
from runner.present.look.numbers import number
from runner.present.notebook import notebooks
from runner.present.notebook.spike_page import open_spikes
from runner.store import find_run

GIN = "gin-rates-r1000-b1"
AXUM = "axum-rates-r1000-b1"
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = bare_lab(tmp_path_factory.mktemp("lab"))
    for path in (lab / "notebooks").glob("*.ipynb"):
        if path.stem != "cpu_spikes":
            path.unlink()
    synthetic_spikes.build(lab / "data" / "sample")
    old = synthetic_spikes.build(lab / "data" / "runs" / "old", spikes=False, probe=False)
    synthetic_spikes.forget_new_columns(old)
    synthetic_run.build(lab / "data" / "runs" / "empty", k6=(), wrk=False)
    return lab


# --- a notebook that a program executes -----------------------------------------------------------


@pytest.mark.long
def test_the_report_has_the_page_without_widgets(in_lab: Path) -> None:
    report = notebooks.build_report(find_run("sample"))
    assert [page.name for page in report] == ["cpu_spikes.html"]
    html = next(iter(report))
    out = html.with_suffix(".ipynb")
    page = html.read_text()
    assert notebooks.figures_shown(out) == ["cpu-side-by-side", "cpu-spikes"]
    kinds = {kind for output in outputs(out) for kind in output.get("data", {})}
    assert WIDGET not in kinds and "image/png" in kinds
    text = texts(out)
    assert (
        f"Trial {GIN}" in text
        and "stands out most" in text
        and "coincides with spikes more than by chance" in text
    )
    assert "axum 0 spikes" in text and "Machine" in text
    assert {path.name for path in out.parent.iterdir()} >= {"cpu-spikes.png", "cpu-spikes.svg"}
    # The title is drawn in the picture, so it is no text of the page. The page has the alternative
    # text, which has other words.
    assert "5 CPU spikes" not in page and "the highest, " in page
    with pytest.raises(LabError, match="no notebook"):
        notebooks.build_report(find_run("empty"))


@pytest.mark.long
def test_a_notebook_takes_a_trial_and_a_part_of_its_load(in_lab: Path, tmp_path: Path) -> None:
    given = {"trial": AXUM, "start_s": 5, "stop_s": 7.5}
    out = tmp_path / "out.ipynb"
    notebooks.execute(in_lab / "notebooks" / "cpu_spikes.ipynb", given, out)
    text = texts(out)
    assert (
        f"Trial {AXUM}" in text
        and "The parameter trial names it" in text
        and "No spike of the server" in text
    )
    assert "from 5.0 to 7.5 s" in str(outputs(out))


WRONG = {
    "This run has no trial 'nope'.": {"trial": "nope"},
    "start_s and stop_s must be seconds of the load": {"start_s": 31},
    "The parameter stop_s must be a valid number, not 'soon'.": {"stop_s": "soon"},
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_parameter_is_one_sentence(in_lab: Path, sentence: str) -> None:
    with pytest.raises(LabError, match=re.escape(sentence)):
        open_spikes("sample", **WRONG[sentence])


@pytest.mark.long
def test_a_run_without_spikes_and_without_the_younger_columns(in_lab: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.ipynb"
    notebooks.execute(in_lab / "notebooks" / "cpu_spikes.ipynb", {"run": "old"}, out)
    assert notebooks.figures_shown(out) == ["cpu-side-by-side", "cpu-spikes"]
    assert "No server spiked in the" in texts(out) and "not known: the tables of this run" in texts(
        out
    )


def test_a_run_without_samples_says_so(in_lab: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = open_spikes("empty")
    page.show_controls()
    for part in ("trial", "spikes", "control"):
        page.show_part(part)
    page.show_figure("cpu-spikes")
    page.finish()
    printed = capsys.readouterr().out
    assert "no sealed trial whose server's CPU was sampled" in printed and "0 figures" in printed


def known_cpu(lab: Path, at_s: float) -> float:
    """Return the CPU use of gin in the window that contains the second `at_s`.

    The value is read from the stored table.
    """
    rows = pd.read_parquet(lab / "data" / "sample" / "tables" / "resources.parquet")
    inside = (rows["t_s"] - rows["dt_s"] < at_s) & (at_s < rows["t_s"])
    (value,) = rows.loc[inside & rows["trial_id"].eq(GIN) & rows["subject"].eq("server"), "cpu_pct"]
    return float(value)


def test_each_panel_says_what_it_shows_at_a_second(in_lab: Path) -> None:
    page = open_spikes("sample")
    cpu, _, rate, latency, events = (ax.format_coord for ax in draw(page.chart("cpu-spikes")).axes)
    assert cpu(4.12, 7.0) == f"gin, 4.12 s: {number(known_cpu(in_lab, 4.12))} % of a core"
    assert (
        known_cpu(in_lab, 4.12) > 70 > known_cpu(in_lab, 3.02)
    )  # 4.12 s is within gin's first spike, and 3.02 s is before it
    assert cpu(99.0, 7.0) == "gin, 99.00 s: – % of a core"
    assert rate(4.12, 0.0).endswith(" requests/s") and "p50 " in latency(4.5, 1.0)
    assert latency(31.5, 2.5) == "31.50 s: the pointer is at 2.50 ms"
    collections, stolen, _, others = range(4)
    assert events(4.02, collections) == f"GC cycle, 4.02 s: {PAUSE_MS:.3f} ms"
    assert events(STEALS_S[0] + 0.02, stolen) == f"steal, {STEALS_S[0] + 0.02:.2f} s: 10.0 ms"
    assert events(1.0, others) == "1.00 s: none of these"


# --- a notebook that a reader has opened ----------------------------------------------------------


def run_cells(client: Any, *sources: str, reader: bool) -> list[dict[str, Any]]:
    """Execute cells as a front end does, and return what the cells display.

    A front end is the program in which a reader opens a notebook.
    """
    displayed: list[dict[str, Any]] = []

    def note(message: dict[str, Any]) -> None:
        if message["msg_type"] in {"display_data", "execute_result"}:
            displayed.append(message["content"]["data"])
        elif message["msg_type"] == "error":
            displayed.append({"text/plain": "\n".join(message["content"]["traceback"])})

    for source in sources:
        reply = client.execute_interactive(
            source, allow_stdin=reader, output_hook=note, timeout=120
        )
        assert reply["content"]["status"] == "ok", displayed[-1:]
    return displayed


OPEN = "from runner.present.notebook.spike_page import open_spikes\npage = open_spikes('sample')"
CELLS = ("page.show_controls()", "page.show_part('trial')", "page.show_figure('cpu-spikes')")
POINT = """canvas, ax = page.canvas, page.canvas.figure.axes[0]
x, y = ax.transData.transform((4.12, sum(ax.get_ylim()) / 2))
where = {"x": float(x), "y": float(canvas.get_renderer().height - y)}
move = {"type": "motion_notify", "button": 0, "buttons": 0}
move |= {"modifiers": [], "guiEvent": {}, **where}
canvas._handle_message(canvas, move, [])
canvas._message"""
"""Code that sends the widget the event of a reader who moves the pointer.

The value of the code is the message that the widget then shows below the figure.
"""


@pytest.fixture(scope="module")
def client(lab: Path) -> Any:
    """Yield a client of a kernel that all tests of this module share."""
    manager, client = start_new_kernel(cwd=str(lab), env={**os.environ, "BENCH_ROOT": str(lab)})
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_the_front_end_says_whether_somebody_is_there(client: Any) -> None:
    """The kernel learns from each request to execute code whether a reader is there."""
    ask = "from runner.present.notebook.pages import has_reader\nhas_reader()"
    for reader in (True, False):
        assert run_cells(client, ask, reader=reader)[-1]["text/plain"] == str(reader)


@pytest.mark.long
def test_a_reader_chooses_the_trial_and_everything_follows(lab: Path, client: Any) -> None:
    shutil.rmtree(lab / "figures", ignore_errors=True)
    trial = "page.controls.children[0].value"
    part = "page.controls.children[1].value"
    first = run_cells(client, OPEN, *CELLS, reader=True)
    assert (
        sum(WIDGET in data for data in first) == 4
    )  # the controls, two placeholders, and the figure in one of the placeholders
    assert any(f"Trial {GIN}" in data.get("text/plain", "") for data in first)
    chosen = run_cells(client, f"{trial} = {AXUM!r}", reader=True)
    assert any(f"Trial {AXUM}" in data.get("text/plain", "") for data in chosen)
    assert (
        sum(WIDGET in data for data in chosen) == 1
    )  # only the figure is new; the placeholders stay
    cut = run_cells(
        client, f"{part} = (4.0, 9.0)", "(page.view.start_s, page.view.stop_s)", reader=True
    )
    assert cut[-1]["text/plain"] == "(4.0, 9.0)"
    assert (
        run_cells(client, f"{trial} = {GIN!r}", part, reader=True)[-1]["text/plain"]
        == "(0.0, 30.0)"
    )
    explore = (
        "from runner.present.notebook.explore_page import "
        "open_tables\nopen_tables('sample').show_figure('cpu-peaks')"
    )
    (picture,) = [data["image/png"] for data in run_cells(client, explore, reader=True)]
    assert imread(io.BytesIO(base64.b64decode(picture))).shape[1] == 1050
    assert not (lab / "figures").exists()  # looking at a run writes no file


def test_a_reader_zooms_and_reads_values_under_the_pointer(lab: Path, client: Any) -> None:
    shutil.rmtree(lab / "figures", ignore_errors=True)
    shown = run_cells(client, OPEN, "page.show_figure('cpu-spikes')", reader=True)
    assert (
        sum(WIDGET in data for data in shown) == 2
    )  # the placeholder of the figure, and the figure in it
    # the notebook also describes the figure in words
    assert any("CPU of server" in data.get("text/plain", "") for data in shown)
    zoom = (
        "figure = page.canvas.figure\nfigure.axes[1].set_xlim(3.9, 4.5)\n"
        "len(figure.axes), {tuple(map(float, ax.get_xlim())) for ax in figure.axes}"
    )
    assert run_cells(client, zoom, reader=True)[-1]["text/plain"] == "(5, {(3.9, 4.5)})"
    pointed = run_cells(client, POINT, reader=True)[-1]["text/plain"]
    assert pointed == f"'gin, 4.12 s: {number(known_cpu(lab, 4.12))} % of a core'"
    other = f"old = page.canvas\npage.choose({AXUM!r})\n(old.comm is None, page.canvas is old)"
    assert (
        run_cells(client, other, reader=True)[-1]["text/plain"] == "(True, False)"
    )  # the old widget is closed
    assert not (lab / "figures").exists()
