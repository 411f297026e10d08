"""Make the tables of faults in docs/reliability.md and docs/fleet.md (`make reliability`).

The tables are made from marks of the tests: a test that really injects a fault into a run has the
mark `@pytest.mark.fault(what is done, what is promised)`.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
FLEET = TESTS.parent / "docs" / "fleet.md"
OF_FLEET = ("test_fleet.py", "test_several_hosts.py")
"""Names of the test modules that inject faults into several hosts."""
BEGIN = "<!-- faults: begin -->\n"
END = "<!-- faults: end -->\n"


def faults(page: Path = PAGE) -> Iterator[tuple[str, str, str]]:
    """Yield the fault, the promise and the test of each mark, sorted by the name of the test file.

    For the page FLEET, yield only marks of the modules OF_FLEET, whose tests use several hosts.
    """
    for path in sorted(TESTS.rglob("test_*.py"), key=lambda path: path.name):
        if page == FLEET and path.name not in OF_FLEET:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            for mark in getattr(node, "decorator_list", ()):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
                    fault, promise = (ast.literal_eval(argument) for argument in mark.args)
                    yield (
                        fault,
                        promise,
                        f"`{path.name}` {node.name.removeprefix('test_').replace('_', ' ')}",
                    )


def table(page: Path = PAGE) -> str:
    """Return the table of a page as Markdown, with the rows sorted by fault."""
    rows = sorted(faults(page), key=lambda row: row[0].lower())
    lines = ["| what is done | what is promised | the test that does it |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def page(path: Path = PAGE) -> str:
    """Return the text of a page with a new table between its comments BEGIN and END."""
    text = path.read_text(encoding="utf-8")
    return text[: text.index(BEGIN)] + BEGIN + table(path) + text[text.index(END) :]


if __name__ == "__main__":
    for path in (PAGE, FLEET):
        path.write_text(page(path), encoding="utf-8")
