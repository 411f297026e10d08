"""A git repository of a server. In each commit, a request costs a known CPU time."""

import os
import subprocess
from pathlib import Path

SERVER = '''"""Answers every GET after burning CPU time, by the clock of the thread."""
import asyncio
import os
import time

BURN_S = {burn_ms} / 1000
ANSWER = b"HTTP/1.1 200 OK\\r\\nContent-Type: text/plain\\r\\nContent-Length: 2\\r\\n\\r\\nok"


async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            until = time.thread_time() + BURN_S
            while time.thread_time() < until:
                pass
            writer.write(ANSWER)
            await writer.drain()
            if b"connection: close" in head.lower():
                break
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


asyncio.run(main())
'''
BUILD = "python3 -m py_compile server.py"
START = "exec python3 server.py"
DOCKERFILE = "FROM scratch\nCOPY . /\n"


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder with a fixed author, without the user's configuration.

    Return git's output.
    """
    author = ["-c", "user.name=A", "-c", "user.email=a@example.test", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *author, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"},
    )
    return done.stdout.strip()


def begin(folder: Path) -> Path:
    """Make an empty repository with the branch `main`."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    return folder


def commit(folder: Path, message: str, **files: str) -> str:
    """Write files, and commit everything; return the commit's id.

    `__` in a file's name stands for a dot.
    """
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")


def server(burn_ms: float) -> str:
    """Return the source of a server that uses `burn_ms` milliseconds of CPU time per request."""
    return SERVER.replace("{burn_ms}", str(burn_ms))


def state(folder: Path) -> dict[str, str]:
    """Return the files, the worktrees and the branches of a repository, as texts.

    The lab must not change any of them.
    """
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        "files": "\n".join(
            f"{path.relative_to(folder)} {path.stat().st_mtime_ns} {path.stat().st_size}"
            for path in files
        ),
        "worktrees": git(folder, "worktree", "list"),
        "branches": git(folder, "for-each-ref"),
    }
