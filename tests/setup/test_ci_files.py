"""Tests of the GitHub action and of the example workflows.

The files must be valid by the published schemas, and the action's step must run.
"""

import json
import os
import subprocess

import jsonschema
import pytest
import yaml
from built import ROOT
from real_lab import HERE, program

from runner.commands.ab import EXIT_CODES

SCHEMAS = HERE / "schemas"
ACTION = ROOT / "action.yml"
FILES = {
    "github-actions": ACTION,
    "github-workflows": ROOT / "examples" / "ci" / "github.yml",
    "gitlab-ci": ROOT / "examples" / "ci" / "gitlab.yml",
}
BENCH = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$ARGUMENTS"
while [ $# -gt 0 ]; do
  if [ "$1" = --markdown ] && [ -n "$SAID" ]; then echo "$SAID" > "$2"; fi
  shift
done
exit "$CODE"
"""


def read(path):
    """Return a YAML file as a dict.

    GitHub's key `on` is restored, because YAML 1.1 reads it as true.
    """
    found = yaml.safe_load(path.read_text())
    return {"on" if key is True else key: value for key, value in found.items()}


@pytest.mark.parametrize("kind", FILES)
def test_files_are_valid_by_the_published_schema(kind):
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
    checker = jsonschema.validators.validator_for(schema)(schema)
    assert [each.message for each in checker.iter_errors(read(FILES[kind]))] == []
    assert list(checker.iter_errors({"jobs": 1, "runs": 1, "bench": 1})), (
        "the schema forbids nothing"
    )


def steps():
    return read(ACTION)["runs"]["steps"]


def environment(step, **inputs):
    """Return the environment of a step, with defaults for the inputs that are not given."""
    defaults = {name: each.get("default", "") for name, each in read(ACTION)["inputs"].items()}
    values = defaults | inputs
    found = {}
    for name, text in step.get("env", {}).items():
        key = text.removeprefix("${{ inputs.").removesuffix(" }}")
        found[name] = str(values[key])
    return found


def run(tmp_path, code, said="**x**", **inputs):
    """Run the action's step that compares commits, as GitHub runs it, with a fake `bench`.

    Return the step's exit code, outputs and summary, and the arguments of `bench`.
    """
    step = next(each for each in steps() if each.get("id") == "ab")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    program(bin_ / "bench", BENCH)
    files = {name: tmp_path / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    env = {
        "PATH": f"{bin_}:{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "ARGUMENTS": str(tmp_path / "arguments"),
        "CODE": str(code),
        "SAID": said,
        **{name: str(path) for name, path in files.items()},
        **environment(step, **inputs),
    }
    script = tmp_path / "step.sh"
    script.write_text(step["run"])
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    summary = files["GITHUB_STEP_SUMMARY"]
    shown = summary.read_text() if summary.exists() else ""
    return done.returncode, outputs, shown, (tmp_path / "arguments").read_text().splitlines()


@pytest.mark.parametrize(
    ("code", "inputs", "ended", "outcome"),
    [
        (0, {}, 0, "tie"),
        (1, {}, 1, "error"),
        (2, {}, 2, "error"),
        (EXIT_CODES["worse"], {}, 3, "worse"),
        (EXIT_CODES["not decided"], {}, 4, "undecided"),
        (EXIT_CODES["not decided"], {"undecided": "pass"}, 0, "undecided"),
    ],
)
def test_the_step_ends_as_the_outcome_says(tmp_path, code, inputs, ended, outcome):
    found, outputs, shown, _ = run(tmp_path, code, base="main", **inputs)
    assert (found, outputs["outcome"], shown) == (ended, outcome, "**x**\n")


def test_a_gain_is_an_outcome_of_its_own(tmp_path):
    said = "**HEAD (1) against main (2): better, with CPU time per request −20 %.**"
    assert run(tmp_path, 0, said, base="main")[1]["outcome"] == "better"


def test_without_a_result_there_is_no_summary(tmp_path):
    assert run(tmp_path, 2, "", base="main")[2] == ""


def test_inputs_reach_the_command_unchanged(tmp_path):
    """Inputs reach the command unchanged: no shell interprets their spaces and quotes."""
    build = "go build -o 'my server' . && echo \"$HOME\""
    *_, arguments = run(tmp_path, 0, base="a b", build=build, start="exec ./x", path="/?q='$(id)'")
    given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert arguments[0] == "ab"
    assert given["--build"] == build and given["--base"] == "a b"
    assert given["--path"] == "/?q='$(id)'" and given["--start"] == "exec ./x"
    assert "--script" not in given


def test_options_of_the_examples_exist(bench):
    code, out, _ = bench("--help", command="ab")
    assert code == 0
    told = read(FILES["gitlab-ci"])["bench"]["script"]
    for word in " ".join(told).split():
        assert not word.startswith("--") or word in out
    with_ = read(FILES["github-workflows"])["jobs"]["ab"]["steps"][2]["with"]
    assert set(with_) <= set(read(ACTION)["inputs"])


def test_no_step_has_an_expression_in_its_script():
    """No script of a step contains an expression of GitHub.

    With such an expression, a user could run commands by choosing the name of a branch.
    """
    scripts = [each["run"] for each in steps()]
    jobs = read(FILES["github-workflows"])["jobs"]["ab"]["steps"]
    scripts += [each["run"] for each in jobs if "run" in each]
    assert not any("${{" in script for script in scripts)
