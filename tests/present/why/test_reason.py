"""Tests of the reason why one server takes more CPU time than another, as profiles show it.

A post gives the reason. The page about the spikes of a trial says what the server runs.
"""

from dataclasses import replace

import pandas as pd
import pytest
from figure_checks import tables_of
from made_profiles import profiles_of

from runner.present.answers import findings
from runner.present.blog import chapters
from runner.present.notebook import spike_page
from runner.present.why import figures
from runner.present.why.words import load_of_trial, load_words, reason, sentences

US = {
    "axum": {"main": ("HTTP", 4.0), "main;tcp_[k]": ("kernel network", 9.0)},
    "gin": {"main": ("HTTP", 9.0), "main;tcp_[k]": ("kernel network", 9.0)},
}
LOAD = "wrk-matrix-c100-keepalive"


def of_load(profiles, load=LOAD):
    return type(profiles)(
        profiles.stacks.assign(load=load), profiles.slices.assign(load=load), profiles.counters
    )


@pytest.fixture
def tables():
    """Return a run of six blocks whose trial ids have the lab's form, bNN-SERVER-LOAD."""
    made = tables_of("six of wrk")
    names = made.trials["trial_id"].str.replace(r"^(.*)-b(\d+)$", r"b0\2-\1", regex=True)
    return replace(made, trials=made.trials.assign(trial_id=names))


def story(tables):
    return type("Story", (), {"tables": tables})()


def test_a_post_gives_the_reason_from_what_is_sure(tables, monkeypatch):
    monkeypatch.setattr(figures, "profiles_of", lambda _: of_load(profiles_of(US, noise_us=0.1)))
    (said,) = chapters.why(story(tables))
    assert load_words(tables, LOAD) in set(tables.trials["load_brief"])
    # The paragraph's first sentence already names the servers and the load. So the sentence about
    # the kinds of work does not name them again.
    quoted = findings.quoted_ratio(tables)
    assert quoted is not None and quoted.trial["load"] in set(tables.trials["load"])
    place = "On a core, with 100 kept connections (wrk-matrix),"
    assert "Under the load of the table gin takes " in said.text
    assert said.text.count("gin takes ") == 1 and place not in said.text
    assert " in HTTP" in said.text and "kernel" not in said.text
    monkeypatch.setattr(findings, "quoted_ratio", lambda _: None)
    (said,) = chapters.why(story(tables))
    assert f"{place} gin takes more CPU time per request than axum. Of the " in said.text
    assert " in HTTP" in said.text and "kernel" not in said.text


def test_the_reason_is_about_the_servers_of_the_quoted_ratio(tables, monkeypatch):
    """If a post quotes the ratio axum / gin, it gives the reason for the CPU time of these servers.

    It does so although echo takes the most CPU time.
    """
    costly = {"main": ("HTTP", 40.0), "main;tcp_[k]": ("kernel network", 9.0)}
    made = of_load(profiles_of({**US, "echo": costly}, noise_us=0.1))
    monkeypatch.setattr(figures, "profiles_of", lambda _: made)
    quoted = findings.quoted_servers(tables)
    assert quoted == {"axum", "gin"}
    (said,) = chapters.why(story(tables))
    assert " gin takes " in said.text and "echo" not in said.text
    (first,) = figures.first_sentences(tables, quoted)
    assert first.startswith("gin takes ")

    # Here actix, a server of the quoted ratio, was not profiled. So the reason is about the most
    # expensive server.
    assert reason(made, LOAD, {"axum", "actix"}).more == "echo"


def test_a_post_without_a_sure_reason_has_none(tables, monkeypatch):
    monkeypatch.setattr(figures, "profiles_of", lambda _: None)
    (said,) = chapters.why(story(tables))
    assert "CPU time per request" in said.text and "by profiles" not in said.text
    same = {"axum": US["axum"], "gin": US["axum"]}
    monkeypatch.setattr(figures, "profiles_of", lambda _: of_load(profiles_of(same, noise_us=1.0)))
    (said,) = chapters.why(story(tables))
    assert "by profiles" not in said.text
    # If only one server was profiled, there is nothing to compare.
    assert reason(of_load(profiles_of({"axum": US["axum"]})), LOAD) is None


def test_a_server_of_fixed_bodies_is_never_the_base():
    """A server that sends only fixed bodies is not compared if there are two other servers.

    nginx takes the least CPU time, but it only shows how much the machine can do.
    """
    cheap = {"main": ("HTTP", 1.0), "main;tcp_[k]": ("kernel network", 8.0)}
    profiles = of_load(profiles_of({**US, "nginx": cheap}, noise_us=0.1))
    assert reason(profiles, LOAD).less == "axum"
    (said,) = sentences(profiles, LOAD)
    assert said.startswith("gin takes ") and "nginx" not in said
    alone = of_load(profiles_of({"gin": US["gin"], "nginx": cheap}, noise_us=0.1))
    assert reason(alone, LOAD).less == "nginx"


@pytest.mark.parametrize("attempt", ["", ".a2"])
def test_a_trial_finds_the_profile_of_its_load(tables, attempt):
    profiles = of_load(profiles_of(US))
    chosen = tables.trials["server"].eq("gin") & tables.trials["trial_id"].str.endswith(LOAD)
    trial = tables.trials.loc[chosen, "trial_id"].iloc[0]
    names = tables.trials["trial_id"].replace(trial, trial + attempt)
    renamed = replace(tables, trials=tables.trials.assign(trial_id=names))
    assert load_of_trial(profiles, renamed, trial + attempt) == LOAD
    other = tables.trials.loc[tables.trials["server"].eq("gin") & ~chosen, "trial_id"].iloc[0]
    assert load_of_trial(profiles, tables, other) == ""


def test_the_page_of_spikes_says_what_the_server_runs(tables, monkeypatch):
    profiles = of_load(profiles_of(US))
    monkeypatch.setattr(figures, "profiles_of", lambda _: profiles)
    rows = tables.trials[tables.trials["server"].eq("gin")]
    trial = rows.loc[rows["trial_id"].str.endswith(LOAD), "trial_id"].iloc[0]
    case = type("Case", (), {"trial_id": trial, "row": pd.Series({"server": "gin"})})()
    page = type("Page", (), {"tables": tables, "view": type("View", (), {"case": case})()})()
    (said,) = spike_page.SpikePage._ran(page)
    assert said.text.startswith("gin was profiled under this load after its trials: 18.0 µs")
    assert "9.00 in HTTP" in said.text and "9.00 in the kernel's network code" in said.text
