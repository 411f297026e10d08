"""Tests of a run's manifest.

A manifest must be written as it was read, and the differences between two manifests must be found.
"""

import json

import pytest
import synthetic_run
from built import ROOT
from synthetic_database import database_manifest

from runner.manifest import Condition, Manifest
from runner.model import LabError
from runner.planning.catalog import campaign_from_manifest
from runner.store import RunFolder

COMMITTED = ("sample", "all", "seeds", "engines")
DATA = ROOT / "data"
WHOLE = synthetic_run.manifest() | database_manifest()


def stored(name):
    return json.loads((DATA / name / "run.json").read_text())


def differences(here, there):
    """Return the differences of two manifests as a dict.

    Each key is a pair of the kind and the name of a difference. Its value is a pair of the value in
    the manifest `here` and the value in the manifest `there`.
    """
    found = Manifest.of(here).differences_from(Manifest.of(there))
    return {(each.condition, each.what): (each.here, each.there) for each in found}


# --- manifests that are read and written again ----------------------------------------------------


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_run_is_written_as_it_was_read(name, tmp_path):
    RunFolder(tmp_path).write_manifest(RunFolder(DATA / name).manifest())
    assert json.loads((tmp_path / "run.json").read_text()) == stored(name)


@pytest.mark.parametrize("name", COMMITTED)
def test_a_committed_run_differs_from_itself_in_nothing(name):
    assert differences(stored(name), stored(name)) == {}


@pytest.mark.parametrize("name", COMMITTED)
def test_the_campaign_of_a_committed_run_is_read_whole(name):
    given = stored(name)["campaign"]
    campaign = campaign_from_manifest(RunFolder(DATA / name).manifest())
    assert [load.repeats for load in campaign.loads] == [load["repeats"] for load in given["loads"]]
    assert campaign.text == given["toml"]


def test_unknown_fields_are_kept():
    given = WHOLE | {"weather": {"rain": [1, None, {"mm": 2.5}]}}
    given["machine"] = WHOLE["machine"] | {"rack": None}
    given["campaign"] = WHOLE["campaign"] | {"loads": [{"workload": "static", "colour": "red"}]}
    assert Manifest.of(given).as_json() == given


def test_a_manifest_of_an_older_version_lacks_fields(tmp_path):
    older = {"schema": 1, "run_id": "old", "machine": {"cpus": 2}, "idle": None}
    (tmp_path / "run.json").write_text(json.dumps(older))
    manifest = RunFolder(tmp_path).manifest()
    assert manifest.machine.cpus == 2
    assert manifest.machine.kernel is None
    assert manifest.placement.server == ()
    assert manifest.campaign.scale == 1.0
    assert manifest.idle_cpus == "system"
    assert manifest.day == ""
    assert manifest.as_json() == older


@pytest.mark.parametrize("name", ["machine", "placement", "campaign", "tools", "host_warnings"])
def test_a_part_that_is_null_counts_as_missing(name):
    assert Manifest.of(WHOLE | {name: None}) == Manifest.of(
        {key: value for key, value in WHOLE.items() if key != name}
    )


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"machine": {"cpus": "2"}}, "machine.cpus: Input should be a valid integer"),
        ({"campaign": [1]}, "campaign: it is not a JSON object"),
        ({"machine": {"memory_bytes": "much"}}, "machine.memory_bytes: Input should be a valid"),
        ({"machine": []}, "machine: it is not a JSON object"),
        ({"tools": {"k6": 1.8}}, "tools.k6: Input should be a valid string"),
        ({"git": {"dirty": "no"}}, "git.dirty: Input should be a valid boolean"),
        ({"host_warnings": "hot"}, "host_warnings: Input should be a valid tuple"),
        ({"placement": {"server": [0.5]}}, "placement.server.0: Input should be a valid integer"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(facts, words, tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(WHOLE | facts))
    with pytest.raises(LabError, match=r"run\.json is not a manifest of the lab: ") as error:
        RunFolder(tmp_path).manifest()
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_manifest_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        Manifest.of(WHOLE).engine = "docker"


# --- differences between two manifests ------------------------------------------------------------

MACHINE = WHOLE["machine"]
CAMPAIGN = WHOLE["campaign"]
PLACEMENT = WHOLE["placement"]
DATABASE = WHOLE["database"]
HOSTS = [{"roles": "server", "machine": MACHINE}, {"roles": "generator", "machine": MACHINE}]
OTHERS = [HOSTS[0], {"roles": "generator", "machine": MACHINE | {"cpus": 8}}]
OWN = {"path": "/a", "files": [["my.js", "a" * 64]]}
KINDS = [
    (Condition.MACHINE, "kernel", {"machine": MACHINE | {"kernel": "6.2"}}, ("6.1", "6.2")),
    (Condition.MACHINE, "turbo", {"machine": MACHINE | {"turbo": True}}, (None, True)),
    (
        Condition.MACHINE,
        "memory",
        {"machine": MACHINE | {"memory_bytes": 16 * 2**30}},
        ("8 GiB", "16 GiB"),
    ),
    (Condition.ENGINE, "engine", {"engine": "docker"}, ("process", "docker")),
    (Condition.IDLE_CPUS, "idle CPUs", {"idle": "polling"}, ("system", "polling")),
    (
        Condition.CPUS,
        "CPUs of the server",
        {"placement": PLACEMENT | {"server": [0, 1]}},
        ((0,), (0, 1)),
    ),
    (
        Condition.CPUS,
        "CPUs of the generator",
        {"placement": PLACEMENT | {"generator": [2]}},
        ((1,), (2,)),
    ),
    (
        Condition.CPUS,
        "hosts of the CPUs",
        {"placement": PLACEMENT | {"hosts": ["1", "2", "1"]}},
        ((), ("1", "2", "1")),
    ),
    (
        Condition.DATABASE_CPUS,
        "CPUs of the database",
        {"placement": PLACEMENT | {"database": [2]}},
        ((1,), (2,)),
    ),
    (
        Condition.SAMPLING,
        "samples per second",
        {"campaign": CAMPAIGN | {"sample_hz": 10.0}},
        (None, 10.0),
    ),
    (Condition.TOOL, "wrk", {"tools": WHOLE["tools"] | {"wrk": "4.2.0"}}, ("4.1.0", "4.2.0")),
    (Condition.TOOL, "vegeta", {"tools": WHOLE["tools"] | {"vegeta": "12"}}, (None, "12")),
    (
        Condition.DATABASE,
        "PostgreSQL",
        {"database": DATABASE | {"version": "16.1"}},
        ("15.18", "16.1"),
    ),
    (
        Condition.DATABASE,
        "its settings",
        {"database": DATABASE | {"settings": {"fsync": "off"}}},
        (DATABASE["settings"], {"fsync": "off"}),
    ),
    (Condition.IMAGE, "the database", {"database": DATABASE | {"image": "sha"}}, (None, "sha")),
    (
        Condition.COMMIT,
        "commit",
        {"git": {"commit": "1" * 40, "dirty": True}},
        ("0" * 12, f"{'1' * 12} with uncommitted changes"),
    ),
    (Condition.INPUT, "workloads/load.js", {"inputs": {"workloads/load.js": "a"}}, (None, "a")),
]


@pytest.mark.parametrize(
    ("condition", "what", "facts", "values"), KINDS, ids=[f"{kind[1]}" for kind in KINDS]
)
def test_a_difference_is_found_alone(condition, what, facts, values):
    assert differences(WHOLE, WHOLE | facts) == {(condition, what): values}
    assert differences(WHOLE | facts, WHOLE) == {(condition, what): values[::-1]}


def test_every_kind_of_condition_can_differ():
    others = {
        Condition.HOSTS,
        Condition.REQUESTS,
        Condition.COMPILER,
        Condition.BINARY,
        Condition.PROGRAM,
        Condition.VARIABLES,
    }
    assert {kind[0] for kind in KINDS} | others == set(Condition)


def test_another_machine_among_the_hosts_is_a_difference():
    (key,) = differences(WHOLE | {"hosts": HOSTS}, WHOLE | {"hosts": OTHERS})
    assert key == (Condition.HOSTS, "machines of the hosts")
    assert differences(WHOLE | {"hosts": HOSTS}, WHOLE | {"hosts": HOSTS}) == {}
    assert key in differences(WHOLE, WHOLE | {"hosts": HOSTS})


@pytest.mark.parametrize("own", [OWN, [OWN, OWN]], ids=["one API", "several"])
def test_what_is_sent_to_an_api_may_differ(own):
    there = json.loads(json.dumps(own).replace("/a", "/b").replace("aaa", "bbb"))
    found = differences(
        WHOLE | {"campaign": CAMPAIGN | {"own": own}},
        WHOLE | {"campaign": CAMPAIGN | {"own": there}},
    )
    assert found == {
        (Condition.REQUESTS, "path"): ("/a", "/b"),
        (Condition.REQUESTS, "script"): (("my.js aaaaaaaaaaaa",), ("my.js bbbbbbbbbbbb",)),
    }


def test_another_binary_is_another_program_and_another_image_of_the_same_binary_is_not():
    one = WHOLE | {"artifacts": {"gin": "a"}, "images": {"gin": "x", "nginx": "y"}}
    assert differences(one, one | {"artifacts": {"gin": "b"}}) == {
        (Condition.PROGRAM, "gin"): (("a",), ("b",)),
        (Condition.BINARY, "gin"): ("a", "b"),
    }
    assert differences(one, one | {"images": {"gin": "z", "nginx": "y"}}) == {
        (Condition.IMAGE, "gin"): ("x", "z")
    }
    assert set(differences(one, one | {"images": {"gin": "x", "nginx": "z"}})) == {
        (Condition.PROGRAM, "nginx"),
        (Condition.IMAGE, "nginx"),
    }


def test_a_servers_variables_are_part_of_its_program():
    one = WHOLE | {"artifacts": {"gin": "a", "echo": "b"}}
    set_ = CAMPAIGN | {"environment": [["gin", "GOGC", "off"]]}
    assert differences(one, one | {"campaign": set_}) == {
        (Condition.VARIABLES, "variables of the servers"): ((), ("GOGC=off of gin",)),
        (Condition.PROGRAM, "gin"): (("a",), ("a", "GOGC=off of gin")),
    }


def test_another_compiler_is_a_difference_if_both_runs_know_it():
    old = WHOLE | {"compilers": {"gin": "go 1.25.1", "axum": "rustc 1.95.0"}}
    new = WHOLE | {"compilers": {"gin": "go 1.26.8", "axum": "rustc 1.95.0"}}
    assert differences(old, new) == {
        (Condition.COMPILER, "compiler of gin"): ("go 1.25.1", "go 1.26.8")
    }
    assert differences(WHOLE, new) == differences(new, WHOLE) == {}
    assert differences(old, WHOLE | {"compilers": {"axum": "rustc 1.95.0"}}) == {}


SAME = {
    "run_id": "another",
    "started_at": "2027-01-01T00:00:00+00:00",
    "seed": 8,
    "engine_reason": "asked for",
    "packages": {"numpy": "3"},
    "claims_sha256": "f",
    "until": "5%",
    "host_warnings": ["It is hot."],
    "machine": MACHINE | {"os": "Other", "open_files": 7, "memory_bytes": 8 * 2**30 - 40 * 2**20},
    "campaign": CAMPAIGN | {"title": "Another", "scale": 0.5},
}


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_number_is_no_difference(name):
    assert differences(WHOLE, WHOLE | {name: SAME[name]}) == {}


def test_values_are_said_in_words():
    here = WHOLE
    there = WHOLE | {
        "placement": PLACEMENT | {"server": [0, 1], "generator": []},
        "tools": {"k6": "1.8.1", "nginx": "1.22", "python": "3.11"},
        "database": DATABASE | {"settings": {"fsync": "off", "wal_level": "minimal"}},
    }
    words = list(map(str, Manifest.of(here).differences_from(Manifest.of(there))))
    assert words[:3] == [
        "CPUs of the server (0 and 0, 1)",
        "CPUs of the generator (1 and none)",
        "wrk (4.1.0 and unknown)",
    ]
    assert words[3].endswith(" and fsync off, wal_level minimal)")
