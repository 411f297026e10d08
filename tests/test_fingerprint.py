"""A machine's fingerprint: the same for the same machine, another for whatever changes its numbers."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from runner.fingerprint import fingerprint

FACTS = {
    "cpu_model": "Example CPU",
    "cpus": 2,
    "memory_bytes": 8 * 2**30,
    "kernel": "6.1",
    "governor": None,
    "turbo": False,
    "hypervisor": True,
    "os": "Linux",
    "open_files": 1024,
}
# Written by hand: the keys in alphabetical order, without blanks.
TEXT = (
    '{"cpu_model":"Example CPU","cpus":2,"governor":null,"hypervisor":true,"kernel":"6.1","memory_gib":8,"turbo":false}'
)


def test_it_is_the_beginning_of_a_sha256_of_the_facts():
    assert fingerprint(FACTS) == hashlib.sha256(TEXT.encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("fact", "other"),
    [
        ("cpu_model", "Another CPU"),
        ("cpus", 4),
        ("memory_bytes", 16 * 2**30),
        ("kernel", "6.2"),
        ("governor", "performance"),
        ("turbo", True),
        ("hypervisor", False),
    ],
)
def test_whatever_changes_numbers_changes_it(fact, other):
    assert fingerprint(FACTS | {fact: other}) != fingerprint(FACTS)


def test_what_changes_no_number_does_not():
    other = FACTS | {"os": "Debian", "open_files": 20_000, "memory_bytes": 8 * 2**30 - 40 * 2**20}
    assert fingerprint(other) == fingerprint(dict(reversed(other.items()))) == fingerprint(FACTS)


def test_a_manifest_of_before_the_newer_facts_has_one_too():
    older = {key: value for key, value in FACTS.items() if key not in ("turbo", "hypervisor")}
    assert fingerprint(older) == fingerprint(older | {"turbo": None, "hypervisor": None})
    assert fingerprint(older) != fingerprint(FACTS)
    assert len(fingerprint({})) == 12
    assert fingerprint({"memory_bytes": "much"}) == fingerprint({})


def test_it_imports_nothing_of_ours():
    code = "import sys, runner.fingerprint; print([n for n in sys.modules if n.startswith('runner.')])"
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['runner.fingerprint']"
