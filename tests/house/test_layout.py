"""Tests of the layout of tests/.

The folders of tests/ mirror the rooms of `runner/`, helpers are in tests/support/, and no test
module imports another test module.
"""

import ast
from collections import Counter
from pathlib import Path

import pytest
from built import ROOT

TESTS = ROOT / "tests"
MODULES = sorted(TESTS.rglob("test_*.py"))
ROOMS = {path.name for path in (ROOT / "runner").iterdir() if (path / "__init__.py").exists()}
OF_PRESENT = {
    path.name for path in (ROOT / "runner" / "present").iterdir() if (path / "__init__.py").exists()
}
OWN_SUBJECTS = {"docs", "faults", "house", "setup", "store", "support", "truth"}
"""Folders of tests/ for which `runner/` has no room of the same name.

The tests in these folders are about something else than a room.
"""


def imported(path: Path) -> set[str]:
    """Return the modules that a module imports, at its top or within functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def folders(parent: Path) -> set[str]:
    return {path.name for path in parent.iterdir() if any(path.rglob("*.py"))}


@pytest.mark.parametrize("path", sorted(TESTS.rglob("*.py")), ids=lambda path: path.name)
def test_no_module_imports_a_test(path):
    assert not {name for name in imported(path) if name.split(".")[-1].startswith("test_")}


def test_each_folder_is_a_room_or_a_known_subject():
    assert folders(TESTS) <= ROOMS | OWN_SUBJECTS
    assert not list(TESTS.glob("test_*.py")), "move it to the folder of its room"
    assert folders(TESTS / "present") <= OF_PRESENT


def test_only_support_and_conftest_hold_helpers():
    helpers = set(TESTS.rglob("*.py")) - set(MODULES) - {TESTS / "conftest.py"}
    assert {path.relative_to(TESTS).parts[0] for path in helpers} == {"support"}
    assert not list((TESTS / "support").rglob("test_*.py"))


def test_names_of_modules_are_unique():
    """No two test modules have the same name.

    The tables of faults in docs/ name only the module of a test, without its folder.
    """
    count = Counter(path.name for path in MODULES)
    assert [name for name, times in count.items() if times > 1] == []
