"""Tests of planning a run on a user's API: which input is refused before anything is started.

Further tests check which process counts as the server.
"""

import contextlib
import json
import os
import random
import re
import select
import shutil
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address, ip_network
from types import SimpleNamespace

import pandas as pd
import pytest
import real_lab
from fake_lab import wait_for
from marking import long_but
from measured import measured
from own_api import free_port, tiny

from runner.digest.k6 import RequestNumbers
from runner.digest.reconcile import own_checks
from runner.manifest import Manifest
from runner.measure import attached
from runner.measure.attached import leaders
from runner.measure.engine import MOST_ASKED, Running, require_answer
from runner.measure.generators.fence import NOWHERE, fence
from runner.measure.generators.script import read_script
from runner.measure.process_engine import ProcessEngine
from runner.measure.tools import find_program
from runner.measurement import Counters, Placement
from runner.model import LabError, record_of
from runner.planning.catalog import PACKAGE, campaign_from_manifest
from runner.present.two_runs.compare import conditions
from runner.running import user_api
from runner.running.user_api import Asked, plan_user_api

needs_k6 = real_lab.needs("k6")


@pytest.fixture(scope="module")
def server():
    with tiny(1) as running:
        yield running


@pytest.fixture(scope="module")
def other(server):
    with tiny(1) as running:
        yield running


@pytest.fixture
def api(server):
    """Return the UserApi that is planned for the server."""
    return plan_user_api(Asked(urls=(server.url,)), None, None).campaign.owns[0]


def refusal(**asked):
    with pytest.raises(LabError) as caught:
        plan_user_api(Asked(**asked), None, None)
    said = str(caught.value)
    assert (caught.value.exit_code, said[-1], said.count("\n")) == (2, ".", 0)
    return said


# --- URLs, folders and options that are refused ---------------------------------------------------

ADDRESSES = {
    "http://127.0.0.1:1/": (
        "Nothing answers at http://127.0.0.1:1/ (Connection refused): start your server first"
    ),
    "http://0.0.0.0:80/": "0.0.0.0 has the address 0.0.0.0, which is not this machine's",
    "http://10.9.8.7/": "add `--i-own-this-host 10.9.8.7`",
    "http://[2001:db8::1]:80/": "2001:db8::1, which is not this machine's",
    "http://no-such-host.invalid/": "has no address",
    "http://my_api:9000/": "k6 does not accept the host name my_api: give the server's address",
    "SERVER/broken": "answers with status 500: choose an address or a path that answers 200",
    "https://127.0.0.1:1/": "Nothing answers at https://127.0.0.1:1/ (Connection refused)",
    "ftp://127.0.0.1/": "is not the address of an HTTP server",
    "127.0.0.1:9000": "is not the address of an HTTP server",
    "http://127.0.0.1:70000/": "is not a URL (Port out of range",
    "http://me:secret@127.0.0.1/": "a user, a password or a fragment",
    "http://127.0.0.1/#top": "a user, a password or a fragment",
    "SERVER/missing": "answers with status 404: choose an address",
    "SERVER/away?http://93.184.216.34/": (
        "with status 302 and redirects to http://93.184.216.34/, which the lab does not follow"
    ),
}
ONE_KIND = "A load is either closed (--vus N --iterations M) or open"
OPTIONS = [
    ({"vus": 5}, ONE_KIND),
    ({"iterations": 5}, ONE_KIND),
    ({"vus": 5, "iterations": 50, "rates_rps": (10,)}, ONE_KIND),
    ({"vus": 5, "duration_s": 3.0}, ONE_KIND),
    ({"vus": 5, "iterations": 4}, "fewer iterations (4) than virtual users (5)"),
    ({"probe_path": "/x"}, "without a script the probe requests the same URL"),
    ({"probe_path": "x", "script": "my.js"}, "must begin with a slash"),
    ({"folder": "."}, "omit --folder or --url"),
    (
        {"also": (9100,)},
        "--also needs a --script, because a plain GET requests only its own URL: omit --also",
    ),
    ({"also": ("PORT",), "script": "my.js"}, "which the script may use anyway: omit this --also"),
    ({"script": "FOLDER/none.js"}, "none.js does not exist"),
    ({"urls": ("SERVER/?a=b",), "script": "my.js"}, "A URL with a query"),
    (
        {"urls": ("http://10.9.8.7/",), "owned_host": "10.9.8.8"},
        "10.9.8.8, but the URL's host is 10.9.8.7",
    ),
    ({"urls": (), "vus": 1, "iterations": 1}, "need a server"),
    ({"urls": (), "folder": "FOLDER", "owned_host": "x"}, "on this machine"),
    ({"urls": (), "folder": "FOLDER"}, "neither a Dockerfile nor a server.toml"),
    ({"urls": ("SERVER", "SERVER")}, "The same --url is given twice"),
    ({"urls": ("SERVER", "OTHER/x")}, "different paths"),
    (
        {"urls": ("SERVER", "OTHER"), "vus": 5, "iterations": 20},
        "in each of 6 slices: give --iterations 30 or more",
    ),
]


@pytest.mark.parametrize(
    ("asked", "words"), [*(({"urls": (url,)}, said) for url, said in ADDRESSES.items()), *OPTIONS]
)
def test_urls_that_must_not_be_loaded_are_refused(server, other, tmp_path, asked, words):
    known = {"SERVER": server.url, "OTHER": other.url, "FOLDER": str(tmp_path)}

    def named(value):
        if value == "PORT":
            return int(server.url.rpartition(":")[2])
        if isinstance(value, tuple):
            return tuple(map(named, value))
        return (
            re.sub("|".join(known), lambda found: known[found[0]], value)
            if isinstance(value, str)
            else value
        )

    said = refusal(**{"urls": (server.url,), **{key: named(value) for key, value in asked.items()}})
    assert words in said and "secret" not in said


@pytest.mark.parametrize(
    ("addresses", "elsewhere"),
    [
        (["93.184.216.34"], "93.184.216.34"),
        (["127.0.0.1", "93.184.216.34"], "93.184.216.34"),
        (["::1", "2001:db8::5"], "2001:db8::5"),
        (["::ffff:10.0.0.1"], "::ffff:10.0.0.1"),
    ],
)
def test_a_name_of_which_one_address_leads_elsewhere_is_refused(monkeypatch, addresses, elsewhere):
    answer = [(0, 0, 0, "", (address, 80)) for address in addresses]
    monkeypatch.setattr(user_api.socket, "getaddrinfo", lambda *_, **__: answer)
    assert f"api.test has the address {elsewhere}, which is not" in refusal(
        urls=("http://api.test/",)
    )


def test_what_speaks_another_protocol_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            with contextlib.suppress(OSError):
                while True:
                    channel, _ = listener.accept()
                    channel.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                    channel.close()

        threading.Thread(target=greet, daemon=True).start()
        assert "does not answer HTTP" in refusal(
            urls=(f"http://127.0.0.1:{listener.getsockname()[1]}/",)
        )


def test_a_load_that_nobody_asks_for_is_a_moderate_open_one(server):
    (load,) = plan_user_api(Asked(urls=(server.url,)), None, None).campaign.loads
    assert (load.workload, load.form.rates_rps, load.form.each_s, load.repeats) == (
        "own-get",
        (100.0,),
        15.0,
        3,
    )


def test_without_an_engine_a_dockerfile_cannot_be_run(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    campaign = plan_user_api(Asked(folder=str(tmp_path)), None, None).campaign
    (described,) = map(user_api.user_server, campaign.owns)
    with pytest.raises(
        LabError, match=r"needs a Docker engine, and this run has none \(none answers\)"
    ):
        ProcessEngine(SimpleNamespace(), "none answers").prepare(described)


def test_a_campaign_comes_back_from_its_manifest(server):
    campaign = plan_user_api(Asked(urls=(server.url,), rates_rps=(5, 9)), 2, 7).campaign
    stored = record_of(campaign)
    known = {**stored, "own": stored["owns"], "toml": ""}
    manifest = {"run_id": "x", "seed": campaign.seed, "campaign": known}
    assert campaign_from_manifest(Manifest.of(json.loads(json.dumps(manifest)))) == campaign


# --- scripts that are refused or cause a warning --------------------------------------------------

EMPTY = "export default function () {}"
SCRIPTS = [
    ("export default function () { let = ; }", "my.js: Line 1:36 Unexpected token"),
    ("export function other() {}", "it exports no default function"),
    (
        f"export function setup() {{}}\n{EMPTY}",
        "Remove it: do its work before `bench run`, and save the result in a file that",
    ),
    (f"export function teardown() {{}}\n{EMPTY}", "Remove it: do its work after `bench run`"),
    (f"import './nowhere.js';\n{EMPTY}", "nowhere.js"),
    (f"nothing();\n{EMPTY}", "nothing is not defined (at "),
    (
        f"import x from 'k6/x/faker';\n{EMPTY}",
        "k6/x/faker, which this k6 lacks: remove the import, or install a k6 with this extension",
    ),
]


@needs_k6
@pytest.mark.parametrize(("text", "words"), SCRIPTS)
def test_a_script_that_cannot_be_run_is_refused_in_a_sentence(server, tmp_path, text, words):
    path = tmp_path / "my.js"
    path.write_text(text)
    said = refusal(urls=(server.url,), script=str(path))
    assert words in said and str(path) in said
    assert "bench-" not in said, "the wrapper's own name is no help to a reader"


@needs_k6
@pytest.mark.parametrize(
    ("url", "how", "name"),
    [
        ("https://jslib.k6.io/k6-utils/1.4.0/index.js", "curl -O", "index.js"),
        ("https://no-such-host.invalid/", "curl -o module.js", "module.js"),
        ("http://SERVER/utils.js?x=1", "curl -O", "utils.js"),
    ],
)
@pytest.mark.parametrize("by", ["my.js", "beside.js"])
def test_an_import_from_the_network_is_refused(server, tmp_path, url, how, name, by):
    """An import from the network is refused with a remedy, and nothing is fetched."""
    address = url.replace("SERVER", server.url.removeprefix("http://"))
    before = server.seen["requests"]
    path = tmp_path / "my.js"
    path.write_text(f"import './beside.js';\n{EMPTY}")
    (tmp_path / by).write_text(f"import {{ x }} from '{address}';\n{EMPTY}")
    said = refusal(urls=(server.url,), script=str(path))
    how = f"{how} {address}"
    assert said == (
        f"{path} imports {address}: download it beside the script (for example `{how}`) and "
        f"import './{name}'."
    )
    assert server.seen["requests"] - before == 3, "the first answers only"


@needs_k6
@pytest.mark.parametrize(
    ("line", "is_warned"),
    [
        ("http.get(`${__ENV.BASE_URL}/x`);", False),
        ("const { BASE_URL } = __ENV;", False),
        ("http.get('http://127.0.0.1:9000/x');", True),
        ("// http.get(__ENV.BASE_URL);", True),
    ],
)
def test_a_script_that_never_reads_the_url_is_warned_of(server, tmp_path, line, is_warned):
    path = tmp_path / "my.js"
    path.write_text(f"import http from 'k6/http';\nexport default function () {{\n  {line}\n}}\n")
    remarks = plan_user_api(Asked(urls=(server.url,), script=str(path)), None, None).remarks
    said = f"Any request to another address than {server.url} is blocked and fails the trial"
    assert any(said in remark for remark in remarks) == is_warned


@needs_k6
def test_ports_that_a_script_may_ask_are_in_the_plan_and_said(server, tmp_path):
    path = tmp_path / "my.js"
    path.write_text(EMPTY)
    planned = plan_user_api(
        Asked(urls=(server.url,), script=str(path), also=(9100, 9101)), None, None
    )
    assert planned.campaign.owns[0].also == (9100, 9101)
    assert any(
        "may also use port 9100 and 9101 of the same host" in said for said in planned.remarks
    )


# --- the lab's first requests, which a server must answer -----------------------------------------


def answering(*statuses):
    """Run a server that answers with these statuses in turn, over and over again.

    For a status of 0 the server sends no answer. Yield the server, and the list of the statuses
    that it has used.
    """

    @contextlib.contextmanager
    def running():
        given = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                given.append(statuses[len(given) % len(statuses)])
                if given[-1]:
                    self.send_response(given[-1])
                    self.end_headers()

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield at(server.server_address[1]), given
            server.shutdown()

    return running()


@pytest.mark.parametrize(
    ("statuses", "enough", "asked", "others"),
    [
        ((200,), 1, 1, ()),
        ((200,), 3, 3, ()),
        ((500, 200), 1, 2, (500,)),
        ((500, 200), 3, MOST_ASKED, (500,) * 5),
        ((200, 503), 3, MOST_ASKED, (503,) * 5),
        ((0, 204), 1, 2, (0,)),
    ],
)
def test_a_server_that_answers_some_requests_is_accepted(statuses, enough, asked, others):
    with answering(*statuses) as (running, given):
        first = require_answer("it", running, "/", enough=enough)
    assert (first.others, len(given)) == (others, asked)


@pytest.mark.parametrize(
    ("statuses", "words"),
    [
        ((500,), "answers with status 500: choose an address"),
        ((500, 503, 0), "answers with status 500 or 503: choose an address"),
        ((0,), "does not answer HTTP: give the address of an HTTP server"),
    ],
)
def test_a_server_that_answers_no_request_is_refused(statuses, words):
    """A server is refused if none of its answers is a success; the error names the statuses."""
    with answering(*statuses) as (running, given), pytest.raises(LabError, match=words):
        require_answer("it", running, "/")
    assert len(given) == MOST_ASKED


def test_the_share_of_first_requests_that_fail_is_said(server):
    remarks = plan_user_api(Asked(urls=(f"{server.url}/flaky",)), None, None).remarks
    said = (
        f"5 of 10 first requests to {server.url}/flaky were answered with 500. In the load, such "
        "requests count"
    )
    assert any(said in remark for remark in remarks), remarks


@needs_k6
def test_all_that_a_script_reads_is_known_wherever_it_lies(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "x.js").write_text("export const x = 1;")
    (tmp_path / "a" / "ids.csv").write_text("1,2\n")
    (tmp_path / "a" / "unused.csv").write_text("3\n")
    path = tmp_path / "a" / "b" / "own.js"  # the lab's wrapper script has the same name
    path.write_text(
        "import { x } from '../../shared/x.js';\nconst ids = open('../ids.csv');\nexport const "
        "options = { vus: x };\nexport default async function () {}"
    )
    found = read_script(path, PACKAGE / "workloads" / "own.js", find_program("k6"))
    assert (
        set(found.files) == {"a/b/own.js", "a/ids.csv", "shared/x.js"}
        and found.files["a/ids.csv"] == b"1,2\n"
    )
    assert (found.name, found.unused) == ("a/b/own.js", ("options.vus",))


# --- the fence: which hosts and ports a script may reach ------------------------------------------


def at(port, address="127.0.0.1", host=""):
    """Return a `Running`, which describes a started server.

    The tests use only its port, address and host.
    """
    return Running(1, port, lambda: None, lambda: None, address=address, host=host)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "192.168.7.9"])
def test_the_fence_leaves_one_address_of_all(address):
    options = fence(at(80, address, "api.test:80"))
    blocked = [ip_network(each) for each in options["blacklistIPs"]]
    assert options["maxRedirects"] == 0
    assert any(ip_address(options["hosts"]["*"]) in each for each in blocked)
    leads_to = f"[{address}]:80" if ":" in address else f"{address}:80"
    assert options["hosts"]["api.test:80"] == leads_to
    assert set(options["hosts"].values()) == {leads_to, options["hosts"]["*"]}
    assert not any(ip_address(address) in each for each in blocked)
    own_version = ip_address(address).version
    for version, size in ((4, 2**32), (6, 2**128)):
        covered = sum(each.num_addresses for each in blocked if each.version == version)
        assert covered == size - (version == own_version)


def test_the_fence_has_each_permitted_port_under_each_name():
    there = "127.0.0.1:9000"
    further = "127.0.0.1:9100"
    hosts = fence(at(9000, host="api.test:9000"), also=(9100,))["hosts"]
    assert hosts == {
        "*": NOWHERE,
        **dict.fromkeys([there, "api.test:9000", "localhost:9000"], there),
        **dict.fromkeys([further, "api.test:9100", "localhost:9100"], further),
    }


ASK_ALL = """import http from 'k6/http';
export const options = JSON.parse(__ENV.OPTIONS);
export default function () {
  for (const url of JSON.parse(__ENV.URLS)) {
    console.log(JSON.stringify([url, http.get(url, { timeout: '2s' }).error_code]));
  }
}
"""


def asked(k6, folder, options, urls):
    """Let a real k6 send a GET to each URL.

    `options` are the options of k6 by which the lab keeps a script from other hosts (the fence).
    Return k6's error_code for each URL. A code of 0 means that there was an answer.
    """
    script = folder / "ask.js"
    script.write_text(ASK_ALL)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    env |= {"OPTIONS": json.dumps(options), "URLS": json.dumps(urls)}
    argv = [
        k6,
        "run",
        "--no-usage-report",
        "--quiet",
        "--log-format=raw",
        "--log-output=stdout",
        script,
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60, check=True)
    return dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))


BLOCKED_BY_K6 = 1110


FENCED = [
    (series, host) for series in real_lab.K6_SERIES for host in ("127.0.0.1", "localhost", "[::1]")
]


@pytest.mark.timed
@pytest.mark.parametrize(
    ("series", "host"), long_but([("v1", "127.0.0.1"), ("v2", "127.0.0.1")], FENCED)
)
def test_a_real_k6_reaches_the_permitted_ports_only(tmp_path, series, host):
    """A script in a real k6 reaches the permitted ports of the host, and no other port or host.

    The test checks this by k6's error codes, and by the requests and connections that the programs
    at some of the ports receive.
    """
    k6 = real_lab.k6_of(series)
    address = "::1" if host == "[::1]" else "127.0.0.1"
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.ExitStack() as stack:
        answering = [
            stack.enter_context(tiny(0, address=address, port=free_port(address) + more))
            for more in (0, 1)
        ]
        silent = [
            stack.enter_context(socket.create_server((address, 0), family=family)) for _ in range(5)
        ]
        own, further = (int(server.url.rpartition(":")[2]) for server in answering)
        others = [each.getsockname()[1] for each in silent]
        ports = [own, further, *others, *random.sample(range(1, 65536), 20)]
        urls = {port: f"http://{host}:{port}/" for port in ports}
        elsewhere = [f"http://127.0.0.2:{own}/", f"http://name.test:{own}/", "http://name.test/"]
        for also in ((), (further,)):
            found = asked(
                k6,
                tmp_path,
                fence(at(own, address, f"{host}:{own}"), also),
                [*urls.values(), *elsewhere],
            )
            for port, url in urls.items():
                assert found[url] == (0 if port in (own, *also) else BLOCKED_BY_K6), url
            assert {found[url] for url in elsewhere} == {BLOCKED_BY_K6}
            assert answering[1].seen["requests"] == len(also)
        assert select.select(silent, [], [], 0)[0] == [], "somebody connected"


# --- which process is the server ------------------------------------------------------------------

WORKERS = """
import os, socket, sys, time
def listener(address, port):
    made = socket.socket(); made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
    return made
how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
shared = listener(address, port); port = shared.getsockname()[1]
if how != "each":
    shared.listen()
for _ in range(0 if how == "alone" else 2):
    if os.fork() == 0:
        if how == "each":
            shared = listener(address, port); shared.listen()
        time.sleep(60)
if how == "left":
    shared.close()
print(port, flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def listening(how, address="127.0.0.1", port=0):
    """Run a program that listens, alone or with two workers; yield the program's pid and port."""
    argv = [sys.executable, "-c", WORKERS, how, address, port]
    with real_lab.process(*argv, stdout=subprocess.PIPE, text=True) as process:
        yield process.pid, int(process.stdout.readline())


@pytest.mark.parametrize("how", ["kept", "left", "each"])
def test_workers_count_as_their_parent(how):
    """If workers share the address of their parent, the parent counts as the server.

    There are three ways to share the address. The workers may inherit the parent's socket, which
    the parent keeps or closes afterwards, or each worker may open a socket of its own.
    """
    with listening(how) as (pid, port):
        wait_for(lambda: leaders("127.0.0.1", port) == [pid], 10)
        assert leaders("127.0.0.1", port + 1) == []


def test_a_socket_of_the_address_goes_before_one_of_all():
    with listening("alone", "0.0.0.0") as (pid, port):
        assert leaders("127.0.0.1", port) == [pid]
        assert leaders("10.9.8.7", port) == [], (
            "another machine's sockets are not in this one's tables"
        )
        with listening("alone", "127.0.0.1", port) as (exact, _):
            assert leaders("127.0.0.1", port) == [exact]


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, to be somebody else"
)
def test_another_user_s_process_is_not_known(server):
    port = int(server.url.rpartition(":")[2])
    code = f"from runner.measure.attached import leaders; print(leaders('127.0.0.1', {port}))"
    argv = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        sys.executable,
        "-c",
        code,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=PACKAGE.parent)
    if done.returncode != 0:
        pytest.skip(f"nobody cannot run this Python: {done.stderr.splitlines()[-1]}")
    assert done.stdout.strip() == "[]"
    assert leaders("127.0.0.1", port) == [server.process.pid]


def test_the_generator_gets_what_the_server_may_not_use(server, api):
    cpus = sorted(os.sched_getaffinity(0))

    def move(cpu):
        command = ["taskset", "-a", "-c", "-p", str(cpu), str(server.process.pid)]
        subprocess.run(command, check=True, capture_output=True)

    assert attached.place([api]) == Placement((0,), tuple(cpus[1:]))
    move(cpus[-1])
    try:
        assert attached.place([api]) == Placement((cpus[-1],), tuple(cpus[:-1]) or (cpus[-1],))
    finally:
        move(0)


# --- the checks of a trial, and the conditions of a comparison ------------------------------------


def test_each_check_of_a_users_api_fails_by_itself():
    cell = SimpleNamespace(workload="own", mode="close")
    points = RequestNumbers(
        **dict.fromkeys(("failed", "script_runs", "first_start_ns", "last_end_ns"), 0),
        **dict.fromkeys(("worst_residual_ms", "iteration_max_ms"), 0.0),
        **{
            "requests": 100,
            "with_status": 100,
            "iterations": 50,
            "durations": {},
            "latency": {},
            "steady": None,
        },
    )
    measurement = measured(
        counters_before=Counters(None, None, 10), counters_after=Counters(None, None, 110)
    )

    def broken(**changed):
        given = replace(points, **changed)
        return [check.name for check in own_checks(cell, given, measurement) if not check.ok]

    assert broken() == []
    assert broken(blocked=1) == ["every request went to the server"]
    assert broken(unnamed=1) == []
    said = {
        check.name: check.detail
        for check in own_checks(cell, replace(points, blocked=3, elsewhere=7), measurement)
    }
    assert said["every request went to the server"] == (
        "3 of 107 requests went to another host or port, and were blocked: let the script use "
        "__ENV.BASE_URL, or allow a port of the same host by --also PORT"
    )
    assert broken(points={"lab_iterations_thrown": 1}) == [
        "every iteration of the script ran to its end"
    ]
    assert broken(with_status=101) == ["7 close mode proven by accepted connections"]
    cell.workload = "experiments"
    assert broken(blocked=1) == []


def test_runs_of_different_scripts_are_not_compared_as_one(api):
    trials = pd.DataFrame({"tool": ["k6"], "server": ["own-api"], "pool_size": [float("nan")]})

    def manifest(files):
        return Manifest.of({"campaign": {"own": vars(replace(api, files=files))}})

    a = manifest((("my.js", "a" * 64),))
    b = manifest((("my.js", "b" * 64),))
    assert [each.what for each in conditions(a, b, trials, force=True)] == ["script"]
    assert conditions(a, a, trials, force=False) == ()


# --- a run on several servers ---------------------------------------------------------------------


def test_two_servers_are_compared_in_sessions(server, other):
    campaign = plan_user_api(
        Asked(urls=(server.url, other.url), duration_s=12.0), None, None
    ).campaign
    assert campaign.servers == ("url-a", "url-b")
    assert [each.url for each in campaign.owns] == [server.url, other.url]
    (load,) = campaign.loads
    assert (load.repeats, load.slices, load.form.each_s) == (6, 6, 2.0)
    assert (load.columns().slice_s, load.columns().duration_s) == (2.0, None)
