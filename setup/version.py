"""The lab's version, read at each build (`[tool.hatch.version]` in pyproject.toml).

The last tag, such as v0.2.0, contains the version. If there are commits after this tag, the
version is a development version of the next patch, such as 0.2.1.dev5+g1a2b3c4. If there is no tag,
the version is a development version of the newest version in the changelog. A build from an sdist
does not use this module, but reads the version from the sdist's PKG-INFO. This module needs only
the standard library, because builds install no packages for it.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)-(\d+)-(g[0-9a-f]+)")
HEADING = re.compile(r"^## (\d+\.\d+\.\d+)", re.M)


def git(*arguments: str) -> str:
    """Return the output of a git command in this checkout, or an empty text if the command fails.

    The text is also empty if git is missing, or if there is no .git.
    """
    if not (ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version_of(described: str, newest: str, count: str, commit: str) -> str:
    """Return the lab's version, in the form of PEP 440.

    `described` is the output of `git describe --long`. If there is no tag, it is empty, and the
    version consists of `newest` (the newest version in the changelog), `count` (the number of
    commits) and `commit` (the shortened hash of the last commit).
    """
    if match := TAG.fullmatch(described):
        major, minor, patch, since, last = match.groups()
        if since == "0":
            return f"{major}.{minor}.{patch}"
        return f"{major}.{minor}.{int(patch) + 1}.dev{since}+{last}"
    return f"{newest}.dev{count or 0}" + (f"+g{commit}" if commit else "")


def newest_of_changelog() -> str:
    """Return the newest version in the changelog."""
    found = HEADING.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    return found[1] if found else "0.0.0"


__version__ = version_of(
    git("describe", "--tags", "--long", "--match", "v[0-9]*.[0-9]*.[0-9]*"),
    newest_of_changelog(),
    git("rev-list", "--count", "HEAD"),
    git("rev-parse", "--short", "HEAD"),
)
