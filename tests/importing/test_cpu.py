"""Tests of importing CPU samples of other tools together with a file of k6.

The values must be read correctly, and the times of the samples must be aligned with k6's clock.
"""

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import k6_samples
import numpy as np
import pandas as pd
import pytest
from k6_samples import OPEN, SAMPLES

from runner.digest.tables import rebuild
from runner.importing.cpu.catalogue import CpuFile, read_cpu
from runner.importing.run import Given, import_files
from runner.model import LabError
from runner.present.frames import read_tables
from runner.store import RunFolder
from runner.verdict.limits import Cause

STORED = SAMPLES / "cpu"
"""Folder with the output of real tools that sampled a program using a third of a core."""
MIB = 2**20


def begin_s() -> float:
    """Return the time at which the load of OPEN began, in seconds since the epoch.

    This is the time at which the first request ended, minus the duration of this request.
    """
    first = k6_samples.points(OPEN, "http_req_duration")[0]
    return pd.Timestamp(first["time"]).timestamp() - first["value"] / 1000


def imported(tmp_path: Path, text: str, server: str | None = None, **columns: str) -> RunFolder:
    path = tmp_path / "samples"
    path.write_text(text)
    return import_files([Given(OPEN, cpu=CpuFile(path, columns or None, server))])


def only_trial(run: RunFolder) -> dict[str, object]:
    return read_tables(run).trials.iloc[0].to_dict()


def said(run: RunFolder) -> str:
    return " ".join(run.manifest().host_warnings)


def docker_line(cpu: str, memory: str, name: str = "api") -> str:
    """Return a line as `docker stats` writes it in JSON."""
    return json.dumps(
        {
            "BlockIO": "0B / 4.1kB",
            "CPUPerc": cpu,
            "Container": "c5d1e3a0b2f4",
            "ID": "c5d1e3a0b2f4",
            "MemPerc": "0.31%",
            "MemUsage": memory,
            "Name": name,
            "NetIO": "1.2kB / 3.4kB",
            "PIDs": "7",
        }
    )


def at(second: float) -> str:
    return datetime.fromtimestamp(begin_s() + second, UTC).isoformat()


def test_pidstat_is_read_as_it_is_written():
    series = read_cpu(CpuFile(STORED / "pidstat-h.txt")).series
    assert series.names == ("python", "20747")
    assert series.clock == "local"
    began = datetime(2026, 11, 27, 6, 0, 3) - datetime(1970, 1, 1)
    assert list(series.at_s - began.total_seconds()) == [-1, 0, 1, 2, 3]
    assert series.cpu_s == pytest.approx(np.cumsum([0, 0.35, 0.3069, 0.33, 0.33]))
    assert list(series.rss_bytes[1:]) == [8720 * 1024] * 4


def test_pidstat_with_seconds_of_the_epoch_has_a_wall_clock():
    series = read_cpu(CpuFile(STORED / "pidstat-H.txt")).series
    assert series.clock == "wall"
    assert list(series.at_s) == [1795759206, 1795759207, 1795759208]
    assert series.cpu_s[-1] == pytest.approx(0.34 + 0.33)


def test_psrecord_is_read_as_it_is_written():
    series = read_cpu(CpuFile(STORED / "psrecord.txt")).series
    assert series.clock == "relative"
    assert list(series.at_s[1:]) == [0, 0.5, 1.001, 1.502]
    assert series.cpu_s[-1] == pytest.approx(0.5 * 0.34 + 0.501 * 0.30 + 0.501 * 0.319)
    assert series.rss_bytes[-1] == 8.613 * MIB


def test_docker_lines_with_times_are_aligned(bare_lab, tmp_path):
    lines = [f"{at(s)} {docker_line(f'{40 + 20 * (s > 2)}.00%', '50MiB / 7GiB')}" for s in range(6)]
    run = imported(tmp_path, "\n".join(lines))
    trial = only_trial(run)
    seconds = trial["duration_s"]
    expected = (40 * 2 + 60 * (seconds - 2)) / seconds
    assert trial["server_cpu_mean_pct"] == pytest.approx(expected, abs=0.1)
    assert trial["server_cpu_peak_1s_pct"] == pytest.approx(60, abs=0.1)
    assert np.isnan(trial["server_cpu_peak_100ms_pct"])
    assert trial["server_rss_peak_bytes"] == 50 * MIB
    per_request_ms = 10 * expected * seconds / trial["requests"]
    assert trial["server_cpu_ms_per_request"] == pytest.approx(per_request_ms, rel=0.01)
    rows = read_tables(run).resources
    assert set(rows["subject"]) == {"server"}
    assert rows["dt_s"].sum() == pytest.approx(seconds, abs=0.001)
    assert (rows["cpu_pct"] * rows["dt_s"]).sum() == pytest.approx(expected * seconds, rel=0.01)
    assert "assumed" not in said(run)


def test_docker_lines_without_times_say_what_was_assumed(bare_lab, tmp_path):
    text = "".join(f"\x1b[H{docker_line('25.00%', '1GiB / 7GiB')}\x1b[K\n" for _ in range(9))
    run = imported(tmp_path, text)
    assert only_trial(run)["server_cpu_mean_pct"] == pytest.approx(25)
    assert "one sample every 0.5 s was assumed" in said(run)
    assert "cannot be aligned" in said(run)


def test_a_template_of_docker_is_read(bare_lab, tmp_path):
    lines = [f"{at(s)},api,30.5%,1.5GiB / 7GiB,21.4%,1kB / 2kB" for s in range(6)]
    trial = only_trial(imported(tmp_path, "\n".join(lines)))
    assert trial["server_cpu_mean_pct"] == pytest.approx(30.5)
    assert trial["server_rss_peak_bytes"] == 1.5 * 2**30


def test_the_servers_container_must_be_named_among_several(bare_lab, tmp_path):
    lines = [
        f"{at(s)} {docker_line(f'{cpu}%', '50MiB / 7GiB', name)}"
        for s in range(6)
        for name, cpu in (("api", 70), ("db", 20))
    ]
    with pytest.raises(LabError, match=r"api, db.*--cpu-of"):
        imported(tmp_path, "\n".join(lines))
    trial = only_trial(imported(tmp_path, "\n".join(lines), server="db"))
    assert trial["server_cpu_mean_pct"] == pytest.approx(20)
    both = only_trial(imported(tmp_path, "\n".join(lines), server="c5d1e3a0b2f4"))
    assert both["server_cpu_mean_pct"] == pytest.approx(90)
    with pytest.raises(LabError, match="has no samples of web"):
        imported(tmp_path, "\n".join(lines), server="web")


@pytest.mark.parametrize("hours", [0, 5.75, -8])
def test_times_of_an_unknown_zone_are_moved_to_the_load(bare_lab, tmp_path, hours):
    zone = timezone(timedelta(hours=hours))
    days = [datetime.fromtimestamp(begin_s() + s, zone) for s in range(-2, 7)]
    head = f"Linux 6.12.0 (lab) \t{days[0]:%m/%d/%y} \t_x86_64_\t(2 CPU)\n\n"
    columns = "# Time        UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command\n"
    rows = [
        f"{day:%H:%M:%S}  1000  42  1.00  1.00  0.00  0.00  {10 * at_s}.00  1  my api\n"
        for at_s, day in enumerate(days)
    ]
    run = imported(tmp_path, head + "".join(f"{columns}{row}\n" for row in rows))
    # pidstat's times are whole seconds, so their alignment with k6's clock may be wrong by up to
    # one second. The CPU use rises by 10 % per second, so its mean is known only approximately.
    assert 30 <= only_trial(run)["server_cpu_mean_pct"] <= 60
    assert f"taken as UTC{f'{hours:+g}'.replace('.75', ':45') if hours else ''}," in said(run)


def prometheus(*series: tuple[dict[str, str], list[tuple[float, float]]]) -> str:
    result = [
        {"metric": metric, "values": [[at_s, str(value)] for at_s, value in values]}
        for metric, values in series
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_a_counter_of_prometheus_is_cpu_time(bare_lab, tmp_path):
    of_api = {"instance": "api:9000", "job": "api"}
    counter = [(begin_s() + s, 1000 + 1.5 * s) for s in range(-2, 7)]
    memory = [(begin_s() + s, 64 * MIB) for s in range(-2, 7)]
    text = prometheus(
        ({"__name__": "process_cpu_seconds_total", **of_api}, counter),
        ({"__name__": "process_resident_memory_bytes", **of_api}, memory),
    )
    run = imported(tmp_path, text)
    trial = only_trial(run)
    assert trial["server_cpu_mean_pct"] == pytest.approx(150)
    assert trial["server_rss_peak_bytes"] == 64 * MIB
    assert "taken as the number of CPUs" not in said(run)


def test_a_rate_of_prometheus_is_taken_as_cpus(bare_lab, tmp_path):
    run = imported(tmp_path, prometheus(({}, [(begin_s() + s, 0.8) for s in range(-1, 7)])))
    assert only_trial(run)["server_cpu_mean_pct"] == pytest.approx(80)
    assert "taken as the number of CPUs in use" in said(run)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_any_csv_is_read_by_its_columns(bare_lab, tmp_path, separator):
    rows = [["when", "busy %", "mem"]]
    rows += [[f"{1000 * (begin_s() + s):.0f}", "12.5%", "2 MB"] for s in range(6)]
    text = "\n".join(separator.join(row) for row in rows)
    run = imported(tmp_path, text, time="when", cpu="busy %", memory="mem")
    trial = only_trial(run)
    assert trial["server_cpu_mean_pct"] == pytest.approx(12.5)
    assert trial["server_rss_peak_bytes"] == 2_000_000


def test_samples_of_another_time_are_refused(bare_lab, tmp_path):
    text = (STORED / "pidstat-H.txt").read_text().replace("1795759", "1700000")
    with pytest.raises(
        LabError, match=r"samples are from 2023-11-14 .* but the load was from 2026"
    ):
        imported(tmp_path, text)
    assert not list((bare_lab / "data" / "runs").glob("*"))


def test_samples_of_half_a_load_give_no_cpu_per_request(bare_lab, tmp_path):
    lines = [f"{at(s)} {docker_line('40.00%', '50MiB / 7GiB')}" for s in (1, 2)]
    run = imported(tmp_path, "\n".join(lines))
    trial = only_trial(run)
    assert trial["server_cpu_mean_pct"] == pytest.approx(40)
    assert np.isnan(trial["server_cpu_ms_per_request"])
    assert "cover 50 % of the load" in said(run)


def test_the_verdict_knows_only_the_servers_cpu(bare_lab, tmp_path):
    run = imported(tmp_path, prometheus(({}, [(begin_s() + s, 0.8) for s in range(-1, 7)])))
    trial = only_trial(run)
    assert trial["verdict"] == "inconclusive"
    assert "the server used 0.8 CPUs of an unknown number that it was" in trial["verdict_reason"]
    assert trial["verdict_cause"] in (Cause.GENERATOR_CPU_UNKNOWN, Cause.REQUESTS_FAILED)
    run.table("trials").unlink()
    rebuild(run)
    assert only_trial(run)["server_cpu_mean_pct"] == trial["server_cpu_mean_pct"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no CPU samples in a known format"),
        ("<script>alert(1)</script>", "no CPU samples in a known format"),
        ("time,cpu\n1,x\n", "no CPU samples in a known format"),
        ('{"status":"error"}', "no CPU samples in a known format"),
        (prometheus(({"job": "a"}, [(1.0, float("nan"))])), "are not numbers"),
        ("# Elapsed time CPU Real\n 0.0 -1 3\n", "negative or not a number"),
        ("# Elapsed time CPU Real\n 0.0 1e999 3\n", "negative or not a number"),
    ],
)
def test_other_files_end_in_one_sentence(tmp_path, text, said):
    path = tmp_path / "samples"
    path.write_text(text)
    with pytest.raises(LabError, match=said) as raised:
        read_cpu(CpuFile(path))
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--map", "time=a,cpu=b"], "--map and --cpu-of describe the file of --cpu"),
        (["--cpu", "x", "--map", "cpu=b"], "--map cpu=b is not valid"),
        (["--cpu", "x", "--cpu", "y"], "--cpu is given 2 times for 1 files"),
        (["--cpu", "missing.txt"], "missing.txt cannot be read"),
    ],
)
def test_wrong_options_are_refused(bare_lab, bench, options, said):
    code, _, err = bench(str(OPEN), *options, command="import")
    assert code == 2
    assert said in " ".join(err.split())
