"""Tests of the words around figures, and on pages about a run."""

from figure_checks import tables_of

from runner.manifest import Manifest
from runner.present.look import captions


def test_compilers_are_named_with_their_servers() -> None:
    known = {"gin": "go 1.26.8", "echo": "go 1.26.8", "axum": "rustc 1.95.0"}
    manifest = Manifest.of({"engine": "docker", "compilers": known})
    found = captions.compilers(manifest, ["gin", "nginx", "axum", "echo"])
    assert found == "go 1.26.8 (gin, echo), rustc 1.95.0 (axum), unknown (nginx)"


def test_compilers_of_an_older_run_are_unknown() -> None:
    assert captions.manifest_facts(tables_of("seeds").manifest)["Compilers"] == "unknown"


def test_a_run_without_servers_of_the_lab_has_no_compilers() -> None:
    assert "Compilers" not in captions.manifest_facts(Manifest.of({"engine": None}))
