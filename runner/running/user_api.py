"""A user's API as a campaign: where it is, whether it may be loaded, and with what."""

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from string import ascii_lowercase
from typing import Any
from urllib.parse import urlsplit

from runner.measure import attached, quotas
from runner.measure.engine import require_answer
from runner.measure.generators import COPY, Script, read_script
from runner.measure.tools import need_tool
from runner.measurement import Quota
from runner.model import OWN_GET, OWN_SCRIPT, Campaign, LabError, Load, Mode, UserApi, core_words
from runner.planning.catalog import PACKAGE, USER_API, WRAPPER, user_server
from runner.store import RunFolder, lab_root, sha256

RATE_RPS = 100
DURATION_S = 15.0  # of an open load that says no duration: at RATE_RPS it has a median of the probe's
REPEATS = 3
SESSIONS, SLICES = 6, 6  # where servers are compared: so many sessions, and slices per server in each
MOST_URLS = 8


@dataclass(frozen=True)
class Asked:
    """What the command line says of a user's API; what was not given is None, or empty."""

    urls: tuple[str, ...] = ()
    folder: str | None = None
    script: str | None = None
    vus: int | None = None
    iterations: int | None = None
    rates_rps: tuple[int, ...] = ()
    duration_s: float | None = None
    probe_path: str | None = None
    owned_host: str | None = None
    server_cpus: int | None = None
    close: bool = False


@dataclass(frozen=True)
class Planned:
    """The campaign that was asked for, and what its run keeps beside it."""

    campaign: Campaign
    script: Script | None
    remarks: tuple[str, ...]  # what a reader of its numbers must know


def plan_user_api(asked: Asked, repeats: int | None, seed: int | None) -> Planned:
    """Return the campaign for a user's server; LabError where it must not, or cannot, be loaded.

    A server that runs already is asked here whether it answers.
    """
    if asked.probe_path is not None and not asked.probe_path.startswith("/"):
        raise LabError(f"--probe-path {asked.probe_path!r} must begin with a slash.")
    apis = _at_urls(asked) if asked.urls else (_in_folder(asked),)
    script = None
    if asked.script is not None:
        if "?" in apis[0].path:
            raise LabError("A URL with a query is for a plain GET: with --script, let the script add it to BASE_URL.")
        script = read_script(Path(asked.script), PACKAGE / "workloads" / WRAPPER, need_tool("k6").path)
        digests = tuple((name, hashlib.sha256(data).hexdigest()) for name, data in sorted(script.files.items()))
        apis = tuple(replace(api, script=script.name, files=digests) for api in apis)
    where = " and ".join(str(api.url or api.folder) for api in apis)
    campaign = Campaign(
        name=USER_API,
        title=f"{where}: {f'script {apis[0].script}' if script else f'GET {apis[0].path}'}",
        servers=tuple(user_server(api).name for api in apis),
        loads=(_load(asked, repeats, several=len(apis) > 1),),
        seed=seed or 1,
        server_cpus=asked.server_cpus or 1,
        sample_hz=20.0,
        owns=apis,
    )
    return Planned(campaign, script, tuple(dict.fromkeys(said for api in apis for said in _remarks(api, script))))


def _at_urls(asked: Asked) -> tuple[UserApi, ...]:
    """Return the servers that run already: one, or several that are to be compared under the same requests."""
    if len(set(asked.urls)) < len(asked.urls):
        raise LabError("The same --url is given twice: name two servers to compare them.")
    if len(asked.urls) > MOST_URLS:
        raise LabError(f"{len(asked.urls)} URLs are too many to load in turn: give at most {MOST_URLS}.")
    apis = tuple(_at_url(asked, url) for url in asked.urls)
    if len({api.path for api in apis}) > 1:
        raise LabError("The URLs have different paths: to be compared, all must be asked for the same path and query.")
    if len(apis) == 1:
        return apis
    return tuple(replace(api, name=f"url-{letter}") for api, letter in zip(apis, ascii_lowercase, strict=False))


def _at_url(asked: Asked, url: str) -> UserApi:
    """Return a server that runs already; LabError unless it answers and is this machine's, or said to be the user's."""
    for name, value in {"--folder": asked.folder, "--server-cpus": asked.server_cpus}.items():
        if value is not None:
            raise LabError(f"{name} is for a server that the lab starts: give it without --url.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LabError(f"{url!r} is no URL: {error}.") from None
    if parts.scheme == "https":
        raise LabError(
            "https:// is not supported, as the probe speaks plain HTTP only: give the http:// address of the server "
            "itself, before what ends its TLS."
        )
    if parts.scheme != "http" or not parts.hostname or port == 0:
        raise LabError(f"{url!r} is no address of an HTTP server: write one such as http://127.0.0.1:9000/.")
    if parts.username is not None or parts.fragment:
        raise LabError("A URL with a user, a password or a fragment is not supported: they would stand in the report.")
    host, port = parts.hostname, port or 80
    address = _permitted(host, port, asked.owned_host)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if asked.probe_path is not None and not asked.script:
        raise LabError("--probe-path is for a --script: beside a plain GET of a URL the probe asks for the same.")
    api = UserApi(USER_API, path, asked.probe_path or path, url=url, address=address, port=port)
    found = attached.find(api)
    require_answer("your server", attached.target(api, found), api.probe_path)
    return replace(api, process=found.identity)


def _permitted(host: str, port: int, owned: str | None) -> str:
    """Return the address that a load of `host` goes to; LabError unless all are this machine's, or it is `owned`."""
    if owned is not None and owned.lower() != host.lower():
        raise LabError(f"--i-own-this-host names {owned}, and the URL another host, {host}: they must be the same.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LabError(f"The host {host} has no address ({error}): check the URL.") from None
    addresses = {str(entry[4][0]): ip_address(str(entry[4][0]).partition("%")[0]) for entry in found}
    for address, parsed in addresses.items():
        if owned is None and not (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback:
            raise LabError(
                f"{host} is {address}, which is not loopback: the lab loads this machine only, unless you say that "
                f"the host is yours to load, by `--i-own-this-host {host}`."
            )
    ordered = sorted(addresses, key=lambda address: addresses[address].version)
    for address in ordered:  # as k6 does: version 4 first, and of them the first that accepts
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=2.0).close()
            return address
    return ordered[0]


def _in_folder(asked: Asked) -> UserApi:
    """Return a server that the lab starts from a folder; LabError where there is nothing to start it from."""
    if asked.folder is None:
        raise LabError("Your loads and scripts need a server: give its --url, or a --folder to start it from.")
    if asked.owned_host is not None:
        raise LabError("--i-own-this-host is for a --url: what is started from a --folder runs on this machine.")
    folder = Path(asked.folder)
    if not any((folder / name).is_file() for name in ("Dockerfile", "server.toml")):
        raise LabError(f"{folder} has neither a Dockerfile nor a server.toml: the lab cannot start a server from it.")
    probe_path = asked.probe_path or "/"
    name = folder.resolve().name if (folder / "server.toml").is_file() else USER_API
    path = "/" if asked.script else probe_path
    return UserApi(name, path, probe_path, folder=os.path.relpath(folder.resolve(), lab_root()))


def _load(asked: Asked, repeats: int | None, *, several: bool) -> Load:
    """Return the load that was asked for, in slices where several servers are compared within the same seconds."""
    workload, users, duration_s = OWN_SCRIPT if asked.script else OWN_GET, asked.vus, asked.duration_s
    rates = tuple(map(float, dict.fromkeys(asked.rates_rps)))
    if users is not None and asked.iterations is not None and not rates and duration_s is None:
        if asked.iterations < (least := users * (SLICES if several else 1)):
            each = f" in each of {SLICES} slices" if several else ""
            said = f"{asked.iterations} iterations are fewer than {users} virtual users{each}"
            raise LabError(f"{said}: give --iterations {least} or more.")
    elif asked.iterations is not None or (users is not None and not rates):
        raise LabError(
            "A load is closed, --vus N --iterations M, or open, --rate R --duration S (where --vus are the most users "
            "that it may have): give one of the two."
        )
    else:
        rates, duration_s = rates or (float(RATE_RPS),), duration_s or DURATION_S
    modes: tuple[Mode, ...] = ("close",) if asked.close else ("keepalive",)
    repeats = repeats or (SESSIONS if several else REPEATS)
    length: dict[str, Any] = {"iterations": asked.iterations, "duration_s": duration_s}
    if several:
        length |= {"duration_s": None, "slices": SLICES, "slice_s": duration_s and duration_s / SLICES}
    vus = () if users is None else (users,)  # the warm-up of each trial decides how many an open load may have
    return Load(workload, repeats, 1.0, modes, vus=vus, rates_rps=rates, **length)


def _remarks(api: UserApi, script: Script | None) -> Iterator[str]:
    if script is not None and script.unused:
        yield (
            f"The script exports {', '.join(script.unused)}, which the lab does not use: the load is the lab's, and "
            "its report takes the place of thresholds and summaries."
        )
    if script is not None:
        yield (
            f"The probe asks for {api.probe_path} only, not for what the script does: the two are not compared, and no "
            "verdict rests on it."
        )
    if not user_server(api).contract:
        yield "The server does not say what it counts: invariant 5 is not checked."
    if api.url is not None:
        yield (
            f"The server at {api.url} was running before, and is the same in every trial: what one leaves behind, the "
            "next one finds."
        )
        found = attached.find(api)
        if found.why:
            unknown = f"The CPU time of the server at {api.url} is not known"
            yield f"{unknown}, and so no verdict: {found.why}."
        else:
            yield from _of_quota(api, quotas.quota_of(found.pid))


def _of_quota(api: UserApi, quota: Quota) -> Iterator[str]:
    """Yield what is to be said of the CPU quota of a server that runs already."""
    if quota.cores is not None:
        whose = "is not the lab's"
        if quota.shared:
            whose = "holds for the load generator, too"
        yield f"The server at {api.url} may use {core_words(quota.cores)}: a CPU quota that {whose}."
    if not quota.known:
        more = "another CPU quota" if quota.cores is not None else "a CPU quota"
        said = f"Whether {more} limits the server at {api.url} is not known"
        yield f"{said}: not all of its control groups can be read."


def why_not_same(api: UserApi, run: RunFolder) -> str | None:
    """Say why a run cannot go on: its script, or the process that it loads, is another one now; None where it can."""
    for name, digest in api.files:
        path = run.scripts / COPY / name
        if not path.is_file() or sha256(path) != digest:
            return f"{path} is not the script that it began with"
    if api.url is not None and api.process is None:
        return "which process it loaded is unknown, so that nothing says whether it is still the same"
    if api.url is not None and attached.find(api).identity != api.process:
        return f"what listens at {api.url} is not the process that it began with"
    return None
