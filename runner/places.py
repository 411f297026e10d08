"""Find the folders of the lab: those with its own files, and those into which it writes."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from runner.model import LabError

OWN_CHECKOUT = Path(__file__).parents[1]
"""The checkout that contains this code, unless the code is installed from a wheel."""
PACKAGED = Path(__file__).parent / "packaged"
"""Folder with the lab's own files in an installed package, at the same paths as in a checkout."""
ROOT_VARIABLE = "BENCH_ROOT"
"""Environment variable that names the folder in which the lab works.

If the variable is not set, the lab works in its checkout or, without a checkout, in the current
folder.
"""
DATA_VARIABLE = "BENCH_DATA"
"""Environment variable that names the folder of runs and figures.

The kernels of notebooks inherit the variable, so they read the same runs.
"""
LIBRARIES = {"MPLCONFIGDIR": "matplotlib", "IPYTHONDIR": "ipython"}
"""Folders in the lab's cache in which libraries keep their own files.

Each key is the environment variable that tells the library its folder, and each value is the
folder's name.
"""
CLONE = "git clone REPOSITORY web-bench-lab && cd web-bench-lab && make setup"
"""Command that makes a checkout.

REPOSITORY is a placeholder, because a wheel does not know the address of the repository.
"""


OUTSIDE_DATA = "bench-data"
OUTSIDE_FIGURES = "bench-figures"
"""Names of the folders for runs and for figures outside a checkout.

The user may name other folders instead (see `places`).
"""


@dataclass(frozen=True)
class Places:
    """The folders that a command reads and writes.

    In a checkout, all these folders are in the checkout. Outside a checkout, the lab's own files
    are in the installed package, and the lab writes into the folder in which the user works.
    """

    project: Path
    """Folder of the lab's own files: a checkout, or the files that a wheel contains."""
    root: Path
    """Folder in which the user works. Relative paths in manifests begin here."""
    data: Path
    """Folder of runs, calibrations, and ledgers of running processes."""
    figures: Path
    """Folder with a subfolder of figures and pages for each run."""
    tools: Path
    """Folder of the programs that the set-up has built. The lab prefers them to those on PATH."""

    @property
    def checkout(self) -> Path | None:
        """The folder of the checkout, or None if there is no checkout."""
        return self.project if is_checkout(self.project) else None

    @property
    def notebooks(self) -> Path:
        """Folder of the lab's notebooks."""
        return self.project / "notebooks"

    @property
    def committed(self) -> Path:
        """Folder of the committed runs, such as `sample`, and of the published numbers."""
        return self.project / "data"

    @property
    def published(self) -> Path:
        """Table of the published numbers that the lab judges."""
        return self.committed / "published.csv"

    @property
    def setup(self) -> Path:
        """Folder of the scripts and locked modules from which tools are built."""
        return self.project / "setup"

    def need_checkout(self, subject: str) -> Path:
        """Return the folder of the checkout.

        Without a checkout, raise LabError with a message that begins with `subject`.
        """
        if self.checkout is None:
            raise LabError(
                f"{subject} needs a checkout of the lab: run `{CLONE}`, then repeat the "
                "command in the new folder."
            )
        return self.checkout


def is_checkout(folder: Path) -> bool:
    """Return True if a folder contains the lab's servers and notebooks, so it is a checkout."""
    return (folder / "servers" / "CONTRACT.md").is_file() and (folder / "notebooks").is_dir()


def places() -> Places:
    """Return the folders for the current folder and environment.

    If $BENCH_ROOT is set, the lab looks for a checkout in $BENCH_ROOT. If it is not set, the lab
    looks in the current folder, and then in each folder above. If no checkout is found there, the
    lab uses the checkout that contains this code. If the code was installed from a wheel, no
    checkout contains it, and the lab works without a checkout.

    The folder of the runs and the folder of the figures are the first of these pairs that applies:

    - $BENCH_DATA (`bench --data`) and its subfolder figures/, if $BENCH_DATA is set;
    - data/ and figures/ of the checkout, if there is one, and $BENCH_ROOT names no other folder;
    - bench-data/ and bench-figures/ in $BENCH_ROOT or, if it is not set, in the current folder.

    Raise LabError if $BENCH_ROOT is not a folder.
    """
    named = os.environ.get(ROOT_VARIABLE)
    if named and not Path(named).is_dir():
        raise LabError(
            f"There is no lab in ${ROOT_VARIABLE} ({named}): set it to a folder that exists."
        )
    around = [Path(named)] if named else [Path.cwd(), *Path.cwd().parents]
    checkout = next((each.resolve() for each in (*around, OWN_CHECKOUT) if is_checkout(each)), None)
    root = Path(named).resolve() if named else checkout or Path.cwd()
    inside = root == checkout
    data = root / ("data" if inside else OUTSIDE_DATA)
    figures = root / ("figures" if inside else OUTSIDE_FIGURES)
    if chosen := os.environ.get(DATA_VARIABLE):
        data = Path(chosen).resolve()
        figures = data / "figures"
    return Places(
        project=checkout or PACKAGED,
        root=root,
        data=data,
        figures=figures,
        tools=checkout / ".tools" if checkout else user_cache() / "tools",
    )


def hide_from_git(folder: Path) -> None:
    """Let git ignore a folder that the lab makes by itself in a user's folder.

    Write a file .gitignore into the folder, as other tools do in their caches. This file makes git
    ignore everything in the folder, including .gitignore itself. A folder that the user has named,
    or that is in the lab's own checkout, is not changed.
    """
    ignored = folder / ".gitignore"
    if folder.name in {OUTSIDE_DATA, OUTSIDE_FIGURES} and not ignored.exists():
        ignored.write_text("# Made by bench.\n*\n", encoding="utf-8")


def keep_libraries_in_cache() -> None:
    """Let matplotlib and IPython keep their files in this user's cache, if there is no checkout.

    Without this, these libraries would make folders in the user's home. If the user has set one of
    the environment variables in LIBRARIES, its value is kept.
    """
    if places().checkout is None:
        for variable, name in LIBRARIES.items():
            folder = user_cache() / name
            # If this folder cannot be made, the libraries use a temporary folder by themselves.
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
            os.environ.setdefault(variable, str(folder))


def user_cache() -> Path:
    """Return the lab's folder in the user's cache, which is $XDG_CACHE_HOME or ~/.cache.

    Files in a cache can be made again. A relative path in $XDG_CACHE_HOME is ignored, as the XDG
    Base Directory Specification 0.8 demands.
    """
    chosen = Path(os.environ.get("XDG_CACHE_HOME") or "")
    folder = chosen if chosen.is_absolute() else Path.home() / ".cache"
    return folder / "web-bench-lab"
