"""Certificates from a certificate authority of the tests, and servers that use them for TLS."""

import contextlib
import os
import socket
import ssl
import subprocess
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import real_lab
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from own_api import free_port, wait_for

HERE = ("127.0.0.1", "::1", "localhost")
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Files:
    """A certificate and its key, as files in PEM form."""

    certificate: Path
    key: Path


def _named(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(name):
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class Authority:
    """A certificate authority that no program trusts by default.

    `ca` is the path of its certificate.
    """

    def __init__(self, folder, name="authority of the tests"):
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        self.ca = folder / f"{name.replace(' ', '-')}.pem"
        made = self._builder(self._name, self._key, datetime.now(UTC) + DAY)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._write(self.ca, made)

    def _builder(self, subject, key, until):
        made = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return made.not_valid_before(until - 2 * DAY).not_valid_after(until)

    def _write(self, path, builder):
        signed = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def certificate(self, names=HERE, *, common_name="server", until=None):
        """Make a certificate for `names`, and return its files.

        The certificate is valid for two days that end at `until`, by default tomorrow.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        files = Files(self._folder / f"{id(key)}.crt", self._folder / f"{id(key)}.key")
        made = self._builder(_named(common_name), key, until or datetime.now(UTC) + DAY)
        if names:
            alternatives = x509.SubjectAlternativeName([_alternative(each) for each in names])
            made = made.add_extension(alternatives, critical=False)
        self._write(files.certificate, made)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


@contextlib.contextmanager
def shaking(files, *protocols, client_ca=None, alert=None):
    """Yield the address of a server that completes TLS handshakes, but then answers no request.

    With an `alert`, the server ends each handshake by this TLS alert.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(list(protocols))
    context.sni_callback = lambda *_: alert
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    channel, _ = listening.accept()
                    with contextlib.suppress(OSError), context.wrap_socket(channel, True) as secure:
                        while secure.recv(65_536):
                            pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=5)


STRICT = """package main

import (
	"crypto/tls"
	"crypto/x509"
	"log"
	"net/http"
	"os"
)

func main() {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(os.Getenv("CLIENT_CA") != "")
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(os.Getenv("TLS_CERT") == "")
	answer := func(out http.ResponseWriter, _ *http.Request) { out.Write([]byte("[]")) }
	address := "127.0.0.1:" + os.Getenv("PORT")
	server := &http.Server{Addr: address, Handler: http.HandlerFunc(answer), Protocols: protocols}
	if authority, err := os.ReadFile(os.Getenv("CLIENT_CA")); err == nil {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
		required := tls.RequireAndVerifyClientCert
		server.TLSConfig = &tls.Config{ClientAuth: required, ClientCAs: trusted}
	}
	if certificate := os.Getenv("TLS_CERT"); certificate != "" {
		log.Fatal(server.ListenAndServeTLS(certificate, os.Getenv("TLS_KEY")))
	}
	log.Fatal(server.ListenAndServe())
}
"""
"""Source of a server in Go that speaks only HTTP/2.

If the environment variable CLIENT_CA names the certificate of an authority, the server also speaks
HTTP/1.1, but requires that clients have a certificate from this authority.
"""


def strict_program(folder):
    """Compile STRICT, and return the program's path."""
    (folder / "main.go").write_text(STRICT)
    program = folder / "strict"
    subprocess.run(["go", "build", "-o", program, "main.go"], cwd=folder, check=True)
    return program


@contextlib.contextmanager
def strict(program, files=None, *, client_ca=None):
    """Run the compiled STRICT, and yield its origin (scheme, host and port)."""
    port = free_port("127.0.0.1")
    env = {**os.environ, "PORT": str(port)}
    if files is not None:
        env |= {"TLS_CERT": str(files.certificate), "TLS_KEY": str(files.key)}
    if client_ca is not None:
        env["CLIENT_CA"] = str(client_ca)
    with real_lab.process(program, cpus="0", env=env):
        wait_for(("127.0.0.1", port))
        yield f"{'http' if files is None else 'https'}://127.0.0.1:{port}"


@contextlib.contextmanager
def plain_api(server, files=None, *, delay_ms=20, address="127.0.0.1", cpus="0"):
    """Run examples/plain-api, which uses Go's own HTTP server, and yield its origin."""
    port = free_port(address)
    env = {**os.environ, "PORT": str(port), "ADDRESS": address, "DELAY_MS": str(delay_ms)}
    if files is not None:
        env |= {"TLS_CERT": str(files.certificate), "TLS_KEY": str(files.key)}
    with real_lab.process(server, cpus=cpus, env=env):
        wait_for((address, port))
        host = f"[{address}]" if ":" in address else address
        yield f"{'http' if files is None else 'https'}://{host}:{port}"
