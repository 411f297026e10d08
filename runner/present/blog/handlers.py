"""Read the servers' code and the versions of their frameworks at the commit of a run.

Both are read from the git history of this checkout.
"""

import re
import subprocess
from dataclasses import dataclass

from runner.manifest import Manifest
from runner.places import places

NAMES_OF_PATH = {
    "/count": ("count",),
    "/experiments": ("create_experiment", "createExperiment"),
    "/experiments/md5": ("create_hashed_experiment", "createHashedExperiment"),
    "/devices": ("list_devices", "listDevices"),
}
"""Names of the functions that answer requests, in Rust and in Go, by the request's path."""
FILES_OF_LANGUAGE = {
    "Rust": ("src/routes.rs", "src/main.rs"),
    "Go": ("routes.go", "main.go"),
}
PACKAGE_OF_FRAMEWORK = {"actix": "actix-web"}
"""The package of each framework whose package has another name than the framework."""
COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""Pattern of a commit's full hash.

A commit is passed to git only if it matches this pattern, because a run can come from somebody
else. The manifest of such a run could contain an option of git in place of a commit.
"""
TIMEOUT_OF_GIT_S = 20


@dataclass(frozen=True)
class Handler:
    """The code of the function with which a server answers a request."""

    server: str
    language: str
    code: str


def handler(manifest: Manifest, server: str, language: str, path: str) -> Handler | None:
    """Return the code with which a server answered requests for `path` in a run.

    Return None if this checkout does not have the run's commit, if the run had uncommitted changes,
    or if the server has no function with an expected name.
    """
    for file in FILES_OF_LANGUAGE.get(language, ()):
        text = _at_the_commit(manifest, f"servers/{server}/{file}")
        for name in NAMES_OF_PATH.get(path, ()):
            if found := re.search(_function(language, name), text, re.MULTILINE | re.DOTALL):
                return Handler(server, language, found[0])
    return None


def _function(language: str, name: str) -> str:
    """Return the pattern of a function definition whose first and last line are not indented."""
    begin = rf"^(?:pub )?(?:async )?fn {name}\(" if language == "Rust" else rf"^func {name}\("
    return begin + r".*?^}$"


def framework_version(manifest: Manifest, server: str, framework: str) -> str:
    """Return the version of a server's framework at the run's commit.

    The version is read from the server's Cargo.lock (Rust) or go.mod (Go). Return an empty text if
    the version is unknown.
    """
    package = PACKAGE_OF_FRAMEWORK.get(framework, framework)
    cargo = _at_the_commit(manifest, f"servers/{server}/Cargo.lock")
    if found := re.search(rf'name = "{re.escape(package)}"\nversion = "([^"]+)"', cargo):
        return found[1]
    modules = _at_the_commit(manifest, f"servers/{server}/go.mod")
    found = re.search(rf"/{re.escape(framework)}(?:/v\d+)? v(\S+)", modules)
    return found[1] if found else ""


def _at_the_commit(manifest: Manifest, path: str) -> str:
    """Return the text of a file in the run's commit.

    Return an empty text if this checkout does not have the commit or the file, or if the run had
    uncommitted changes.
    """
    git = manifest.git
    checkout = places().checkout
    if git is None or git.dirty or checkout is None or not COMMIT.fullmatch(git.commit or ""):
        return ""
    command = ["git", "-C", str(checkout), "show", f"{git.commit}:{path}"]
    try:
        shown = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_OF_GIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return shown.stdout if shown.returncode == 0 else ""
