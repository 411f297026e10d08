"""What k6, wrk, vegeta and the probe send, their exact command lines and environments, and a user's k6 script."""

import base64
import json
import os
import re
import socket
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address
from pathlib import Path, PurePosixPath
from string import ascii_lowercase, digits
from typing import Literal
from urllib.parse import urlsplit

from runner.measure.engine import LOOPBACK, Running
from runner.measure.leftovers import temporary
from runner.measure.memory import allowed_bytes
from runner.model import OWN, OWN_SCRIPT, Cell, LabError, Share, Workload
from runner.store import RunFolder

K6_SYSTEM_TAGS = "status,error_code"
K6_URL_TAG = ",url"  # tells a script's requests to the server from those to other ports; costs k6 memory
K6_TREND_STATS = "avg,min,med,max,p(90),p(95),p(99),p(99.9),count"
K6_MEMORY_BYTES = 4 * 2**30
"""k6 at thousands of virtual users is bound by its garbage collector. Where there is memory for it, that runs only when
k6 has used this much; else at four times the live heap rather than two."""
WRK_TIMEOUT_S = 10
WHOLE = Share()
SLOWEST_RPS = 500
"""A closed load is given the time that it takes at this rate; k6 drops what is left then, and the trial is invalid."""
SLOWEST_OWN_RPS = 20  # for a user's API: an iteration of a script may be several requests, and pauses between them
FASTEST_K6_RPS = 15_000  # more iterations a second than k6 has been seen to make on one core
OPEN_GRACE_S = 10  # that the last requests of an open load may take; the contract has 5 s for the slowest answer

Output = Literal["samples", "summary", "stock"]
"""What k6 writes: every sample, its summary only, or the summary only and with none of the lab's settings."""


@dataclass(frozen=True)
class Command:
    """A generator's command line, the environment that it needs beside PATH, and when it has surely failed to end."""

    argv: tuple[str, ...]
    env: dict[str, str]
    timeout_s: float
    interrupt_after_s: float | None = None  # wrk takes whole seconds only: a shorter load is ended by SIGINT
    after: tuple[tuple[tuple[str, ...], Path], ...] = ()
    """What turns its results into raw files once the load is over: command lines, and where their output goes."""


@dataclass(frozen=True)
class Shot:
    """What the generator sends, and where to."""

    tool: Path
    script: Path
    url: str
    method: str
    path: str
    body: str
    host: str = "lab"  # what the probe names as Host; k6 and wrk name that of the URL
    more: Mapping[str, str] = field(default_factory=dict)  # what the script finds in its environment besides
    system_tags: str = K6_SYSTEM_TAGS  # what k6 says of each request


def shot_of(workload: Workload, tool: Path, running: Running, tag: str, *, probing: bool = False) -> Shot:
    """Return what a load sends to a server, with `tag` in its body's place for it, or what the probe beside it does."""
    is_own = workload.name in OWN
    path = workload.probe_path if is_own and probing and workload.probe_path is not None else workload.path
    body, url = workload.body.replace("{tag}", tag), f"{running.origin}{path}"
    shot = Shot(tool, workload.script, url, workload.method, path, body)
    if not is_own:
        return shot
    more = {"OPTIONS": json.dumps(fence(running, workload.also)), **FENCE}
    if workload.name == OWN_SCRIPT:
        more["BASE_URL"] = f"{running.origin}{workload.path}".rstrip("/")
    tags = K6_SYSTEM_TAGS + K6_URL_TAG if workload.also else K6_SYSTEM_TAGS
    return replace(shot, host=running.origin.partition("//")[2], more=more, system_tags=tags)


def measured(
    cell: Cell, shot: Shot, files: Mapping[str, Path], output: Output = "samples", share: Share = WHOLE
) -> Command:
    """Return the command of a generator's `share` of the load; its raw files go to `files`, by OF_GENERATORS."""
    if cell.tool == "vegeta":
        # Its results, which only it can read, become lines of text afterwards.
        samples, tool, length_s = files["vegeta.csv.gz"], str(shot.tool), cell.lead_s + (cell.window_s or 1.0)
        results = samples.with_name("vegeta.bin")
        attack = _attack(shot, share.of(cell).rates_rps[0], length_s, cell.sockets, results)
        encode = ((tool, "encode", "-to=csv", str(results)), samples)
        return replace(attack, after=(encode, ((tool, "report", "-type=json", str(results)), files["vegeta.json"])))
    if cell.tool == "wrk":
        return _wrk(share.of(cell), shot, files["wrk.json"], cell.duration_s or 1.0)
    scenario, limit_s = _scenario(cell)
    options = [f"--summary-export={files['k6-summary.json']}"]
    if output != "stock":
        options += [f"--system-tags={shot.system_tags}", f"--summary-trend-stats={K6_TREND_STATS}"]
    if output == "samples":
        options += [f"--out=json={files['k6.json.gz']}"]
    if share.count > 1:
        ends = ["0", *(f"{number}/{share.count}" for number in range(1, share.count)), "1"]
        options += [f"--execution-segment={ends[share.number - 1]}:{ends[share.number]}"]
        options += [f"--execution-segment-sequence={','.join(ends)}"]
    collector = {} if output == "stock" else _garbage_collector()
    return _k6(cell, shot, scenario, files["k6.json.gz"].parent, limit_s + 90, collector, options)


WARM_UP_FILES = {"k6": ("k6-summary.json",), "wrk": ("wrk.json",), "vegeta": ("warm-up.bin",)}
"""Results of a warm-up, by generator."""
WARM_UP_USERS = 10  # of an open load that says no number of users
MOST_WARM_UP_USERS = 100


def warmup(cell: Cell, shot: Shot, files: Mapping[str, Path]) -> Command:
    """Return the command of the warm-up, a closed load; its results go to `files`, by WARM_UP_FILES."""
    if cell.tool == "vegeta":
        return _attack(shot, cell.rates_rps[0], cell.warmup_s, cell.sockets, files["warm-up.bin"])
    if cell.tool == "wrk":
        return _wrk(cell, shot, files["wrk.json"], cell.warmup_s)
    users = min(cell.vus or WARM_UP_USERS, MOST_WARM_UP_USERS)
    # A ramp from as many users to as many: k6 takes no `constant-vus` of less than a second.
    stages = [{"target": users, "duration": f"{round(1000 * cell.warmup_s)}ms"}]
    scenario = {"executor": "ramping-vus", "startVUs": users, "stages": stages, "gracefulStop": "5s"}
    summary = files["k6-summary.json"]
    options = [f"--summary-export={summary}"]
    return _k6(cell, shot, scenario, summary.parent, cell.warmup_s + 60, _garbage_collector(), options)


def _k6(
    cell: Cell,
    shot: Shot,
    scenario: Mapping[str, object],
    folder: Path,
    timeout_s: float,
    collector: Mapping[str, str],
    options: Sequence[str] = (),
) -> Command:
    argv = (str(shot.tool), "run", "--no-usage-report", "--quiet", "--log-output=stderr", *options, str(shot.script))
    env = {"TARGET_URL": shot.url, "METHOD": shot.method, "BODY": shot.body, "MODE": cell.mode}
    env |= {"SCENARIO": json.dumps(scenario), **shot.more, **collector}
    env["HOME"] = str(folder)  # k6 reads its configuration from there: none, on every machine
    return Command(argv, env, timeout_s)


def _garbage_collector() -> dict[str, str]:
    """Return the settings of Go's garbage collector for a generator on a machine of this memory."""
    if allowed_bytes() < 3 * K6_MEMORY_BYTES:
        return {"GOGC": "400"}
    return {"GOGC": "off", "GOMEMLIMIT": str(K6_MEMORY_BYTES)}


def k6_iterations(cell: Cell) -> int:
    """Return how many iterations a load of k6 has, rather too many for one that lasts a time."""
    if cell.iterations is not None:
        return cell.iterations
    return cell.to_begin + round(FASTEST_K6_RPS * (cell.duration_s or 0.0))


def k6_bytes(cell: Cell) -> int:
    """Return about how much memory k6 takes for a load, rather too much.

    Seen: 0.2 MiB a virtual user, and what its samples leave for the garbage collector, 14 kB an iteration.
    """
    users = cell.vus or (MOST_WARM_UP_USERS if cell.rates_rps else 0)
    live = 64 * 2**20 + 200_000 * users
    limit = max(0, K6_MEMORY_BYTES - live) if "GOMEMLIMIT" in _garbage_collector() else 4 * live
    return live + min(limit, 14_000 * k6_iterations(cell))


def _scenario(cell: Cell) -> tuple[dict[str, object], float]:
    """Return k6's scenario of the measured load and the most seconds that it may take."""
    users: dict[str, object] = {"gracefulStop": f"{OPEN_GRACE_S}s"}
    if cell.vus is not None and cell.rates_rps and cell.step_s is not None:
        rates, step = [round(rate) for rate in cell.rates_rps], f"{round(1000 * cell.step_s)}ms"
        users |= {"timeUnit": "1s", "preAllocatedVUs": cell.vus}
        limit_s = len(rates) * cell.step_s + OPEN_GRACE_S
        if len(rates) == 1:
            return {"executor": "constant-arrival-rate", "rate": rates[0], "duration": step, **users}, limit_s
        # k6 ramps linearly within a stage: one of no length makes the step.
        stages = [{"target": rate, "duration": length} for rate in rates for length in ("0s", step)]
        return {"executor": "ramping-arrival-rate", "startRate": rates[0], "stages": stages, **users}, limit_s
    if cell.vus is not None and cell.iterations is None and cell.duration_s is not None:
        lasting = {"executor": "constant-vus", "vus": cell.vus, "duration": f"{round(1000 * cell.duration_s)}ms"}
        return lasting | users, cell.duration_s + OPEN_GRACE_S
    if cell.vus is None or cell.iterations is None:
        raise LabError(f"Cell {cell.cell_id} lacks virtual users, iterations, a duration or arrival rates.")
    limit_s = 60 + cell.iterations // (SLOWEST_OWN_RPS if cell.workload in OWN else SLOWEST_RPS)
    counted = {"executor": "shared-iterations", "vus": cell.vus, "iterations": cell.iterations}
    return counted | {"maxDuration": f"{limit_s}s"}, limit_s  # k6's default of 10 min would drop the rest of a long run


def _wrk(cell: Cell, shot: Shot, out: Path, duration_s: float) -> Command:
    if cell.connections is None:
        raise LabError(f"Cell {cell.cell_id} lacks connections.")
    # wrk opens connections / threads (integer division) in each thread: `-t8 -c10` would open 8.
    threads = max(count for count in range(1, 9) if cell.connections % count == 0)
    whole_s = max(1, round(duration_s))
    argv = [str(shot.tool), f"-t{threads}", f"-c{cell.connections}", f"-d{whole_s}s", f"--timeout={WRK_TIMEOUT_S}s"]
    if cell.mode == "close":
        argv += ["-H", "Connection: close"]
    env = {"WRK_METHOD": shot.method, "WRK_BODY": shot.body, "WRK_JSON": str(out)}
    env |= {"WRK_CONNECTIONS": str(cell.connections), "WRK_THREADS": str(threads)}
    command = (*argv, "-s", str(shot.script), shot.url)
    return Command(command, env, whole_s + WRK_TIMEOUT_S + 30, duration_s if duration_s < 1 else None)


def _attack(shot: Shot, rate_rps: float, duration_s: float, connections: int, results: Path) -> Command:
    target = results.with_suffix(".target.json")
    sent: dict[str, object] = {"method": shot.method, "url": shot.url}
    if shot.body:
        body = base64.b64encode(shot.body.encode()).decode()
        sent |= {"body": body, "header": {"Content-Type": ["application/json"]}}
    target.write_text(json.dumps(sent) + "\n", encoding="utf-8")
    argv = [str(shot.tool), "attack", f"-targets={target}", "-format=json", f"-output={results}"]
    argv += [f"-rate={rate_rps:.0f}/s", f"-duration={round(1000 * duration_s)}ms", f"-timeout={OPEN_GRACE_S}s"]
    argv += [f"-max-workers={connections}", f"-connections={connections}"]
    argv += ["-http2=false", "-max-body=0", "-redirects=-1"]
    return Command(tuple(argv), _garbage_collector(), duration_s + OPEN_GRACE_S + 30)


FENCE = {"K6_AUTO_EXTENSION_RESOLUTION": "false"}
"""No k6 other than the one that is installed: by itself it would have one built for a script that imports k6/x."""
ALL_4, ALL_6 = IPv4Network("0.0.0.0/0"), IPv6Network("::/0")


NOWHERE = "255.255.255.255"
"""The address that k6 is given for every host and port that a script may not ask: always one of those it blocks."""
LOCALHOST = "localhost"


def fence(running: Running, also: Sequence[int] = ()) -> dict[str, object]:
    """Return the options of k6 that leave a script one address, its port and the ports `also`, and no redirection.

    k6 looks up `host:port`, then the host, in its option `hosts`, for addresses too (lib/netext/dialer.go). Each
    permitted `host:port` leads to the server. Everything else leads to an address that `blacklistIPs` blocks.
    That option has all addresses but the server's, because k6 has no list of what is allowed.
    k6 takes no address of version 6 as a key: there, a request for another address of version 6 at a permitted port
    goes to the server, and is counted as what it is, a request of the server.
    """
    allowed = ip_address(running.address)
    others: list[IPv4Network | IPv6Network]
    if isinstance(allowed, IPv4Address):
        others = [*sorted(ALL_4.address_exclude(IPv4Network(allowed))), ALL_6]
    else:
        others = [ALL_4, *sorted(ALL_6.address_exclude(IPv6Network(allowed)))]
    hosts = {"*": NOWHERE}
    for port in (running.port, *also):
        hosts |= _ways_to(running, port)
    return {"maxRedirects": 0, "blacklistIPs": [str(network) for network in others], "hosts": hosts}


def _ways_to(running: Running, port: int) -> dict[str, str]:
    """Return the keys of k6's option `hosts` that lead to a port of the server's address, with what they lead to."""
    is_version_6 = ":" in running.address
    there = f"[{running.address}]:{port}" if is_version_6 else f"{running.address}:{port}"
    name = urlsplit(running.origin).hostname or running.address
    ways: dict[str, str] = {}
    if is_version_6:
        ways |= {f"*{character}:{port}": NOWHERE for character in ascii_lowercase + digits}
        ways[f"*:{port}"] = there
    else:
        ways[f"{running.address}:{port}"] = there
    if ":" not in name:
        ways[f"{name}:{port}"] = there
    if running.address == LOOPBACK:
        ways[f"{LOCALHOST}:{port}"] = there
    return ways


LOADED_WITHIN_S = 30
MOST_BYTES = 50_000_000
MARK = "LAB: "  # begins what the wrapper says to the lab
PLACE = "'SCRIPT'"  # where the wrapper has the script's path
BASE_URL = b"BASE_URL"
COMMENTS = (b"//", b"/*", b"*")  # what a line begins with that is all comment
_IMPORTED = re.compile(
    r'retrieved from the resolved url "(?P<https>[^"]+)"|'
    r"imports are file and https, (?P<http>http://\S+) has `http`"
)
"""How k6 refuses a script that imports a URL (its internal/loader/loader.go)."""
_EXTENSIONS = re.compile(r"unknown modules \[([^\]]*k6/x/[^\]]*)\]")
COPY = "files"  # folder of the script's copy, beside the wrapper


@dataclass(frozen=True)
class Script:
    """A script that k6 can load, with all that it imports and opens."""

    name: str  # its path among `files`
    files: dict[str, bytes]  # by their paths, relative to the folder that all of them lie in
    unused: tuple[str, ...]  # what it exports and the lab does not use: its options, handleSummary

    @property
    def reads_base_url(self) -> bool:
        """Whether some line of its files names BASE_URL outside of a comment."""
        lines = (line for data in self.files.values() for line in data.splitlines() if BASE_URL in line)
        return any(not line.lstrip().startswith(COMMENTS) for line in lines)


def read_script(path: Path, wrapper: Path, k6: Path) -> Script:
    """Have k6 load a script as the lab will run it, without running it; LabError where it cannot be run so."""
    if not path.is_file():
        raise LabError(f"There is no script {path}.")
    with temporary() as scratch:
        outer, archive = scratch / wrapper.name, scratch / "script.tar"
        _wrap(wrapper, outer, str(path.resolve()))
        said = _load(path, outer, archive, k6)
        whole = _unpack(path, archive, without=outer)
    root = PurePosixPath(os.path.commonpath([each.parent for each in whole]))
    files = {str(each.relative_to(root)): data for each, data in whole.items()}
    # k6 writes another name for that of a home folder: the script is known by its name and content.
    names = [name for name, data in files.items() if PurePosixPath(name).name == path.resolve().name]
    found = [name for name in names if files[name] == path.read_bytes()]
    if not found:
        raise LabError(f"{path} was changed while k6 was reading it: try again.")
    unused = [line.removeprefix(MARK) for line in said if line.startswith(MARK)]
    return Script(found[0], files, tuple(filter(None, ", ".join(unused).split(", "))))


def _wrap(wrapper: Path, to: Path, script: str) -> None:
    to.write_text(wrapper.read_text(encoding="utf-8").replace(PLACE, json.dumps(script)), encoding="utf-8")


def _load(path: Path, outer: Path, archive: Path, k6: Path) -> list[str]:
    """Have k6 put a script into an archive; return what was logged. LabError with k6's reason where it cannot."""
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(outer.parent), **FENCE}
    env |= {"OPTIONS": "{}", "SCENARIO": json.dumps({"executor": "shared-iterations"}), "MODE": "keepalive"}
    env |= {"BASE_URL": "http://127.0.0.1", "INSPECT": "1"}
    argv = [str(k6), "archive", "--include-system-env-vars", "--exclude-env-vars", "--log-format=json"]
    argv += [f"--archive-out={archive}", str(outer)]
    with socket.socket() as closed:
        closed.bind((LOOPBACK, 0))  # and accepts no connection: k6 can fetch nothing that a script imports by URL
        proxy = f"http://{LOOPBACK}:{closed.getsockname()[1]}"
        env |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
        try:
            done = subprocess.run(
                argv, env=env, input="", capture_output=True, text=True, timeout=LOADED_WITHIN_S, check=False
            )
        except subprocess.TimeoutExpired:
            said = f"{path} took k6 more than {LOADED_WITHIN_S} s to load: move slow work out of the init context."
            raise LabError(said) from None
    messages: list[str] = []
    for line in filter(None, map(str.strip, done.stderr.splitlines())):
        try:
            messages.append(str(json.loads(line)["msg"]))
        except (ValueError, KeyError, TypeError):
            messages.append(line)
    if done.returncode != 0:
        imported = _IMPORTED.search("\n".join(messages))
        if imported is not None:
            raise _imports(path, imported["https"] or imported["http"])
        unknown = _EXTENSIONS.search("\n".join(messages))
        if unknown is not None:
            raise _lacks(path, unknown[1])
        raise LabError(f"The lab cannot run {path}: {_reason(messages, outer).rstrip('.')}.")
    return messages


def _lacks(path: Path, modules: str) -> LabError:
    """Return the refusal of a script that imports an extension of k6."""
    names = ", ".join(re.findall(r"k6/x/[\w./-]+", modules))
    said = f"{path} imports {names}, which this k6 has not: leave it out, or install a k6 with it"
    return LabError(f"{said} (as k6, or as .tools/k6).")


def _imports(path: Path, url: str) -> LabError:
    """Return the refusal of a script that imports a URL."""
    name = PurePosixPath(urlsplit(url).path).name
    how = f"`curl -O {url}`" if name else f"`curl -o module.js {url}`"
    said = f"{path} imports {url}: download it beside the script (for example {how}) and import"
    return LabError(f"{said} './{name or 'module.js'}'.")


def _reason(said: list[str], outer: Path) -> str:
    """Return the last thing that k6 said, without what is about the wrapper, and where in the script it was."""
    first, *stack = (said or ["k6 gave no reason"])[-1].splitlines()
    if MARK in first:
        return first.partition(MARK)[2]
    where = f" ({stack[0].strip()})" if stack and str(outer) not in stack[0] else ""
    return first.rpartition(f"{outer}': ")[2].partition(" If you're running k6 using the Docker image")[0] + where


def _unpack(path: Path, archive: Path, without: Path) -> dict[PurePosixPath, bytes]:
    """Return the files of an archive of k6 by their absolute paths, as k6 has them, but for the wrapper."""
    files: dict[PurePosixPath, bytes] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            kind, _, name = member.name.partition("/")
            if kind in ("http", "https"):
                raise _imports(path, f"{kind}://{name}")
            if kind == "file" and member.isfile() and PurePosixPath(name).parent.name != without.parent.name:
                extracted = tar.extractfile(member)
                files[PurePosixPath("/", name)] = extracted.read() if extracted else b""
    if sum(map(len, files.values())) > MOST_BYTES:
        raise LabError(
            f"{path} and what it opens are over {MOST_BYTES:,} bytes, and each run has a copy: use smaller files."
        )
    return files


def store_script(run: RunFolder, script: Script, wrapper: Path) -> None:
    """Write a script's copy, and the wrapper that runs it, into a run's folder."""
    for name, data in script.files.items():
        target = run.scripts / COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    _wrap(wrapper, run.scripts / wrapper.name, f"./{COPY}/{script.name}")
