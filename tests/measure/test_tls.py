"""Tests of TLS: the lab must refuse servers that k6 would refuse, and name a remedy."""

import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from tls_servers import Authority, shaking

from runner.measure.tls import Tls, require_certificates, require_pair, require_tls, speaks_tls
from runner.model import LabError

URL = "https://127.0.0.1/"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("others"), "another authority")


def trusting(authority, name="127.0.0.1"):
    return Tls(name, str(authority.ca))


def refusal(files, tls, *protocols, **how):
    """Return the error with which a server with these certificate files is refused."""
    with shaking(files, *protocols, **how) as address, pytest.raises(LabError) as caught:
        require_tls(URL, address, tls)
    said = str(caught.value)
    assert (said[-1], said.count("\n")) == (".", 0)
    return said


@pytest.mark.parametrize(
    ("offered", "preferred"),
    [(("h2", "http/1.1"), "h2"), (("http/1.1",), "http/1.1"), ((), None)],
)
def test_the_preferred_protocol_is_the_server_s(authority, offered, preferred):
    with shaking(authority.certificate(), *offered) as address:
        assert require_tls(URL, address, trusting(authority)) == preferred


def test_an_unknown_authority_is_refused_with_both_options(authority, stranger):
    said = refusal(authority.certificate(), trusting(stranger))
    assert "is not trusted" in said and "by --ca" in said and "--insecure" in said


def test_without_a_file_the_system_s_certificates_are_trusted(authority):
    assert "by --ca FILE" in refusal(authority.certificate(), Tls("127.0.0.1"))


def test_any_certificate_is_accepted_if_asked_for(stranger):
    files = stranger.certificate(("elsewhere.test",))
    with shaking(files, "http/1.1") as address:
        assert require_tls(URL, address, Tls("127.0.0.1", insecure=True)) == "http/1.1"


def test_a_certificate_that_has_expired_is_refused(authority):
    files = authority.certificate(until=datetime.now(UTC) - timedelta(hours=1))
    assert "has expired: renew it" in refusal(files, trusting(authority))


def test_a_certificate_that_is_not_valid_yet_is_refused(authority):
    files = authority.certificate(until=datetime.now(UTC) + timedelta(days=9))
    assert "is not valid yet: check the clock" in refusal(files, trusting(authority))


@pytest.mark.parametrize("names", [("127.0.0.2",), ("elsewhere.test",)])
def test_a_certificate_for_another_host_is_refused(authority, names):
    said = refusal(authority.certificate(names), trusting(authority))
    assert "is not for 127.0.0.1" in said


def test_a_common_name_is_no_name(authority):
    """A certificate that names its host only as the common name is refused.

    k6 refuses such certificates, too, because it is written in Go.
    """
    files = authority.certificate((), common_name="localhost")
    assert "is not for localhost" in refusal(files, trusting(authority, "localhost"))


def test_a_server_that_accepts_no_http_1_is_refused(authority):
    """A server that does not accept HTTP/1.1 is refused.

    The test's server ends the handshake as a server in Go does: by the TLS alert 120 (RFC 7301).
    """
    said = refusal(authority.certificate(), trusting(authority), alert=120)
    assert "speaks only HTTP/2" in said and "let the server offer HTTP/1.1" in said


def test_a_server_that_wants_a_certificate_is_refused(authority):
    said = refusal(authority.certificate(), trusting(authority), client_ca=authority.ca)
    assert "requires a client's certificate" in said and "--cert FILE" in said


def test_a_certificate_that_the_server_trusts_is_presented(authority):
    client = authority.certificate(("a-client.test",))
    tls = replace(trusting(authority), certificate=str(client.certificate), key=str(client.key))
    with shaking(authority.certificate(), "http/1.1", client_ca=authority.ca) as address:
        assert require_tls(URL, address, tls) == "http/1.1"


def test_a_certificate_of_another_authority_is_refused(authority, stranger):
    client = stranger.certificate(("a-client.test",))
    tls = replace(trusting(authority), certificate=str(client.certificate), key=str(client.key))
    said = refusal(authority.certificate(), tls, client_ca=authority.ca)
    assert "does not accept the certificate of --cert" in said


def test_files_that_are_no_pair_are_named(authority, tmp_path):
    files = authority.certificate()
    other = authority.certificate()
    require_pair(str(files.certificate), str(files.key))
    with pytest.raises(LabError, match="the key belongs to another certificate"):
        require_pair(str(files.certificate), str(other.key))
    with pytest.raises(LabError, match=r"--key .* does not exist"):
        require_pair(str(files.certificate), str(tmp_path / "none"))
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret)
    (tmp_path / "encrypted").write_bytes(key.private_bytes(*form))
    with pytest.raises(LabError, match="is encrypted"):
        require_pair(str(files.certificate), str(tmp_path / "encrypted"))


def test_a_certificate_can_be_trusted_by_itself(authority):
    """A user may trust a server's certificate directly, instead of the authority that signed it."""
    files = authority.certificate()
    with shaking(files, "http/1.1") as address:
        tls = Tls("127.0.0.1", str(files.certificate))
        assert require_tls(URL, address, tls) == "http/1.1"


def test_a_file_without_certificates_is_refused(tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    with pytest.raises(LabError, match="must name a file with certificates in PEM form"):
        require_certificates(str(empty))
    with pytest.raises(LabError, match="it does not exist"):
        require_certificates(str(tmp_path / "none.pem"))


def test_a_server_without_tls_is_told_apart(authority):
    with socket.create_server(("127.0.0.1", 0)) as plain:
        address = plain.getsockname()
    assert not speaks_tls(address)
    with shaking(authority.certificate()) as address:
        assert speaks_tls(address)
