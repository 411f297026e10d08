"""Plan a campaign for a user's API: check its address, the permission to load it, and the load.

A user's API is a server that already runs at a URL, or that the lab starts from the user's folder.
"""

import contextlib
import math
import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from string import ascii_lowercase
from urllib.parse import urlsplit

from runner.http_response import Response
from runner.measure import attached
from runner.measure.attached import Listener
from runner.measure.engine import Answers, Running, ask, require_answer
from runner.measure.generators.script import COPY, Script, read_script
from runner.measure.generators.written import Written
from runner.measure.quotas import quota_of
from runner.measure.tls import (
    HTTP_2,
    HandshakeError,
    only_http_2,
    only_plain_http_2,
    require_certificates,
    require_pair,
    require_tls,
    speaks_plain_http_2,
    speaks_plainly,
    speaks_tls,
)
from runner.measure.tools import need_tool
from runner.measurement import Quota
from runner.model import OWN_GET, OWN_SCRIPT, Campaign, LabError, Load, UserApi, core_words
from runner.planning.catalog import PACKAGE, USER_API, user_server, wrapper_name
from runner.planning.search import Objective, steps_between
from runner.shapes import Bisections, Form, Iterations, Mode, Sweep
from runner.store import RunFolder, lab_root, sha256

RATE_RPS = 100
DURATION_S = 15.0
"""Default duration of an open load.

At RATE_RPS, the load must last this long so that the probe gets enough answers for a median.
"""
MOST_RPS = 10_000
"""Highest rate that a search without --rate tries. k6 can send about this rate on one core."""
REPEATS = 3
SESSIONS = 6
"""Default number of sessions if several servers are compared."""
SLICES = 6
"""If several servers are compared, each server gets this many slices in each session."""
MOST_URLS = 8
_TAKEN_BY_K6 = re.compile(
    r"([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])(\.([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9]))*"
)
"""Host names that k6's option `hosts` accepts: without underscore and without a dot at the end.

Source: k6's lib/types/hosts.go.
"""
DEFAULT_PORTS = {"http": 80, "https": 443}
TRUSTED = "SSL_CERT_FILE"
"""Environment variable that names the file of the certificates that OpenSSL and Go trust."""
FINE = 3
"""Number of requests with which the lab checks that a user's server answers, before any load.

The lab sends more requests only if one of these requests is not answered with 2xx.
"""


@dataclass(frozen=True)
class Asked:
    """Options of the command line for a user's API; an option not given is None or empty."""

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
    also: tuple[int, ...] = ()  # further ports of the URL's host that the script may use
    ca: str | None = None  # file with the certificates to trust
    insecure: bool = False
    certificate: str | None = None  # file with the client's certificate
    key: str | None = None  # file with the key of the client's certificate
    objective: str | None = None  # search for the highest rate that keeps this objective
    as_written: bool = False  # the script's own options define the load


@dataclass(frozen=True)
class Planned:
    """The campaign for a user's API, and the script and the notes that are stored with the run."""

    campaign: Campaign
    script: Script | None
    remarks: tuple[str, ...]  # notes that a reader of the run's numbers needs


def plan_user_api(asked: Asked, repeats: int | None, seed: int | None) -> Planned:
    """Return the campaign for a user's server.

    Raise LabError if the server must not be loaded, or cannot be loaded. If the server already
    runs, send it some requests first, and raise LabError if no answer reports success.
    """
    if asked.probe_path is not None and not asked.probe_path.startswith("/"):
        raise LabError(f"--probe-path {asked.probe_path!r} must begin with a slash.")
    if asked.also and asked.script is None:
        raise LabError(
            "--also needs a --script, because a plain GET requests only its own URL: omit --also."
        )
    _check_trust(asked)
    _check_as_written(asked)
    found = _at_urls(asked) if asked.urls else (_Found(_in_folder(asked)),)
    apis = tuple(replace(each.api, also=asked.also) for each in found)
    for api in apis:
        if api.port in asked.also:
            raise LabError(
                f"--also {api.port} is the port of {api.url}, which the script may use "
                "anyway: omit this --also."
            )
    script = None
    if asked.script is not None:
        if "?" in apis[0].path:
            raise LabError(
                "A URL with a query is only for a plain GET: with --script, omit the query "
                "and let the script add it to BASE_URL."
            )
        wrapper = PACKAGE / "workloads" / wrapper_name(as_written=asked.as_written)
        script = read_script(
            Path(asked.script), wrapper, need_tool("k6").path, as_written=asked.as_written
        )
        written_s = None if script.written is None else script.written.longest_s
        apis = tuple(
            replace(api, script=script.name, files=script.digests, written_s=written_s)
            for api in apis
        )
    written = None if script is None else script.written
    where = " and ".join(str(api.url or api.folder) for api in apis)
    campaign = Campaign(
        name=USER_API,
        title=f"{where}: {f'script {apis[0].script}' if script else f'GET {apis[0].path}'}",
        servers=tuple(user_server(api).name for api in apis),
        loads=(_load(asked, repeats, written, several=len(apis) > 1),),
        seed=seed or 1,
        server_cpus=asked.server_cpus or 1,
        sample_hz=20.0,
        owns=apis,
    )
    remarks = [said for each in found for said in each.remarks]
    remarks += [said for api in apis for said in _remarks(api, script)]
    remarks += _remarks_on_script(apis, script) if script is not None else ()
    return Planned(campaign, script, tuple(dict.fromkeys(remarks)))


@dataclass(frozen=True)
class _Found:
    """A user's server, and notes about its TLS and its first answers."""

    api: UserApi
    remarks: tuple[str, ...] = ()


def _at_urls(asked: Asked) -> tuple[_Found, ...]:
    """Return the servers at the user's URLs.

    Several servers are compared with each other, so all servers must get equal requests. Raise
    LabError if the URLs have different paths or queries, if a URL is given twice, or if there are
    more than MOST_URLS URLs.
    """
    if len(set(asked.urls)) < len(asked.urls):
        raise LabError("The same --url is given twice: name two different servers.")
    if len(asked.urls) > MOST_URLS:
        raise LabError(
            f"{len(asked.urls)} URLs are too many to be loaded in turn: give at most "
            f"{MOST_URLS} URLs."
        )
    found = tuple(_at_url(asked, url) for url in asked.urls)
    if len({each.api.path for each in found}) > 1:
        raise LabError(
            "The URLs have different paths or queries, so the servers cannot be compared: "
            "give all URLs the same path and query."
        )
    if len(found) == 1:
        return found
    named = zip(found, ascii_lowercase, strict=False)
    return tuple(
        replace(each, api=replace(each.api, name=f"url-{letter}")) for each, letter in named
    )


def _at_url(asked: Asked, url: str) -> _Found:
    """Return the server at a URL.

    Raise LabError if the server does not answer. Also raise LabError if the server's host is not
    this machine and the user has not declared that the lab may load this host.
    """
    for name, value in {"--folder": asked.folder, "--server-cpus": asked.server_cpus}.items():
        if value is not None:
            raise LabError(
                f"{name} is only for a server that the lab starts, not for a --url: omit {name} "
                "or --url."
            )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise LabError(f"{url!r} is not a URL ({error}): check it.") from None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or port == 0:
        raise LabError(
            f"{url!r} is not the address of an HTTP server: write one such as "
            "http://127.0.0.1:9000/."
        )
    if parts.username is not None or parts.fragment:
        raise LabError(
            "A URL with a user, a password or a fragment is not supported, because the report "
            "would show them: omit them, and let a --script send what the server needs."
        )
    host = parts.hostname
    port = port or DEFAULT_PORTS[parts.scheme]
    if ":" not in host and not _TAKEN_BY_K6.fullmatch(host):
        raise LabError(
            f"k6 does not accept the host name {host}: give the server's address, such as "
            "127.0.0.1."
        )
    address = _permitted(host, port, asked.owned_host)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if asked.probe_path is not None and not asked.script:
        raise LabError(
            "--probe-path needs a --script, because without a script the probe requests "
            "the same URL as the load: omit --probe-path."
        )
    api = UserApi(USER_API, path, asked.probe_path or path, url=url, address=address, port=port)
    api = _over_tls(api, asked)
    found = attached.find(api)
    running = attached.target(api, found)
    preferred = _preferred_protocol(api, running)
    first = _first_answers(api, running, preferred)
    remarks = _remarks_on_tls(api, preferred)
    remarks += _remarks_on_answers(f"{running.origin}{api.probe_path}", first)
    return _Found(replace(api, process=found.identity), remarks)


def _preferred_protocol(api: UserApi, running: Running) -> str | None:
    """Return the protocol that a server prefers over TLS (see `require_tls`).

    Return None if the URL does not begin with `https://`. Raise LabError if nothing answers at the
    URL, or if TLS does not work.
    """
    if running.tls is None:
        return None
    url = str(api.url)
    try:
        return require_tls(url, (running.address, running.port), running.tls)
    except HandshakeError:
        reply = _reply(replace(running, tls=None), api.probe_path)
        if reply is not None and reply.status < 400:
            raise speaks_plainly(url) from None
        raise
    except OSError as error:
        raise LabError(
            f"Nothing answers at {url} ({error.strerror or error}): start your server first."
        ) from None


def _first_answers(api: UserApi, running: Running, preferred: str | None) -> Answers:
    """Return the first answers of a server; raise LabError if no answer has a status of 2xx."""
    try:
        return require_answer("your server", running, api.probe_path, enough=FINE)
    except LabError:
        if running.tls is None and speaks_tls((running.address, running.port)):
            there = str(api.url).replace("http://", "https://", 1)
            raise LabError(
                f"The server at {api.url} speaks TLS: write the address as {there}."
            ) from None
        if running.tls is None and speaks_plain_http_2((running.address, running.port)):
            raise only_plain_http_2(str(api.url)) from None
        if preferred == HTTP_2 and _reply(running, api.probe_path) is None:
            raise only_http_2(str(api.url)) from None
        raise


def _reply(running: Running, path: str) -> Response | None:
    """Return a server's answer to a GET, or None if there is no answer in HTTP/1.1."""
    try:
        return ask(running, path, timeout_s=2.0)
    except OSError:
        return None


def _check_trust(asked: Asked) -> None:
    """Raise LabError if --ca, --insecure, --cert or --key cannot be used."""
    given = {
        "--insecure": asked.insecure or None,
        "--ca": asked.ca,
        "--cert": asked.certificate,
        "--key": asked.key,
    }
    named = [name for name, value in given.items() if value is not None]
    if asked.ca is not None and asked.insecure:
        raise LabError("--insecure accepts any certificate, so --ca has no use: omit one of them.")
    if (asked.certificate is None) != (asked.key is None):
        raise LabError(
            "--cert and --key must be given together: give the file of the certificate and the "
            "file of its key."
        )
    if named and not any(url.startswith("https://") for url in asked.urls):
        raise LabError(f"{named[0]} is only for a --url that begins with https://: omit it.")
    if asked.ca is not None:
        require_certificates(asked.ca)
    if asked.certificate is not None and asked.key is not None:
        require_pair(asked.certificate, asked.key)


def _check_as_written(asked: Asked) -> None:
    """Raise LabError if --as-written is given without a script, or contradicts another option."""
    if not asked.as_written:
        return
    if asked.script is None:
        raise LabError(
            "--as-written takes the load from the options of a script: add --script FILE."
        )
    if len(asked.urls) > 1:
        raise LabError(
            "--as-written can load only one server, because a load that the script itself "
            "defines cannot be cut into slices: run the command once for each --url, and "
            "compare the runs."
        )
    given = {
        "--vus": asked.vus,
        "--iterations": asked.iterations,
        "--rate": asked.rates_rps or None,
        "--duration": asked.duration_s,
        "--objective": asked.objective,
        "--close": asked.close or None,
    }
    named = [name for name, value in given.items() if value is not None]
    if named:
        raise LabError(
            "With --as-written the script's own options define the load: omit "
            f"{' and '.join(named)}."
        )


def _over_tls(api: UserApi, asked: Asked) -> UserApi:
    """Return a user's API with the certificates that the options name.

    If there is neither --ca nor --insecure, the file that the environment variable SSL_CERT_FILE
    names takes the place of --ca. If the API's URL does not begin with `https://`, return the API
    unchanged.
    """
    if not str(api.url).startswith("https://"):
        return api
    if asked.certificate is not None and asked.key is not None:
        api = replace(
            api,
            certificate=_from_root(asked.certificate),
            certificate_sha256=sha256(Path(asked.certificate)),
            key=_from_root(asked.key),
        )
    file = asked.ca or (None if asked.insecure else os.environ.get(TRUSTED))
    if not file:
        return replace(api, insecure=asked.insecure)
    require_certificates(file)
    return replace(api, ca=_from_root(file), ca_sha256=sha256(Path(file)))


def _from_root(path: str) -> str:
    """Return a file's path relative to the lab's root."""
    return os.path.relpath(Path(path).resolve(), lab_root())


def _remarks_on_tls(api: UserApi, preferred: str | None) -> tuple[str, ...]:
    """Return notes about a server over TLS; `preferred` is the protocol that the server prefers."""
    said = []
    if api.insecure:
        said.append(f"The certificate of {api.url} is not verified (--insecure).")
    if preferred == HTTP_2:
        said.append(
            f"k6 speaks HTTP/2 with {api.url}, while the probe (the lab's own client beside "
            "the load) speaks HTTP/1.1."
        )
    return tuple(said)


def _remarks_on_answers(url: str, first: Answers) -> tuple[str, ...]:
    """Return one note if some of the first requests were not answered with 2xx.

    If all were answered with 2xx, return an empty tuple.
    """
    if not first.others:
        return ()
    said = f"{len(first.others)} of {len(first.statuses)} first requests to {url} {first.in_words}"
    return (f"{said}. In the load, such requests count as failed.",)


def _permitted(host: str, port: int, owned: str | None) -> str:
    """Return the address at which `host` may be loaded.

    The user may declare by --i-own-this-host (`owned`) that the lab may load this host. Without
    this declaration, raise LabError if any address of the host is not a loopback address.
    """
    if owned is not None and owned.lower() != host.lower():
        raise LabError(
            f"--i-own-this-host names {owned}, but the URL's host is {host}: name the same host."
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise LabError(f"The host {host} has no address ({error}): check the URL.") from None
    addresses = {
        str(entry[4][0]): ip_address(str(entry[4][0]).partition("%")[0]) for entry in found
    }
    for address, parsed in addresses.items():
        if owned is None and not (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback:
            raise LabError(
                f"{host} has the address {address}, which is not this machine's loopback "
                "address. The lab loads another machine only if you declare that you may "
                f"load it: add `--i-own-this-host {host}`."
            )
    ordered = sorted(addresses, key=lambda address: addresses[address].version)
    # Try IPv4 addresses first, as k6 does, and use the first address that accepts a connection.
    for address in ordered:
        with contextlib.suppress(OSError):
            socket.create_connection((address, port), timeout=2.0).close()
            return address
    return ordered[0]


def _in_folder(asked: Asked) -> UserApi:
    """Return the server that the lab starts from the user's folder.

    Raise LabError if the folder has neither a Dockerfile nor a server.toml.
    """
    if asked.folder is None:
        raise LabError(
            "Your loads and scripts need a server: give its --url, or a --folder to start it from."
        )
    if asked.owned_host is not None:
        raise LabError(
            "--i-own-this-host is only for a --url, because the lab starts a --folder on "
            "this machine: omit --i-own-this-host."
        )
    folder = Path(asked.folder)
    if not any((folder / name).is_file() for name in ("Dockerfile", "server.toml")):
        raise LabError(
            f"{folder} has neither a Dockerfile nor a server.toml: add one, so that the lab can "
            "start the server."
        )
    probe_path = asked.probe_path or "/"
    name = folder.resolve().name if (folder / "server.toml").is_file() else USER_API
    path = "/" if asked.script else probe_path
    return UserApi(name, path, probe_path, folder=os.path.relpath(folder.resolve(), lab_root()))


def _load(asked: Asked, repeats: int | None, written: Written | None, *, several: bool) -> Load:
    """Return the load that the options define; raise LabError if the options contradict each other.

    If several servers are compared, they are loaded in sessions, and the load is divided into
    slices.
    """
    if written is not None:
        return Load(OWN_SCRIPT, repeats or REPEATS, 0.0, written.form, users=(written.users,))
    workload = OWN_SCRIPT if asked.script else OWN_GET
    users = asked.vus
    duration_s = asked.duration_s
    rates = tuple(map(float, dict.fromkeys(asked.rates_rps)))
    # A search is not divided into slices.
    slices = SLICES if several and asked.objective is None else None
    form: Form
    if asked.objective is not None:
        form = _search(asked.objective, asked, rates)
    elif users is not None and asked.iterations is not None and not rates and duration_s is None:
        form = Iterations(asked.iterations)
        if asked.iterations < (least := users * (SLICES if several else 1)):
            each = f" in each of {SLICES} slices" if several else ""
            said = (
                f"There are fewer iterations ({asked.iterations}) than virtual users "
                f"({users}){each}"
            )
            raise LabError(f"{said}: give --iterations {least} or more.")
    elif asked.iterations is not None or (users is not None and not rates):
        raise LabError(
            "A load is either closed (--vus N --iterations M) or open (--rate R --duration "
            "S, with --vus as the highest number of users): give the options of only one "
            "of the two."
        )
    else:
        length_s = duration_s or DURATION_S
        each_s = length_s / SLICES if several else length_s
        form = Sweep(rates or (float(RATE_RPS),), each_s)
    modes: tuple[Mode, ...] = ("close",) if asked.close else ("keepalive",)
    repeats = repeats or (REPEATS if slices is None else SESSIONS)
    # If --vus is not given, the warm-up of each trial decides how many users an open load may have.
    return Load(
        workload,
        repeats,
        1.0,
        form,
        modes,
        users=() if users is None else (users,),
        slices=slices,
    )


def _search(text: str, asked: Asked, rates_rps: Sequence[float]) -> Bisections:
    """Return a search for the highest rate at which the server meets the objective in `text`.

    The search is between the two given rates. If no rates are given, the higher rate is MOST_RPS.
    The lower rate is then the lowest rate at which a step of the search, which is a trial, sends
    enough requests to estimate the objective's percentile. Raise LabError if the options do not fit
    a search.
    """
    objective = Objective.parse(text)
    if asked.iterations is not None:
        raise LabError(
            "--objective searches among open loads, and --iterations is for closed loads: "
            "omit one of the two options."
        )
    if len(rates_rps) not in (0, 2):
        raise LabError(
            "--objective searches between two rates: give the lowest and the highest rate "
            "as two --rate, or no --rate at all."
        )
    duration_s = asked.duration_s or DURATION_S
    least_rps = math.ceil(objective.least_requests / duration_s)
    low_rps, high_rps = sorted(rates_rps or (float(least_rps), float(MOST_RPS)))
    if low_rps < least_rps or low_rps == high_rps:
        raise LabError(
            f"At {low_rps:g} requests/s a step of {duration_s:g} s sends too few requests "
            f"to estimate the percentile, which needs {objective.least_requests:,}: give "
            f"--duration {math.ceil(objective.least_requests / low_rps)} or more, or higher "
            "rates."
        )
    return Bisections(
        objective.text, low_rps, high_rps, steps_between(low_rps, high_rps), duration_s
    )


def _remarks(api: UserApi, script: Script | None) -> Iterator[str]:
    if script is not None and script.written is not None:
        yield (
            f"The script's own options define the load: {script.written.words}. The lab "
            "sends no warm-up, so the numbers include the first requests. They do not "
            "include the requests of setup() and teardown()."
        )
    if script is not None and script.written is not None and script.unused:
        yield (
            "The script exports handleSummary, which the lab does not run, because this "
            "function may write files."
        )
    elif script is not None and script.unused:
        yield (
            f"The script exports {', '.join(script.unused)}, which the lab does not use, "
            "because the lab sets the load, and its report replaces thresholds and "
            "summaries."
        )
    if script is not None:
        yield (
            "The probe (the lab's own client beside the load) requests only "
            f"{api.probe_path}, and the script requests other paths. Therefore the response "
            "times of probe and script are not compared, and no verdict uses the probe."
        )
    if not user_server(api).contract:
        yield (
            "The server does not report how many requests it answered, so invariant 5 (the "
            "server and the generator count the same requests) is not checked."
        )
    if api.url is not None:
        yield (
            f"The server at {api.url} was already running, and the lab does not restart it "
            "between trials. Each trial therefore starts from the state that the trial "
            "before it left."
        )
        yield from remarks_on_process(api, attached.find(api))


def remarks_on_process(
    api: UserApi, found: Listener, quota_of: Callable[[int], Quota] = quota_of
) -> Iterator[str]:
    """Yield notes about the process of a server that already runs.

    If the process is unknown, a note says why. If the process is known, notes say which CPU quota
    limits it, or that a quota may be unknown. `quota_of` returns the quota of a process.
    """
    if found.why:
        unknown = f"The CPU time of the server at {api.url} is not known"
        yield f"{unknown}, because {found.why}. Without it there is no verdict."
        return
    quota = quota_of(found.pid)
    if quota.cores is not None:
        whose = "the lab did not set"
        if quota.shared:
            whose = "limits the load generator, too"
        cores = core_words(quota.cores)
        yield f"The server at {api.url} may use only {cores}, because of a CPU quota that {whose}."
    if not quota.known:
        more = "another CPU quota" if quota.cores is not None else "a CPU quota"
        said = f"Whether {more} limits the server at {api.url} is not known"
        yield f"{said}, because some of the server's control groups cannot be read."


def _remarks_on_script(apis: Sequence[UserApi], script: Script) -> Iterator[str]:
    """Yield notes about those requests of a script that the lab blocks or counts separately."""
    ports = [str(port) for port in apis[0].also]
    if not script.reads_base_url:
        where = " and ".join(str(api.url or api.folder) for api in apis)
        yield (
            "The script never reads __ENV.BASE_URL, so it may request a fixed address. Any "
            f"request to another address than {where} is blocked and fails the trial. Let "
            f"the script request `${{__ENV.BASE_URL}}/...`."
        )
    if ports:
        yield (
            f"The script may also use port {' and '.join(ports)} of the same host (--also). "
            "Requests to this port are counted separately, and no rate and no percentile "
            "includes them. The durations of iterations include them."
        )


def _has_changed(path: Path, digest: str | None) -> bool:
    """Return whether a file is missing, or has another SHA-256 than `digest`."""
    return not path.is_file() or sha256(path) != digest


def why_not_same(api: UserApi, run: RunFolder) -> str | None:
    """Return the reason why a run of a user's API cannot be resumed.

    Return None if the run can be resumed. There is a reason if the run compares two commits, if the
    script or a certificate has changed since the run began, or if the process at the URL is unknown
    or is another process now.
    """
    if api.commit is not None:
        return (
            "the lab has removed the temporary folders of its two commits; `bench ab` measures "
            "them anew"
        )
    for name, digest in api.files:
        path = run.scripts / COPY / name
        if _has_changed(path, digest):
            return f"{path} has changed since the run began"
    certificates = ((api.ca, api.ca_sha256), (api.certificate, api.certificate_sha256))
    for file, known_sha256 in certificates:
        if file is not None and _has_changed(lab_root() / file, known_sha256):
            return f"{file} has changed since the run began"
    if api.url is not None and api.process is None:
        return (
            "the lab does not know the process that it loaded, so a restart of the server "
            "would go unnoticed"
        )
    if api.url is not None and attached.find(api).identity != api.process:
        return f"the process at {api.url} is not the process that was loaded when the run began"
    return None
