"""Tests of `bench ab`.

Its flame graph must show the functions in which the commit `head` uses more CPU time than the
commit `base`. Its exit codes and options must agree with the documents.
"""

import re

import pytest
from built import ROOT
from made_profiles import profiles_of

from runner.commands import ab
from runner.commands.ab import DecisionOptions, _write_flame
from runner.present.why import profiles

WORK = {
    "base": {"main;handle": ("handler", 100.0)},
    "same": {"main;handle": ("handler", 100.0)},
    "head": {"main;handle": ("handler", 100.0), "main;handle;sortAll": ("handler", 40.0)},
}


@pytest.fixture
def profiled(monkeypatch):
    """Return a function that replaces the profiles of all runs.

    The function takes names of servers. Runs then have profiles of these servers, with the values
    in WORK. If the function gets no name, runs have no profiles.
    """

    def give(*servers):
        found = profiles_of({name: WORK[name] for name in servers}) if servers else None
        monkeypatch.setattr(profiles, "read_profiles", lambda _run: found)

    return give


def test_the_difference_shows_what_head_takes_more(profiled, tmp_path):
    profiled("base", "same", "head")
    file = tmp_path / "flame.svg"
    assert _write_flame(None, DecisionOptions(flame=file)) == "flame.svg"
    svg = file.read_text()
    assert "+40.00 sortAll" in svg


def test_its_address_may_be_another(profiled, tmp_path):
    profiled("base", "same", "head")
    options = DecisionOptions(flame=tmp_path / "flame.svg", flame_url="https://x.test/f.svg")
    assert _write_flame(None, options) == "https://x.test/f.svg"


@pytest.mark.parametrize("servers", [(), ("base", "same")])
def test_without_both_profiles_there_is_no_file(profiled, tmp_path, servers):
    profiled(*servers)
    file = tmp_path / "flame.svg"
    assert _write_flame(None, DecisionOptions(flame=file)) is None and not file.exists()


def test_exit_codes_are_those_of_the_documents():
    assert ab.EXIT_CODES == {"worse": 3, "not decided": 4}
    assert ab.FAIL_ABOVE_PCT == 2.5


def test_options_in_the_guide_exist(bench):
    """Each option that docs/two-commits.md names, except --runs, must exist in a command.

    The commands are `bench ab`, `bench history` and `bench run`.
    """
    told = set(re.findall(r"--[a-z][a-z-]*", (ROOT / "docs" / "two-commits.md").read_text()))
    known = "".join(bench("--help", command=name)[1] for name in ("ab", "history", "run"))
    assert told - {"--runs"} <= set(re.findall(r"--[a-z][a-z-]*", known)), "docs/two-commits.md"
