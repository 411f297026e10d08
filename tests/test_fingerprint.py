"""A machine's fingerprint: the same for the same machine, another for whatever changes its numbers."""

import hashlib

from runner.calibration import fingerprint

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


def test_whatever_changes_numbers_changes_it():
    other = {"cpu_model": "Another CPU", "cpus": 4, "memory_bytes": 16 * 2**30, "kernel": "6.2"}
    other |= {"governor": "performance", "turbo": True, "hypervisor": False}
    found = {fingerprint(FACTS | {fact: value}) for fact, value in other.items()} | {fingerprint(FACTS)}
    assert len(found) == len(other) + 1


def test_what_changes_no_number_does_not():
    other = FACTS | {"os": "Debian", "open_files": 20_000, "memory_bytes": 8 * 2**30 - 40 * 2**20}
    assert fingerprint(other) == fingerprint(dict(reversed(other.items()))) == fingerprint(FACTS)


def test_a_manifest_of_before_the_newer_facts_has_one_too():
    older = {key: value for key, value in FACTS.items() if key not in ("turbo", "hypervisor")}
    assert fingerprint(older) == fingerprint(older | {"turbo": None, "hypervisor": None})
    assert fingerprint(older) != fingerprint(FACTS)
    assert len(fingerprint({})) == 12
    assert fingerprint({"memory_bytes": "much"}) == fingerprint({})
