"""Tests of reading perf's call stacks and events from texts whose content is known."""

import gzip

import pytest

from runner.digest.categories import the_rules
from runner.digest.perf_files import parse_stacks, read_events, read_stacks
from runner.model import LabError

SCRIPT = """\
tokio-rt-worker 22318/22323 79604.431350:    2004008
    ffffffff816d5c95 vfs_read ([kernel.kallsyms])
    ffffffff81000130 entry_SYSCALL_64_after_hwframe ([kernel.kallsyms])
                a9ee <alloc::vec::Vec<T> as core::clone::Clone>::clone (/srv/server (deleted))
               8d0e1 [unknown] (/usr/sbin/nginx)

server 22318/22323 79605.500000:    1000000
               8d0e1 main.main (/server)

"""


def written(path, text):
    path.write_bytes(gzip.compress(text.encode()))
    return path


def test_a_stack_begins_with_the_threads_first_function():
    first, second = parse_stacks(SCRIPT.splitlines())
    assert first.stack == (
        "[nginx]",
        "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
        "entry_SYSCALL_64_after_hwframe_[k]",
        "vfs_read_[k]",
    )
    assert (first.period_ns, first.at_s) == (2_004_008, 79604.431350)
    assert second.stack == ("main.main",)


def test_samples_outside_the_load_do_not_count(tmp_path):
    text = SCRIPT
    found = read_stacks(written(tmp_path / "perf.txt.gz", text), 79605.0, 79606.0)
    assert found.cpu_ns == {"main.main": 1_000_000}
    assert found.samples == {"main.main": 1}


@pytest.mark.parametrize("text", ["what is this\n", SCRIPT.replace("ffffffff816d5c95", "?")])
def test_an_unknown_line_is_an_error(tmp_path, text):
    with pytest.raises(LabError, match="is damaged"):
        read_stacks(written(tmp_path / "perf.txt.gz", text), 0.0, 1e9)


def test_a_cut_off_file_is_an_error(tmp_path):
    path = written(tmp_path / "perf.txt.gz", SCRIPT)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(LabError, match="is damaged"):
        read_stacks(path, 0.0, 1e9)


def test_an_event_without_a_counter_is_not_zero(tmp_path):
    path = tmp_path / "perf-stat.json"
    rows = [("3120.000000", "context-switches"), ("<not counted>", "page-faults")]
    rows += [("<not supported>", "cycles")]
    line = '{{"counter-value" : "{}", "unit" : "", "event" : "{}"}}\n'
    path.write_text("".join(line.format(*row) for row in rows))
    counts = {event.name: event.count for event in read_events(path)}
    assert counts == {"context-switches": 3120.0, "page-faults": 0.0, "cycles": None}


CASES = {
    "kernel network": ("main.main", "do_syscall_64_[k]", "tcp_sendmsg_[k]", "_raw_spin_lock_[k]"),
    "kernel other": ("main.main", "do_syscall_64_[k]"),
    "scheduler": ("runtime.goexit.abi0", "runtime.schedule"),
    "runtime and garbage collector": ("runtime.goexit.abi0", "runtime.gcBgMarkWorker"),
    "allocator": ("main.handle", "runtime.mallocgc"),
    "HTTP": ("net/http.(*conn).serve", "bufio.(*Reader).Peek", "runtime.memmove"),
    "routing and framework": ("<axum::routing::Route as tower::Service>::call", "core::ptr::drop"),
    "JSON": ("&serde_json::ser::Compound",),
    "application": ("main.main", "main.handle"),
    "unknown": ("runtime.goexit.abi0", "nobody.knows"),
}


@pytest.mark.parametrize("category", CASES)
def test_a_stack_has_the_category_of_its_work(category):
    assert the_rules().category(CASES[category]) == category
