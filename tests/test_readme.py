"""The README's table of servers is what `bench list --markdown` prints."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from runner.catalog import load_server, server_names
from runner.cli import app
from runner.present.markup import servers_table

ROOT = Path(__file__).parents[1]


def test_the_table_of_servers_has_not_drifted() -> None:
    printed = CliRunner().invoke(app, ["list", "--markdown"])
    assert printed.exit_code == 0
    found = re.search(
        r"^<!-- servers: begin -->\n(.*)^<!-- servers: end -->$", (ROOT / "README.md").read_text(), re.S | re.M
    )
    assert found, "README.md lacks the markers of the table of servers"
    assert found.group(1) == printed.output, "run `make readme`"


def test_the_table_has_each_server_with_the_first_sentence_of_its_notes() -> None:
    servers = [load_server(name) for name in server_names()]
    lines = servers_table(servers).splitlines()
    assert len(lines) == len(servers) + 2
    nginx = next(line for line in lines if line.startswith("| `nginx`"))
    assert "| C | nginx |" in nginx and "Reference row: answers fixed bodies from Debian's package" in nginx
    assert "One worker" not in nginx
