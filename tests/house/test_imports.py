"""Tests of the rules that say which modules of the lab may import which other modules.

A room is a folder of `runner/` or of `runner/present/`. Rooms import each other in one direction
only. The three largest rooms, the wings, do not import each other at all.
"""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "runner"
WINGS = ("measure", "digest", "present")
FORBIDDEN = {
    "measure": {"pandas", "matplotlib", "seaborn"},
    "digest": {"docker", "psutil", "matplotlib", "seaborn"},
    "present": {"docker", "psutil"},
}
BASE = "frames"  # module of `present` that every room of `present` may import
ROOMS = {
    "look": (),
    "statistics": (),
    "comparison": ("look", "statistics", "chart"),
    "chart": ("look", "statistics"),
    "figures": ("look", "statistics", "comparison", "chart"),
    "answers": ("look", "statistics", "comparison", "chart", "figures"),
    "published": ("look", "statistics", "comparison", "chart", "figures", "answers"),
    "why": ("look", "statistics", "comparison", "chart"),
    "spikes": ("look", "statistics", "chart", "figures", "answers"),
    "two_runs": ("look", "statistics", "comparison", "chart", "figures", "answers"),
    "two_commits": ("look", "statistics", "comparison", "chart"),
    "notebook": (
        "look",
        "statistics",
        "comparison",
        "chart",
        "figures",
        "answers",
        "published",
        "spikes",
        "two_runs",
        "why",
    ),
    "blog": (
        "look",
        "statistics",
        "comparison",
        "chart",
        "figures",
        "answers",
        "published",
        "spikes",
        "notebook",
        "why",
    ),
}
"""For each room of `present`, the other rooms of `present` that its modules may import."""
ALLOWED = {
    "planning": (
        *("generator_traits", "shapes", "flat", "manifest", "model", "places", "profiled", "store"),
        "planning",
    ),
    "model": ("generator_traits", "shapes", "flat"),
    "flat": ("generator_traits", "shapes"),
    "contract": ("model", "http_response", "contract"),
    "manifest": ("measurement",),
    "places": ("model",),
    "store": ("generator_traits", "manifest", "model", "places", "profiled"),
    "verdict": ("model", "measurement", "verdict"),
    **dict.fromkeys(
        (
            "generator_traits",
            "shapes",
            "measurement",
            "http_response",
            "columns",
            "served",
            "profiled",
        ),
        (),
    ),
}
"""For each room or module with restricted imports, the rooms and modules that it may import."""


def imported(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def modules(name="."):
    """Return the paths of all modules in the folder `name`, or the path of the module `name`."""
    return sorted((PACKAGE / name).rglob("*.py")) or [PACKAGE / f"{name}.py"]


def seen(path, inside="runner"):
    """Return the names of the rooms and modules of the package `inside` that a module imports."""
    return {
        name.removeprefix(f"{inside}.").split(".")[0]
        for name in imported(path)
        if name.startswith(f"{inside}.")
    }


@pytest.mark.parametrize("wing", WINGS)
def test_wings_import_neither_each_other_nor_what_is_above(wing):
    """A wing must import no other wing and no library that is reserved for other wings.

    Nor must it import a room or module that uses the wings, such as `running` or `cli`.
    """
    for path in modules(wing):
        assert not seen(path) & {*WINGS, "cli", "commands", "running", "audit", "console"} - {
            wing
        }, path
        assert not {name.split(".")[0] for name in imported(path)} & FORBIDDEN[wing], path


def test_the_rooms_of_present_are_known():
    assert {
        path.name for path in (PACKAGE / "present").iterdir() if (path / "__init__.py").exists()
    } == set(ROOMS)


@pytest.mark.parametrize("room", [*ROOMS, BASE])
def test_rooms_look_one_way(room):
    allowed = {room, *ROOMS[room], BASE} if room in ROOMS else set()
    for path in modules(f"present/{room}"):
        assert seen(path, "runner.present") <= allowed, path


@pytest.mark.parametrize("name", ALLOWED)
def test_what_stands_below_looks_at_little(name):
    for path in modules(name):
        assert seen(path) <= set(ALLOWED[name]), path


def test_no_modules_import_each_other_in_a_circle():
    """No modules import each other in a circle.

    Imports within functions count, too, although Python allows circles of such imports.
    """
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in modules()]
    named = {
        name.removesuffix(".__init__"): path for name, path in zip(names, modules(), strict=True)
    }
    TopologicalSorter(
        {name: imported(path) & set(named) - {name} for name, path in named.items()}
    ).prepare()


def test_responses_are_read_in_one_module():
    """Only the lab's own reader reads the responses of servers.

    Therefore no module may import a library that reads responses, and only the rooms `contract` and
    `measure` may import `contract`.
    """
    for path in modules():
        if not path.is_relative_to(PACKAGE / "contract") and not path.is_relative_to(
            PACKAGE / "measure"
        ):
            assert "contract" not in seen(path), path
        # The module audit/reading.py may import such a library, because it downloads published
        # tables, and does not read responses of the servers that are measured.
        if path != PACKAGE / "audit" / "reading.py":
            assert not imported(path) & {"http.client", "urllib.request", "requests", "httpx"}, path


def test_only_the_store_and_the_commands_know_where_runs_lie():
    for path in modules():
        if path.name != "store.py" and path.parent.name != "commands":
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Constant)
                    and isinstance(node.value, str)
                    and "\n" not in node.value
                ):
                    assert "data/runs" not in node.value, f"{path}: {node.value!r}"
