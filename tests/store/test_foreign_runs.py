"""Tests of a run that somebody else made, perhaps with bad intent.

Such a run must not make the lab read or write outside the run's folder. At worst, the lab must end
with an error. The run's texts must only be shown, never executed.
"""

import json
import lzma
import os
import re
from functools import partial
from pathlib import Path

import bs4
import fake_lab
import mistune
import pandas as pd
import pytest
import synthetic_run
from fake_lab import bench
from measured import record_of
from shown import soup

from runner.model import LabError
from runner.running.campaign import resume_campaign
from runner.store import (
    LARGEST_JSON,
    RunFolder,
    export_compact,
    figures_folder,
    find_run,
    read_json,
    write_json,
)


@pytest.fixture
def lab(bare_lab):
    """Make a lab with one run, and return the run's folder."""
    return synthetic_run.build(bare_lab / "data" / "runs" / "theirs")


def record(folder, **changes):
    path = folder / "trials" / "t1" / "trial.json"
    write_json(path, record_of("t1") | changes)
    return path


@pytest.mark.fault(
    "a foreign run's id is a path", "refused: nothing is written outside its folders"
)
@pytest.mark.parametrize(
    "run_id",
    ["../../elsewhere", "/etc/elsewhere", "..", ".hidden", "a/b", "", "a\nb", "x" * 300, 7],
)
def test_the_id_of_a_run_leads_nowhere(lab, run_id):
    manifest = json.loads((lab / "run.json").read_text())
    (lab / "run.json").write_text(json.dumps(manifest | {"run_id": run_id}))
    with pytest.raises(LabError, match="has no run_id"):
        figures_folder(find_run("theirs"))


def refused(folder, words):
    with pytest.raises(LabError, match=words) as caught:
        RunFolder(folder).records()
    assert "\n" not in str(caught.value)


OUTSIDE = {"raw": {"../../../../etc/passwd": {"sha256": "0"}}}


@pytest.mark.fault("a foreign record names another folder or file", "refused")
@pytest.mark.parametrize(
    "changes",
    [
        {"trial_id": "../../../elsewhere"},
        {"trial_id": "t2"},
        OUTSIDE,
        {"order": "1"},
        {"attempt": None},
        {"cell": []},
    ],
)
def test_the_record_of_a_trial_is_that_of_its_folder(lab, changes):
    path = record(lab, **changes)
    refused(lab, r"trial\.json (is not|holds the record of another)")
    path.write_text("[]")
    refused(lab, "it has no trial_id")


def packed(folder, *records):
    """Write records to the file trials.jsonl.xz of an exported run, and return the file's path.

    Each record is given as the bytes of its line, or as a dict of the values in which it differs
    from a valid record.
    """
    lines = [
        each if isinstance(each, bytes) else json.dumps(record_of("t1") | each).encode()
        for each in records
    ]
    path = folder / "trials.jsonl.xz"
    path.write_bytes(lzma.compress(b"".join(line + b"\n" for line in lines)))
    return path


@pytest.mark.fault(
    "a foreign record of an exported run is broken, or names a folder or file",
    "refused, with its line",
)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            {"trial_id": "../../../elsewhere"},
            "is not a trial's record, because the trial or a file",
        ),
        ({"trial_id": "t1"}, "is a second record of t1"),
        (OUTSIDE, "is not a trial's record, because the trial or"),
        ({"order": "1"}, "is not a trial's record: order"),
        ({"cell": {"workload": "static"}}, "is not a trial's record: it has no cell.server"),
        ({"cell": {"server": 1, "workload": "static"}}, "is not a trial's record: cell.server"),
        (b"[]", "is not a trial's record: it has no trial_id"),
        *((line, "cannot be read as JSON") for line in (b"", b"rubbish", b"\xff", b"[" * 100_000)),
    ],
)
def test_a_line_of_exported_records_that_is_none(lab, line, words):
    packed(lab, {}, line)
    refused(lab, f"line 2 {words}")


@pytest.mark.fault(
    "records of a foreign exported run are not xz, are cut off, or are too many",
    "refused before any is decoded",
)
def test_exported_records_that_cannot_be_unpacked(lab):
    path = packed(lab, {}, {"trial_id": "t2"})
    whole = path.read_bytes()
    assert [each["trial_id"] for each in RunFolder(lab).records()] == ["t1", "t2"]
    for data, words in (
        (b"", "it is cut off"),
        (whole[:-20], "it is cut off"),
        (whole + b"more", "has further data after its end"),
        (whole[:40] + bytes([whole[40] ^ 255]) + whole[41:], "cannot be unpacked"),
        (b'{"trial_id": "t1"}\n', "cannot be unpacked"),
        (lzma.compress(b"{}", lzma.FORMAT_ALONE), "cannot be unpacked"),
        (
            lzma.compress(b"{}", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**30}]),
            "cannot be unpacked: Memory",
        ),
    ):
        path.write_bytes(data)
        refused(lab, words)
    os.truncate(path, LARGEST_JSON + 1)
    refused(lab, "more than 64 MiB")


@pytest.mark.fault(
    "records of a foreign exported run unpack to more than 256 MiB", "refused; no more is unpacked"
)
def test_a_bomb_of_records_is_not_unpacked(lab):
    path = packed(lab)
    path.write_bytes(lzma.compress(bytes(257 * 2**20), preset=0))
    assert path.stat().st_size < 100_000
    refused(lab, "unpacks to more than 256 MiB")


@pytest.mark.fault(
    "a foreign run with records in both layouts", "refused: which of them holds is unknown"
)
def test_records_in_both_layouts_are_refused(lab):
    packed(lab, {})
    record(lab)
    refused(lab, "both in trials.jsonl.xz and in trials/")


@pytest.mark.parametrize("value", ["NaN", "1e999"])
def test_a_value_that_no_record_has_is_refused(lab, tmp_path, value):
    """If a record contains NaN or infinity, writing the record is refused in one sentence."""
    path = record(lab)
    path.write_text(path.read_text().replace('"metrics": {}', f'"metrics": {{"rps": {value}}}'))
    run = RunFolder(lab)
    run.append("sealed", "t1")
    for write in (run.record_hashes, partial(export_compact, run, tmp_path / "mine")):
        with pytest.raises(LabError, match="The record of t1 cannot be written"):
            write()
    assert not (tmp_path / "mine").exists()


def test_an_exported_run_is_not_resumed(lab):
    packed(lab, {})
    with pytest.raises(LabError, match="it is an exported run, without raw files"):
        resume_campaign(RunFolder(lab), report=None)


@pytest.mark.fault(
    "a link or a device in a foreign run", "refused: nothing outside it is read or copied"
)
@pytest.mark.parametrize("target", ["/etc/hostname", "/etc", "/nowhere"])
def test_a_link_in_a_run_is_refused(lab, target):
    (lab / "tables" / "probe").mkdir(exist_ok=True)
    (lab / "tables" / "probe" / "t1.parquet").symlink_to(target)
    with pytest.raises(LabError, match="is a link or a device"):
        find_run("theirs")


def test_a_temporary_file_that_vanishes_is_no_fault_of_a_run(lab, monkeypatch):
    """A file may vanish just after it was listed, because another process writes into the run.

    The run must be found nevertheless.
    """
    listed = list(lab.rglob("*"))
    vanished = lab / "tables" / ".t1.parquet.tmp"
    monkeypatch.setattr(Path, "rglob", lambda *_: [*listed, vanished])
    assert find_run("theirs").path == lab


@pytest.mark.fault("a pipe in the place of a manifest", "refused at once")
@pytest.mark.fault("a manifest of gigabytes", "refused before it is read")
def test_a_pipe_is_no_wait_and_a_huge_file_is_not_read(lab):
    os.truncate(lab / "run.json", LARGEST_JSON + 1)
    with pytest.raises(LabError, match="more than 64 MiB"):
        find_run("theirs")
    (lab / "run.json").unlink()
    os.mkfifo(lab / "run.json")
    with pytest.raises(LabError, match="is not a file of the lab"):
        read_json(lab / "run.json")


# --- texts that are markup, script or a formula ---------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3)) "
    "$\\input{/etc/passwd}^$ \"'`|"
)
TEXTS = ("framework", "language", "error", "verdict_reason")
HARMLESS = re.compile(
    r"#|data:image/|data:,|figures/|tables/|(index|report)\.html$|[\w./-]+\.(csv|md|svg|png|json)$"
)


def acts(page: bs4.BeautifulSoup) -> list[str]:
    """Return all tags and attributes of a page that could do more than show text."""
    found = [
        tag.name for tag in page.find_all(["script", "iframe", "object", "embed", "base", "form"])
    ]
    for tag in page.find_all(True):
        for name, value in tag.attrs.items():
            if name.startswith("on") or (
                name in ("src", "href", "srcset") and not HARMLESS.match(value)
            ):
                found.append(f"{tag.name} {name}={value[:60]}")
    return found


def hostile(trials: pd.DataFrame) -> pd.DataFrame:
    known = trials[list(TEXTS)].notna().assign(error=trials["status"].ne("sealed"))
    texts = dict.fromkeys(TEXTS, HOSTILE) | {"framework": trials["framework"] + HOSTILE[:30]}
    return trials.assign(
        **{name: trials[name].mask(known[name], text) for name, text in texts.items()}
    )


@pytest.fixture(scope="module")
def hostile_lab(tmp_path_factory):
    root = tmp_path_factory.mktemp("lab")
    fake_lab.make(root)
    folder = synthetic_run.build(root / "data" / "runs" / "hostile")
    manifest = json.loads((folder / "run.json").read_text())
    manifest["campaign"]["title"] = HOSTILE
    manifest["machine"] |= {"cpu_model": HOSTILE, "os": HOSTILE}
    manifest |= {"host_warnings": [HOSTILE], "engine_reason": HOSTILE}
    (folder / "run.json").write_text(json.dumps(manifest))
    synthetic_run.rewrite(folder, "trials", hostile)
    (folder / "journal.jsonl").touch()
    synthetic_run.write_records(folder)
    return root


@pytest.mark.long
@pytest.mark.fault(
    "a foreign run's texts are HTML, script, links, Markdown or LaTeX", "they are shown as text"
)
def test_hostile_texts_stay_texts_in_a_report(hostile_lab):
    page = soup(
        Path(
            json.loads(bench(hostile_lab, "report", "hostile", "--json", code=0).stdout)["html"]
        ).read_text()
    )
    assert acts(page) == []
    assert "<script>alert(1)</script>" in page.get_text()


@pytest.mark.long
@pytest.mark.fault("a run with hostile texts is published", "page and post show them as text")
def test_hostile_texts_stay_texts_in_a_post(hostile_lab, tmp_path):
    post = tmp_path / "post"
    bench(hostile_lab, "publish", "hostile", "--out", str(post), code=0)
    markdown = (post / "post.md").read_text().split("---\n", 2)[2]
    rendered = mistune.create_markdown(escape=False, plugins=["table"])(markdown)
    pages = [(post / name).read_text() for name in ("index.html", "report.html")]
    for page in (*pages, str(rendered)):
        assert acts(soup(page)) == []
    assert not any("<script" in drawing.read_text() for drawing in (post / "figures").glob("*.svg"))
