"""Check a user's k6 script with k6, find its imports, and copy the script to a run's folder.

k6 never loads the user's script directly. It loads the lab's wrapper (runner/workloads/own.js or
as-written.js), which imports the user's script and limits what the script may do.
"""

import hashlib
import json
import os
import re
import socket
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from runner.measure.engine import LOOPBACK
from runner.measure.generators.fence import FENCE
from runner.measure.generators.written import Written, read_written
from runner.measure.leftovers import temporary
from runner.model import LabError
from runner.store import RunFolder

LOADED_WITHIN_S = 30
MOST_BYTES = 50_000_000
MARK = "LAB: "  # prefix of the wrapper's messages to the lab
PLACE = "'SCRIPT'"  # placeholder of the script's path in the wrapper
BASE_URL = b"BASE_URL"
COMMENTS = (b"//", b"/*", b"*")  # prefixes of lines that are comments
_IMPORTED = re.compile(
    r'retrieved from the resolved url "(?P<https>[^"]+)"|'
    r"imports are file and https, (?P<http>http://\S+) has `http`"
)
"""Pattern of k6's messages about a script that imports a URL (k6's internal/loader/loader.go)."""
_EXTENSIONS = re.compile(r"unknown modules \[([^\]]*k6/x/[^\]]*)\]")
COPY = "files"  # name of the folder with the script's files, beside the stored wrapper


@dataclass(frozen=True)
class Script:
    """A script that k6 accepts, with all files that it imports and opens."""

    name: str  # the path of the script's own file in `files`
    files: dict[str, bytes]  # content by path relative to the files' common folder
    unused: tuple[str, ...]  # exports that the lab does not use: options, handleSummary
    # the load that the script's own options define, or None if the lab defines the load
    written: Written | None = None

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """Name and SHA-256 of each file of the script, sorted by name."""
        return tuple(
            (name, hashlib.sha256(data).hexdigest()) for name, data in sorted(self.files.items())
        )

    @property
    def reads_base_url(self) -> bool:
        """True if any of the script's files names BASE_URL on a line that is not a comment."""
        lines = (
            line for data in self.files.values() for line in data.splitlines() if BASE_URL in line
        )
        return any(not line.lstrip().startswith(COMMENTS) for line in lines)


def read_script(path: Path, wrapper: Path, k6: Path, *, as_written: bool = False) -> Script:
    """Let k6 load a script in the lab's wrapper; return the script with its imports.

    k6 loads the script without running it. With `as_written`, the script's own options define the
    load. Raise LabError if k6 cannot run the script.
    """
    if not path.is_file():
        raise LabError(f"The script {path} does not exist.")
    with temporary() as scratch:
        outer = scratch / wrapper.name
        archive = scratch / "script.tar"
        _wrap(wrapper, outer, str(path.resolve()))
        said = _load(path, outer, archive, k6)
        written = read_written(path, _inspected(path, outer, k6)) if as_written else None
        whole = _unpack(path, archive, without=outer)
    root = PurePosixPath(os.path.commonpath([each.parent for each in whole]))
    files = {str(each.relative_to(root)): data for each, data in whole.items()}
    # In the archive, k6 replaces the names of home folders in paths. So find the script's own file
    # by the file's name and content, not by its path.
    names = [
        name for name, data in files.items() if PurePosixPath(name).name == path.resolve().name
    ]
    found = [name for name in names if files[name] == path.read_bytes()]
    if not found:
        raise LabError(f"{path} was changed while k6 was reading it: try again.")
    unused = [line.removeprefix(MARK) for line in said if line.startswith(MARK)]
    return Script(found[0], files, tuple(filter(None, ", ".join(unused).split(", "))), written)


def _wrap(wrapper: Path, to: Path, script: str, functions: Sequence[str] = ()) -> None:
    """Write the wrapper of a script to the file `to`.

    The wrapper exports the given functions of the script, because the script's scenarios call them.
    """
    text = wrapper.read_text(encoding="utf-8").replace(PLACE, json.dumps(script))
    exports = [f"export const {name} = counted(own.{name});\n" for name in functions]
    to.write_text(text + "".join(exports), encoding="utf-8")


def _inspected(path: Path, outer: Path, k6: Path) -> Mapping[str, Any]:
    """Return the script's options as `k6 inspect` reports them; raise LabError if k6 fails."""
    done = _run_k6([str(k6), "inspect", "--execution-requirements", *INSPECTING, str(outer)], outer)
    if done is None or done.returncode != 0:
        said = "" if done is None else _reason(_messages(done.stderr), outer).rstrip(".")
        raise LabError(
            f"k6 cannot run {path} with the options that the script defines ({said}): correct "
            "these options."
        )
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def _load(path: Path, outer: Path, archive: Path, k6: Path) -> list[str]:
    """Let k6 pack a script and its imports into an archive; return k6's log messages.

    Raise LabError with k6's reason if that fails.
    """
    argv = [str(k6), "archive", "--exclude-env-vars", *INSPECTING]
    done = _run_k6([*argv, f"--archive-out={archive}", str(outer)], outer)
    if done is None:
        raise LabError(
            f"k6 needed more than {LOADED_WITHIN_S} s to load {path}: move slow work out of "
            "the init context (the code outside of functions)."
        )
    messages = _messages(done.stderr)
    if done.returncode != 0:
        imported = _IMPORTED.search("\n".join(messages))
        if imported is not None:
            raise _imports(path, imported["https"] or imported["http"])
        unknown = _EXTENSIONS.search("\n".join(messages))
        if unknown is not None:
            raise _lacks(path, unknown[1])
        raise LabError(f"The lab cannot run {path}: {_reason(messages, outer).rstrip('.')}.")
    return messages


INSPECTING = ("--include-system-env-vars", "--log-format=json")


def _run_k6(argv: Sequence[str], outer: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a k6 command that only reads a script; return None if it takes too long."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(outer.parent), **FENCE}
    env |= {
        "OPTIONS": "{}",
        "SCENARIO": json.dumps({"executor": "shared-iterations"}),
        "MODE": "keepalive",
    }
    env |= {"BASE_URL": "http://127.0.0.1", "INSPECT": "1"}
    with socket.socket() as closed:
        closed.bind(
            (LOOPBACK, 0)
        )  # nothing listens at this port, so k6 cannot fetch an import through the proxy
        proxy = f"http://{LOOPBACK}:{closed.getsockname()[1]}"
        env |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
        try:
            return subprocess.run(
                list(argv),
                env=env,
                input="",
                capture_output=True,
                text=True,
                timeout=LOADED_WITHIN_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None


def _messages(stderr: str) -> list[str]:
    """Return the log messages of k6."""
    messages: list[str] = []
    for line in filter(None, map(str.strip, stderr.splitlines())):
        try:
            messages.append(str(json.loads(line)["msg"]))
        except (ValueError, KeyError, TypeError):
            messages.append(line)
    return messages


def _lacks(path: Path, modules: str) -> LabError:
    """Return the error for a script that imports extensions which this k6 lacks."""
    names = ", ".join(re.findall(r"k6/x/[\w./-]+", modules))
    said = f"{path} imports {names}, which this k6 lacks: remove the import, or install a k6 with"
    return LabError(f"{said} this extension, as `k6` on PATH or as .tools/k6.")


def _imports(path: Path, url: str) -> LabError:
    """Return the error for a script that imports a URL."""
    name = PurePosixPath(urlsplit(url).path).name
    how = f"`curl -O {url}`" if name else f"`curl -o module.js {url}`"
    said = f"{path} imports {url}: download it beside the script (for example {how}) and import"
    return LabError(f"{said} './{name or 'module.js'}'.")


def _reason(said: list[str], outer: Path) -> str:
    """Return k6's last message, followed by the line of the script that the message is about.

    Parts of the message that are about the lab's wrapper are left out.
    """
    first, *stack = (said or ["k6 gave no reason"])[-1].splitlines()
    if MARK in first:
        return first.partition(MARK)[2]
    where = f" ({stack[0].strip()})" if stack and str(outer) not in stack[0] else ""
    return (
        first.rpartition(f"{outer}': ")[2].partition(
            " If you're running k6 using the Docker image"
        )[0]
        + where
    )


def _unpack(path: Path, archive: Path, without: Path) -> dict[PurePosixPath, bytes]:
    """Return the files of a k6 archive by absolute path, without the wrapper.

    Raise LabError if the script imports a URL, or if the files exceed MOST_BYTES in total.
    """
    files: dict[PurePosixPath, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            kind, _, name = member.name.partition("/")
            if kind in ("http", "https"):
                raise _imports(path, f"{kind}://{name}")
            if (
                kind == "file"
                and member.isfile()
                and PurePosixPath(name).parent.name != without.parent.name
            ):
                extracted = tar.extractfile(member)
                files[PurePosixPath("/", name)] = extracted.read() if extracted else b""
    if sum(map(len, files.values())) > MOST_BYTES:
        raise LabError(
            f"{path} and the files that it opens have more than {MOST_BYTES:,} bytes together, "
            "which is too much, because each run stores a copy: use smaller files."
        )
    return files


def store_script(run: RunFolder, script: Script, wrapper: Path) -> None:
    """Write a script's copy, and the wrapper that runs it, into a run's folder."""
    for name, data in script.files.items():
        target = run.scripts / COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    functions = () if script.written is None else script.written.functions
    _wrap(wrapper, run.scripts / wrapper.name, f"./{COPY}/{script.name}", functions)
