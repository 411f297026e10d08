"""The rooms' walls: imports point one way, and each wing stays free of what it must not know."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "runner"
WINGS = ("measure", "digest", "present")
FORBIDDEN = {
    "measure": {"pandas", "matplotlib", "seaborn"},
    "digest": {"docker", "psutil", "matplotlib", "seaborn"},
    "present": {"docker", "psutil"},
}


def imported(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def modules(folder):
    return sorted(folder.rglob("*.py"))


@pytest.mark.parametrize("wing", WINGS)
def test_wings_never_import_each_other_nor_what_stands_above_them(wing):
    others = {f"runner.{other}" for other in {*WINGS, "cli", "commands", "running", "audit", "console"} - {wing}}
    for path in modules(PACKAGE / wing):
        for name in imported(path):
            assert not any(name == other or name.startswith(f"{other}.") for other in others), f"{path} imports {name}"


BASE = {"frames": (), "case": ("frames",)}
"""The modules of `present` that every room may look into, each with those that it may look into itself."""
ROOMS = {
    "look": (),
    "statistics": (),
    "chart": ("look", "statistics"),
    "figures": ("look", "statistics", "chart"),
    "answers": ("look", "statistics", "chart", "figures"),
    "published": ("look", "statistics", "chart", "figures", "answers"),
    "spikes": ("look", "statistics", "chart", "figures", "answers"),
    "comparison": ("look", "statistics", "chart", "figures", "answers"),
    "notebook": ("look", "statistics", "chart", "figures", "answers", "published", "spikes", "comparison"),
    "blog": ("look", "statistics", "chart", "figures", "answers", "published", "spikes", "notebook"),
}
"""The rooms of `present`, each with those that it may look into."""


def test_the_rooms_of_present_are_known():
    assert {path.name for path in (PACKAGE / "present").iterdir() if (path / "__init__.py").exists()} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_look_one_way(room):
    allowed = {room, *ROOMS[room], *BASE}
    for path in modules(PACKAGE / "present" / room):
        for name in imported(path):
            if name.startswith("runner.present."):
                assert name.split(".")[2] in allowed, f"{path} imports {name}"


@pytest.mark.parametrize("module", BASE)
def test_what_all_rooms_look_into_looks_into_none(module):
    found = imported(PACKAGE / "present" / f"{module}.py")
    ours = {name.split(".")[2] for name in found if name.startswith("runner.present.")}
    assert ours <= set(BASE[module]), ours


@pytest.mark.parametrize("wing", WINGS)
def test_wings_stay_free_of_foreign_tools(wing):
    for path in modules(PACKAGE / wing):
        assert not {name.split(".")[0] for name in imported(path)} & FORBIDDEN[wing], path


def test_planning_looks_at_the_model_and_the_store_only():
    for path in modules(PACKAGE / "planning"):
        ours = {name for name in imported(path) if name.startswith("runner.")}
        assert all(name.startswith(("runner.model", "runner.store", "runner.planning")) for name in ours), path


def test_the_contract_looks_at_the_model_and_the_reader_of_responses_only_and_measure_alone_at_it():
    for path in modules(PACKAGE):
        names = {name for name in imported(path) if name.startswith("runner.")}
        if path.is_relative_to(PACKAGE / "contract"):
            allowed = ("runner.contract", "runner.model", "runner.http_response")
            assert all(name.startswith(allowed) for name in names), path
        elif not path.is_relative_to(PACKAGE / "measure"):
            assert not any(name.startswith("runner.contract") for name in names), path


def test_responses_are_read_in_one_module():
    for path in set(modules(PACKAGE)) - {PACKAGE / "audit" / "fetching.py"}:  # which reads no server's response
        assert not imported(path) & {"http.client", "urllib.request", "requests", "httpx"}, path


def test_the_model_imports_nothing_of_ours_and_the_store_only_the_model():
    for module in ("model.py", "limits.py", "measurement.py", "http_response.py", "columns.py", "fingerprint.py"):
        assert not [name for name in imported(PACKAGE / module) if name.startswith("runner")]
    ours = {name for name in imported(PACKAGE / "store.py") if name.startswith("runner.")}
    assert ours and all(name.startswith("runner.model") for name in ours)


def test_only_the_store_and_the_catalog_know_where_things_lie():
    """No other module spells the name of a folder of data/."""
    for path in modules(PACKAGE):
        if path.name != "store.py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" not in node.value:
                    assert "data/runs" not in node.value or path.parent.name == "commands", f"{path}: {node.value!r}"


def test_no_module_is_longer_than_a_head_and_no_function_than_a_screen():
    for path in modules(PACKAGE):
        text = path.read_text()
        assert len(text.splitlines()) <= 500, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"
