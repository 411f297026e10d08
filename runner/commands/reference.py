"""Tables that `bench list` prints for the documentation: all commands and all campaigns."""

from collections.abc import Sequence
from typing import Any

from runner.model import Campaign

EVERYWHERE = ("help", "data")
"""Options that every command has. The page of commands describes them only once."""


def campaigns_table(campaigns: Sequence[Campaign]) -> str:
    """Return a Markdown table of campaigns, with the name and the title of each campaign."""
    import pandas as pd

    from runner.present.look.markup import to_markdown

    rows = [(f"`{each.name}`", each.title) for each in campaigns]
    return to_markdown(pd.DataFrame(rows, columns=["campaign", "measures"]))


def commands_page(program: Any) -> str:
    """Return all commands of a program (a click group) as Markdown, with the texts of `--help`."""
    return "\n\n".join(_command(name, each) for name, each in program.commands.items())


def _command(name: str, command: Any) -> str:
    """Return a command's heading, its help, and a table of its arguments and options."""
    import pandas as pd

    from runner.present.look.markup import to_markdown

    given = [each for each in command.params if each.name not in EVERYWHERE and not each.hidden]
    arguments = [each for each in given if each.param_type_name == "argument"]
    heading = " ".join([f"### bench {name}", *map(_placeholder, arguments)])
    said = [" ".join(part.split()) for part in (command.help or "").split("\n\n")]
    parts = [heading, *said]
    if given:
        rows = [(f"`{_written(each)}`", each.help or "") for each in given]
        parts.append(to_markdown(pd.DataFrame(rows, columns=["argument or option", "meaning"])))
    return "\n\n".join(parts)


def _placeholder(argument: Any) -> str:
    """Return an argument as a usage line shows it: `[CAMPAIGN]`, `RUN...`."""
    name = argument.name.upper() + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _written(given: Any) -> str:
    """Return an argument or option as a user types it: `RUN`, `--json`, `--budget TIME`.

    An option without a `metavar` has a number as its value, shown as `N`. A flag that can also be
    switched off is shown with both of its names: `--profile / --no-profile`.
    """
    if given.param_type_name == "argument":
        return _placeholder(given)
    if given.is_flag:
        return " / ".join([given.opts[0], *given.secondary_opts])
    return f"{given.opts[0]} {given.metavar or 'N'}"
