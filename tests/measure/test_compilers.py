"""Tests of finding out which compiler built a binary.

The expected values come from the compilers themselves.
"""

import re
import subprocess
from pathlib import Path

import pytest
from built import ROOT
from real_lab import needs

from runner.measure.compilers import compiler_of

SERVERS = sorted((ROOT / "servers").glob("*/build/server"))
GO = 'package main\n\nfunc main() { println("x") }\n'
RUST = 'fn main() { println!("x"); }\n'
C = "int main(void) { return 0; }\n"


def said(*command: object) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def built(folder: Path, source: str, name: str, *command: str) -> Path:
    """Compile a source with a command; return the path of the program."""
    (folder / name).write_text(source)
    program = folder / "program"
    subprocess.run(
        [*command, "-o", str(program), name],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return program


@needs("go")
def test_a_program_in_go_names_the_compiler_that_go_names(tmp_path):
    program = built(tmp_path, GO, "main.go", "go", "build", "-trimpath", "-ldflags=-s -w")
    version = said("go", "version", program).split()[-1].removeprefix("go")
    assert compiler_of(program) == f"go {version}"


@needs("rustc")
def test_a_stripped_program_in_rust_names_the_compiler(tmp_path):
    program = built(tmp_path, RUST, "main.rs", "rustc", "-C", "strip=symbols")
    assert compiler_of(program) == f"rustc {said('rustc', '--version').split()[1]}"


@needs("go", "rustc")
@pytest.mark.parametrize("server", SERVERS, ids=lambda path: path.parts[-3])
def test_a_server_names_the_compiler_of_its_language(server):
    if (server.parents[1] / "go.mod").is_file():
        version = said("go", "version", server).split()[-1].removeprefix("go")
        assert compiler_of(server) == f"go {version}"
    else:
        comment = said("readelf", "-p", ".comment", server)
        found = re.search(r"rustc version (\S+)", comment)
        assert found is not None and compiler_of(server) == f"rustc {found[1]}"


@needs("gcc")
def test_the_compiler_of_a_program_in_c_is_unknown(tmp_path):
    assert compiler_of(built(tmp_path, C, "main.c", "gcc")) is None


def test_a_script_and_a_missing_file_have_no_compiler(tmp_path):
    script = tmp_path / "server.sh"
    script.write_text("#!/bin/sh\n# rustc version 1.2.3\n")
    assert compiler_of(script) is None
    assert compiler_of(tmp_path / "missing") is None


@needs("go")
def test_a_program_that_is_cut_off_is_no_error(tmp_path):
    whole = built(tmp_path, GO, "main.go", "go", "build").read_bytes()
    compiler = compiler_of(tmp_path / "program")
    cut = tmp_path / "cut"
    for length in (0, 4, 16, 63, 64, 1000, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:length])
        assert compiler_of(cut) in (None, compiler)
