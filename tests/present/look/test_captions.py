"""Tests of the facts about a run that are written below figures and on pages."""

from figure_checks import changed, tables_of, with_facts

from runner.manifest import Manifest
from runner.present.look import captions


def test_compilers_are_named_with_their_servers() -> None:
    known = {"gin": "go 1.26.8", "echo": "go 1.26.8", "axum": "rustc 1.95.0"}
    manifest = Manifest.of({"engine": "docker", "compilers": known})
    found = captions.compilers(manifest, ["gin", "nginx", "axum", "echo"])
    assert found == "go 1.26.8 (gin, echo), rustc 1.95.0 (axum), unknown (nginx)"


def test_compilers_of_an_older_run_are_unknown() -> None:
    older = with_facts(tables_of("all"), compilers=None)
    assert captions.manifest_facts(older.manifest)["Compilers"] == "unknown"


def test_a_run_without_servers_of_the_lab_has_no_compilers() -> None:
    assert "Compilers" not in captions.manifest_facts(Manifest.of({"engine": None}))


def test_a_run_says_when_where_and_how_it_was_measured() -> None:
    """One line says when, on which machine and how a run was measured.

    The sample ran in containers on a virtual machine. If servers ran as plain processes, the line
    says so. If the date is unknown, the line has no date. A run without a sealed trial has no line.
    """
    sample = tables_of("sample")
    said = captions.measured(sample)
    day = sample.manifest.started_at[:10]
    assert said.startswith(
        f"Measured on {day} on AMD EPYC, 2 CPUs (a virtual machine), servers in containers: "
    )
    assert f": {sample.trials['status'].eq('sealed').sum()} trials, " in said
    processes = captions.measured(with_facts(sample, engine="process", started_at=None))
    assert processes.startswith("Measured on AMD EPYC") and "as plain processes: " in processes
    assert captions.measured(changed(sample, status="failed")) == ""


def test_servers_that_ran_beside_containers_are_named() -> None:
    for names, kind in ((["a"], "a ran as a plain process"), (["a", "b"], "a and b ran as plain")):
        manifest = Manifest.of({"engine": "docker", "campaign": {"processes": names}})
        assert kind in captions.manifest_facts(manifest)["Engine"]
