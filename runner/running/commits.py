"""Check commits of a user's git repository out into the lab's own folders, and build them there.

Nothing is written into the user's repository. Each folder is a repository of its own that borrows
the objects of the user's repository (git's `objects/info/alternates`). `git worktree add` is not
used, because it would write an entry into the user's `.git`. If the run was killed, this entry
would stay there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.measure.leftovers import Ledger
from runner.model import LabError
from runner.store import public

RUNS = "bench-data"
FIGURES = "bench-figures"
"""Names of the two folders that an installed lab creates, possibly in the user's repository."""
LINES_SHOWN = 5
"""If a build fails, the error shows this many lines from the end of the build's output."""
_LAUNCHER = 'read -r go || exit 1; exec sh -c "$1" < /dev/null'
"""A shell script that reads a line, and then runs its argument as a command.

The lab sends the line once the ledger lists the script's process. If the lab ends before that, the
script reads no line, and ends without starting the command. So the ledger lists the process of
each command that was started.
"""
BUILT_WITHIN_S = 1800.0
ASKED_WITHIN_S = 120.0


@dataclass(frozen=True)
class Commit:
    """A commit: the name by which the user chose the commit, and the commit's full id."""

    named: str
    sha: str

    @property
    def words(self) -> str:
        """The name and the first ten digits of the id, such as `main (1a2b3c4d5e)`.

        If the user named the commit by the beginning of its id, this text is only the digits.
        """
        short = self.sha[:10]
        return short if self.sha.startswith(self.named) else f"{self.named} ({short})"


@dataclass(frozen=True)
class Repository:
    """A git repository, and the folder of the user's server in it."""

    top: Path
    inside: Path
    """The server's folder relative to `top`; `.` for the whole repository."""

    @classmethod
    def around(cls, folder: Path) -> Repository:
        """Return the repository that contains a folder; raise LabError if there is none."""
        if shutil.which("git") is None:
            raise LabError("git is not installed: `apt-get install git`.")
        if not folder.is_dir():
            raise LabError(
                f"There is no folder {folder}: give the folder of your server by --folder."
            )
        found = _git(folder, "rev-parse", "--show-toplevel")
        if found.returncode != 0:
            if "dubious ownership" in found.stderr:
                raise LabError(
                    f"git refuses {folder}, because another user owns it: run `git config --global "
                    f"--add safe.directory {folder.resolve()}`."
                )
            raise LabError(
                f"{folder} is in no git repository: run `git init` there and commit both "
                "versions, or name a folder inside a repository by --folder."
            )
        top = Path(found.stdout.strip())
        return cls(top, folder.resolve().relative_to(top.resolve()))

    @property
    def name(self) -> str:
        """The name of the server's folder."""
        return (self.top / self.inside).resolve().name

    def commit(self, named: str, option: str) -> Commit:
        """Return the commit that a branch, a tag or an id names; raise LabError if there is none.

        `option` is the option of the command line that gave the name.
        """
        found = _git(self.top, "rev-parse", "--verify", "--quiet", f"{named}^{{commit}}")
        if found.returncode != 0:
            shallow = _git(self.top, "rev-parse", "--is-shallow-repository").stdout.strip()
            fetch = (
                "fetch the whole history (`git fetch --unshallow`, or `fetch-depth: 0` of "
                "actions/checkout), because this clone is shallow"
                if shallow == "true"
                else f"give a branch, a tag or the id of a commit as {option}"
            )
            raise LabError(f"The repository {self.top} has no commit {named!r}: {fetch}.")
        return Commit(named, found.stdout.strip())

    def uncommitted(self) -> int:
        """Return the number of files with uncommitted changes, including new files.

        Files in the lab's folders for runs and figures do not count.
        """
        others = [f":(exclude,glob)**/{folder}/**" for folder in (RUNS, FIGURES)]
        found = _git(self.top, "status", "--porcelain", "--untracked-files=all", "--", ".", *others)
        return len(found.stdout.splitlines())

    def check_out(self, commit: Commit, to: Path) -> Path:
        """Check a commit out into the new folder `to`; return the server's folder in it.

        Raise LabError if the server's folder does not exist in this commit.
        """
        objects = self._path("objects")
        shallow = self._path("shallow")
        origin = _git(self.top, "config", "remote.origin.url").stdout.strip()
        _must(to.parent, "init", "--quiet", str(to))
        (to / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        if shallow.is_file():
            shutil.copy(shallow, to / ".git" / "shallow")
        if origin:  # submodules with a relative URL are fetched relative to the origin
            _must(to, "config", "remote.origin.url", origin)
        tags = _git(self.top, "show-ref", "--tags").stdout
        if tags:  # builds may use `git describe` to find their version
            (to / ".git" / "packed-refs").write_text(tags)
        _must(to, "-c", "advice.detachedHead=false", "checkout", "--quiet", "--detach", commit.sha)
        folder = to / self.inside
        if not folder.is_dir():
            raise LabError(f"Commit {commit.words} has no folder {self.inside}.")
        return folder

    def _path(self, name: str) -> Path:
        found = _git(self.top, "rev-parse", "--path-format=absolute", "--git-path", name)
        return Path(found.stdout.strip())


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in a folder, and write no lock files into the repository."""
    variables = {name: value for name, value in os.environ.items() if not _is_of_another(name)}
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=ASKED_WITHIN_S,
        check=False,
        env={**variables, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
    )


def _is_of_another(variable: str) -> bool:
    """Return whether an environment variable must be hidden from git.

    Such a variable would make git use another repository. git sets such variables for its hooks,
    and a hook may start the lab.
    """
    return variable in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


def _must(folder: Path, *arguments: str) -> None:
    done = _git(folder, *arguments)
    if done.returncode != 0:
        raise LabError(
            f"git could not check the commit out: {_last_lines(done.stderr, 1)}.", exit_code=1
        )


def build_commit(
    command: str, folder: Path, commit: Commit, ledger: Ledger, say: Callable[[str], None]
) -> None:
    """Run a user's build command in a folder.

    If the command fails, raise LabError with the last lines of its output.
    """
    say(f"Building {commit.words}: {command} …")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            ["sh", "-c", _LAUNCHER, "sh", command],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        with process.stdin as release:
            ledger.add_process(process.pid)
            release.write(b"go\n")
        try:
            code = process.wait(timeout=BUILT_WITHIN_S)
        except subprocess.TimeoutExpired:
            raise LabError(
                f"The build of {commit.words} took more than {BUILT_WITHIN_S / 60:.0f} min and "
                "was ended.",
                exit_code=1,
            ) from None
        output.seek(0)
        said = output.read().decode(errors="replace")
    if code != 0:
        raise LabError(
            f"The build of {commit.words} failed with exit code {code}. Its last lines:\n"
            f"{_last_lines(said, LINES_SHOWN)}",
            exit_code=1,
        )


def _last_lines(said: str, count: int) -> str:
    lines: Sequence[str] = [line for line in said.splitlines() if line.strip()]
    return public("\n".join(lines[-count:])) or "(no output)"
