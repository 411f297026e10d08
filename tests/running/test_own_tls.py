"""Tests of `bench run --url https://...` on a server in Go, with which k6 speaks HTTP/2."""

import subprocess

import pandas as pd
import pytest
import real_lab
from own_api import CLOSED, run, tiny
from tls_servers import Authority, plain_api, strict, strict_program

pytestmark = [real_lab.needs("k6", "go"), real_lab.needs_two_cpus]
OPEN = ("--rate", "300", "--duration", "5")
SCRIPT = """import http from 'k6/http';
export default function () {
  http.get(`${__ENV.BASE_URL}/items`);
  http.post(`${__ENV.BASE_URL}/items`, '{"name":"sofa"}');
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Return the path of the compiled program of examples/plain-api."""
    program = tmp_path_factory.mktemp("plain-api") / "server"
    source = real_lab.REPOSITORY / "examples" / "plain-api"
    subprocess.run(["go", "build", "-C", source, "-o", program, "."], check=True)
    return program


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory):
    return strict_program(tmp_path_factory.mktemp("strict"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.mark.load
def test_both_witnesses_know_the_delay_over_tls(root, server, authority):
    with plain_api(server, authority.certificate()) as origin:
        trusted = ("--ca", str(authority.ca))
        made = run(root, *OPEN, *trusted, url=f"{origin}/items")
    row = made.trials.iloc[0]
    assert (row["proto"], row["tls_version"], row["mode"]) == ("HTTP/2.0", "tls1.3", "keepalive")
    assert row["failed"] == row["probe_failed"] == 0
    assert row["probe_requests"] == pytest.approx(15, abs=1)
    assert row["latency_p50_ms"] >= 20 and row["probe_p50_ms"] >= 20
    assert row["server_cpu_mean_pct"] > 0
    assert any("k6 speaks HTTP/2 with" in said for said in made.manifest["host_warnings"])
    own = made.manifest["campaign"]["own"]
    assert own["ca_sha256"] and not own["insecure"]


@pytest.mark.timed
@pytest.mark.long
def test_a_script_over_tls_of_ip_version_6_accepts_any_certificate(root, server, authority):
    try:
        files = authority.certificate(("elsewhere.test",))
        with plain_api(server, files, address="::1", delay_ms=2) as origin:
            given = (*CLOSED, "--insecure", "--probe-path", "/items")
            made = run(root, *given, url=origin, script=SCRIPT)
    except (AssertionError, OSError):
        pytest.skip("this machine has no address of IP version 6")
    row = made.trials.iloc[0]
    assert row["proto"] == "HTTP/2.0" and row["requests"] == 400 and row["failed"] == 0
    warnings = " ".join(made.manifest["host_warnings"])
    assert f"The certificate of {origin} is not verified (--insecure)." in warnings


@pytest.mark.timed
@pytest.mark.long
def test_a_server_over_tls_is_compared_with_one_without(root, server, authority):
    """A server with TLS is compared with the same server without TLS.

    Each request opens a new connection, so that the CPU time of the handshakes shows.
    """
    with (
        plain_api(server, authority.certificate(), delay_ms=5) as secured,
        plain_api(server, delay_ms=5) as plain,
    ):
        urls = ("--url", f"{secured}/items", "--url", f"{plain}/items", "--close")
        load = ("--vus", "4", "--iterations", "600")
        made = run(root, *urls, *load, "--ca", str(authority.ca))
    rows = made.trials.set_index("server")
    assert rows["proto"].to_dict() == {"url-a": "HTTP/2.0", "url-b": "HTTP/1.1"}
    assert rows.loc["url-a", "tls_version"] == "tls1.3"
    assert pd.isna(rows.loc["url-b", "tls_version"])
    assert (rows["mode"] == "close").all()
    cost = rows["server_cpu_ms_per_request"]
    assert cost["url-a"] > 1.5 * cost["url-b"], "a handshake costs more than a request"


@pytest.mark.timed
def test_both_witnesses_present_the_client_s_certificate(root, strict_server, authority):
    client = authority.certificate(("a-client.test",))
    given = ("--ca", str(authority.ca), "--cert", str(client.certificate), "--key", str(client.key))
    files = authority.certificate()
    with strict(strict_server, files, client_ca=authority.ca) as origin:
        made = run(root, *OPEN, *given, "--probe-path", "/", url=origin, script=PLAIN)
        assert "requires a client's certificate" in refused(root, origin, *given[:2])
    row = made.trials.iloc[0]
    assert row["requests"] > 1000 and row["failed"] == row["probe_failed"] == 0
    assert row["probe_requests"] > 0
    assert made.manifest["campaign"]["own"]["certificate_sha256"]
    stored = [path.read_bytes() for path in made.folder.rglob("*") if path.is_file()]
    assert not any(b"PRIVATE KEY" in each for each in stored)


def test_a_server_of_http_2_alone_is_refused(root, strict_server, authority):
    trusted = ("--ca", str(authority.ca))
    with strict(strict_server, authority.certificate()) as origin:
        assert "speaks only HTTP/2" in refused(root, f"{origin}/", *trusted)
    with strict(strict_server) as origin:
        assert "speaks only HTTP/2 without TLS" in refused(root, f"{origin}/")


PLAIN = """import http from 'k6/http';
export default function () { http.get(`${__ENV.BASE_URL}/`); }
"""


def refused(root, url, *options):
    done = real_lab.bench(root, "run", "--url", url, *CLOSED, *options, code=2)
    return " ".join(done.stderr.split())


@pytest.mark.timed
def test_the_wrong_scheme_is_named(root, server, authority):
    with plain_api(server, authority.certificate()) as secured, tiny(1) as plain:
        there = secured.replace("https", "http")
        assert f"speaks TLS: write the address as {secured}/items" in refused(
            root, f"{there}/items"
        )
        there = plain.url.replace("http", "https")
        assert f"does not speak TLS: write the address as {plain.url}/x" in refused(
            root, f"{there}/x"
        )
        assert "--insecure is only for a --url that begins with https://" in refused(
            root, f"{plain.url}/x", "--insecure"
        )
        assert "is not trusted" in refused(root, f"{secured}/items")
