"""Tests of the options of a command that are grouped in dataclasses."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer
from typer.testing import CliRunner

from runner.commands.options import ApiOptions, CampaignOptions, grouped


@dataclass(frozen=True)
class Size:
    many: Annotated[int, typer.Option(min=1, help="How many.")] = 3
    names: Annotated[list[str] | None, typer.Option("--name", help="Which.")] = None


@dataclass(frozen=True)
class Place:
    where: Annotated[str, typer.Argument(help="Where.")] = "here"


def ask(*arguments):
    """Call a command that has two groups of options and one option of its own.

    Return the result of the call, and the values that the command received.
    """
    seen = []
    app = typer.Typer()

    @app.command()
    @grouped(Size, Place)
    def command(size: Size, place: Place, loud: bool = False) -> None:
        """Record the values of the options."""
        seen.extend([size, place, loud])

    return CliRunner().invoke(app, arguments), seen


def test_each_field_of_a_group_is_an_option_with_its_default():
    assert ask()[1] == [Size(), Place(), False]
    given = ["--many", "5", "--name", "a", "--name", "b", "there", "--loud"]
    assert ask(*given)[1] == [Size(5, ["a", "b"]), Place("there"), True]


def test_the_bounds_and_the_help_of_a_field_hold():
    refused, seen = ask("--many", "0")
    assert refused.exit_code == 2 and seen == []
    said = ask("--help")[0].output
    assert all(
        words in said for words in ("Record the values of the options.", "How many.", "Where.")
    )


def test_no_option_of_bench_run_is_in_both_groups():
    names = [each.name for group in (CampaignOptions, ApiOptions) for each in fields(group)]
    assert len(names) == len(set(names))
    assert {"campaign", "resume", "url", "script"} <= set(names)
