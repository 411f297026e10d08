"""Tell what kind of work a call stack does, by the rules of categories.toml."""

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runner.profiled import KERNEL

Observed = Literal["server", "database"]
KERNEL_OTHER = "kernel other"
UNKNOWN = "unknown"
_PASS = ""
"""Category of functions that only help their callers, such as functions that copy memory.

A call stack that ends with such a function gets the category of the function's caller.
"""
_BEFORE = ("<", "&", "*", "dyn ", "mut ", "const ")


@dataclass(frozen=True)
class Rules:
    """Rules that map the beginning of a function's name to a category."""

    kernel: Mapping[str, str]
    program: Mapping[str, str]

    def category(self, stack: Sequence[str]) -> str:
        """Return the category of a call stack.

        `stack` lists the functions of the stack, from the thread's first function to the running
        function.
        """
        if not stack:
            return UNKNOWN
        in_kernel = stack[-1].endswith(KERNEL)
        for function in reversed(stack):
            if function.endswith(KERNEL) != in_kernel:
                # The remaining functions belong to the program that called the kernel. They do not
                # show what work the kernel did.
                break
            if found := _first(function, self, in_kernel):
                return found
        return KERNEL_OTHER if in_kernel else UNKNOWN

    def __hash__(self) -> int:
        """Return the object's id as the hash.

        The cache of `_first` needs a hash of the rules, but no hash can be computed from the
        mappings, because mappings are mutable.
        """
        return id(self)


@functools.lru_cache(maxsize=100_000)
def _first(function: str, rules: Rules, in_kernel: bool) -> str:
    """Return the category of a single function, by the longest rule that matches its name.

    Return an empty text if no rule matches the function's name, or if the category is `_PASS`.
    """
    known = rules.kernel if in_kernel else rules.program
    name = function.removesuffix(KERNEL)
    while name.startswith(_BEFORE):
        name = name.removeprefix(next(each for each in _BEFORE if name.startswith(each)))
    fitting = (prefix for prefix in known if name.startswith(prefix))
    return known.get(max(fitting, key=len, default=""), "")


@functools.cache
def the_rules(subject: Observed = "server") -> Rules:
    """Return the rules of categories.toml for servers, or for PostgreSQL's processes."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        tables = tomllib.load(file)

    def flat(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
        return {prefix: category for category, prefixes in table.items() for prefix in prefixes}

    passed = dict.fromkeys(tables["pass"]["program"], _PASS)
    own = {"server": flat(tables["program"]) | passed, "database": flat(tables["postgres"])}
    return Rules(flat(tables["kernel"]), own[subject])
