"""Tests of `bench profile`: its tables, and its files for other viewers."""

import json

import pytest
import synthetic_profiles
from synthetic_profiles import LOAD


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return synthetic_profiles.build(tmp_path_factory.mktemp("profiled") / "run")


def test_the_tables_are_printed_as_json(run, bench):
    code, out, _ = bench(str(run), "--json", command="profile")
    servers = json.loads(out)["loads"][LOAD]["servers"]
    assert code == 0
    assert servers["gin"]["HTTP"]["mean"] == pytest.approx(9.35)


@pytest.mark.parametrize("option", ["--folded", "--speedscope", "--flame"])
def test_a_file_that_cannot_be_written_is_one_sentence(run, bench, option):
    code, _, err = bench(str(run), "--server", "gin", option, "/nonexistent/x", command="profile")
    words = " ".join(err.split())
    assert code == 2
    assert words == (
        "Error: /nonexistent/x cannot be written (No such file or directory): name a file in a "
        "folder that exists and that you may write to."
    )


def test_a_flame_graph_is_written_as_svg(run, bench, tmp_path):
    out = tmp_path / "gin.svg"
    code, _, err = bench(str(run), "--server", "gin", "--flame", str(out), command="profile")
    assert code == 0, err
    assert out.read_text().startswith("<svg ")


def test_files_need_one_server_and_load(run, bench, tmp_path):
    code, _, err = bench(str(run), "--folded", str(tmp_path / "x"), command="profile")
    assert code == 2
    assert "Choose one by --server and --load." in " ".join(err.split())
