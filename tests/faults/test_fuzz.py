"""Tests in which files that the lab reads are changed at random.

If the lab reads a changed file, it must return a result or raise a LabError. It must never raise
another exception, and never hang.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import synthetic_run
from fake_lab import K6, records
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from k6_digests import SUMMARY
from typer.testing import CliRunner
from wrk_files import WRK_RESULT

from runner.cli import app
from runner.digest.k6 import read_summary
from runner.digest.probe import read_probe
from runner.digest.resources import read_counters
from runner.digest.tables import build_tables, rebuild
from runner.digest.wrk import read_wrk
from runner.model import LabError
from runner.planning.catalog import campaign_from_manifest, load_campaign, read_server
from runner.planning.plan import plan_trials
from runner.present.frames import read_tables
from runner.store import RunFolder

fuzzed = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
few = settings(fuzzed, max_examples=15)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["../../x", "<script>", "$\\input{/etc/passwd}$", "NaN", "\0", "9" * 400]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
)


def places(document: Any) -> list[tuple[Any, Any]]:
    """Return a pair for each value in a JSON document, at any depth.

    The pair is the container of the value (a dict or a list), and the value's key or index there.
    """
    keys = (
        document
        if isinstance(document, dict)
        else range(len(document) if isinstance(document, list) else 0)
    )
    return [place for key in keys for place in ((document, key), *places(document[key]))]


@st.composite
def mangled(draw: st.DrawFn, *texts: str) -> str:
    """Draw one of `texts`, and replace a piece of this text by other characters."""
    text = draw(st.sampled_from(texts))
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.text(max_size=10)) + text[at + draw(st.integers(0, 40)) :]


@st.composite
def mutants(draw: st.DrawFn, document: Any) -> str:
    """Draw a changed text of a JSON document.

    Either one value is replaced or removed, or some characters of the text are replaced.
    """
    if draw(st.booleans()):
        whole = [json.loads(json.dumps(document))]
        holder, key = draw(st.sampled_from(places(whole)))
        if holder is not whole and draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = draw(VALUES)
        return json.dumps(whole[0])
    return draw(mangled(json.dumps(document)))


def tolerated(act: Any) -> None:
    """Run `act`, which may succeed or raise a LabError with a message, but no other exception."""
    try:
        act()
    except LabError as error:
        assert str(error)


def written(path: Path, text: str) -> Path:
    """Write a text to a file, and return the file's path.

    The text may contain halves of surrogate pairs.
    """
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data" / "sample"
MANIFEST = json.loads((SAMPLE / "run.json").read_text(encoding="utf-8"))
JOURNAL = "".join(
    (SAMPLE / "journal.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[:8]
)
RECORD = next(
    record for record in RunFolder(SAMPLE).records() if record["trial_id"].endswith("-vus3000")
)


SERVER_TOML = (ROOT / "servers" / "axum" / "server.toml").read_text(encoding="utf-8")
SERVERS = [read_server(ROOT / "servers" / name) for name in ("axum", "gin")]
CAMPAIGNS = [
    path.read_text(encoding="utf-8") for path in (ROOT / "runner" / "campaigns").glob("*.toml")
]
FILES: dict[str, tuple[st.SearchStrategy[str], Callable[[Path], object]]] = {
    "wrk.json": (mutants(WRK_RESULT), read_wrk),
    "k6-summary.json": (mutants(SUMMARY), read_summary),
    "run.json": (
        mutants(MANIFEST),
        lambda path: campaign_from_manifest(RunFolder(path.parent).manifest()),
    ),
    "axum/server.toml": (mangled(SERVER_TOML), lambda path: read_server(path.parent)),
    "mine.toml": (mangled(*CAMPAIGNS), lambda path: plan_trials(load_campaign(str(path)), SERVERS)),
}
"""For each file name, the texts that the file may contain, and the function that reads the file."""


@pytest.mark.parametrize("name", FILES)
@fuzzed
@given(data=st.data())
def test_any_file(tmp_path, name, data):
    (texts, read), path = FILES[name], tmp_path / name
    path.parent.mkdir(exist_ok=True)
    written(path, data.draw(texts))
    tolerated(lambda: read(path))


@fuzzed
@given(data=st.data())
def test_any_journal(tmp_path, data):
    run = RunFolder(tmp_path)
    written(run.journal, data.draw(mangled(JOURNAL)))
    tolerated(run.states)
    before = run.journal.read_bytes()
    run.append("sealed", "t")
    assert run.journal.read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert run.journal.read_bytes().endswith(b"}\n")


@fuzzed
@given(text=mutants(RECORD))
def test_any_record(tmp_path, text):
    folder = tmp_path / "trials" / RECORD["trial_id"]
    folder.mkdir(parents=True, exist_ok=True)
    written(folder / "trial.json", text)
    run = RunFolder(tmp_path)
    tolerated(lambda: build_tables(run))
    tolerated(lambda: rebuild(run))
    assert {path.name for path in tmp_path.iterdir()} <= {"trials", "tables"}


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 100_000, "a = " + "9" * 100_000, "a." * 50_000 + "b = 1", "\ufeff", "\0"],
)
def test_toml_that_is_hard_to_read(tmp_path, text):
    with pytest.raises(LabError):
        load_campaign(str(written(tmp_path / "mine.toml", text)))


def flipped(draw: st.DrawFn, path: Path) -> None:
    """Change a few random bytes of a file, or cut the file off at a random place."""
    content = bytearray(path.read_bytes())
    if draw(st.booleans()):
        del content[draw(st.integers(0, len(content))) :]
    else:
        for _ in range(draw(st.integers(1, 4))):
            # In about half of the cases, change a byte near the end of the Parquet file. The footer
            # is there, which describes the rest of the file.
            at = draw(
                st.integers(0, len(content) - 1)
                | st.integers(max(0, len(content) - 600), len(content) - 1)
            )
            content[at] = draw(st.integers(0, 255))
    path.write_bytes(content)


@few
@given(data=st.data())
def test_any_table(tmp_path, data):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    synthetic_run.build(folder)
    flipped(
        data.draw,
        folder
        / "tables"
        / f"{data.draw(st.sampled_from(['trials', 'latency', 'throughput']))}.parquet",
    )
    tolerated(lambda: read_tables(RunFolder(folder)))


@pytest.mark.long
@pytest.mark.timed
@few
@given(data=st.data())
def test_any_samples_of_the_sampler_and_the_probe(finished, tmp_path, data):
    run = finished.folder
    samples = run / "trials" / records(run)[K6]["trial_id"]
    for name, read in (
        ("resources.parquet", lambda path: read_counters(path, 0)),
        ("probe.parquet", read_probe),
    ):
        path = tmp_path / name
        shutil.copy(samples / name, path)
        flipped(data.draw, path)
        tolerated(lambda: read(path))  # noqa: B023 - the function is called before `path` changes


COMMANDS = (
    ("compare", "latest", "latest", "--json"),
    ("run", "--resume", "latest"),
    ("export", "latest"),
)


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.fault(
    "any file of a run is changed at random", "each command works, or refuses in one sentence"
)
@few
@given(data=st.data())
def test_any_run_through_the_command_line(finished, tmp_path, monkeypatch, data):
    root = tmp_path / "lab"
    again = data.draw(st.integers(0, 10**9))
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(finished.root, root, symlinks=True)
    files = sorted(
        path for path in root.glob("data/runs/*/**/*") if path.is_file() and path.stat().st_size
    )
    path = data.draw(st.sampled_from(files))
    if path.suffix in {".json", ".jsonl"} and data.draw(st.booleans()):
        written(path, data.draw(mangled(path.read_text(encoding="utf-8"))))
    else:
        flipped(data.draw, path)
    monkeypatch.setenv("BENCH_ROOT", str(root))
    for command in COMMANDS:
        out = ["--out", str(tmp_path / f"out-{again}")] if command[0] == "export" else []
        done = CliRunner().invoke(app, [*command, *out])
        assert isinstance(done.exception, LabError | OSError | SystemExit | None), (
            path,
            command,
            done.exception,
        )
        assert done.exit_code in {0, 1, 2}
