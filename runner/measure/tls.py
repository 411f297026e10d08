"""Connect by TLS to a server that already runs, and say why such a server cannot be used.

k6 verifies certificates as Go does. The probe verifies them in the same way, so that k6 and the
probe accept the same certificates.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from runner.model import LabError

HTTP_1 = "http/1.1"
HTTP_2 = "h2"
"""Names by which a client offers the protocols HTTP/1.1 and HTTP/2 (ALPN, RFC 7301)."""
EXPIRED = 10
NOT_YET_VALID = 9
WRONG_NAMES = (62, 64)
"""EXPIRED, NOT_YET_VALID and WRONG_NAMES are OpenSSL's codes for what is wrong with a certificate.

The codes of WRONG_NAMES mean that the certificate does not name the server's host or address.
Source: include/openssl/x509_vfy.h.
"""
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""Reasons that OpenSSL gives for a failed handshake if the server answers in plain text."""
OF_WRONG_PROTOCOL = "NO_APPLICATION_PROTOCOL"
OF_NO_CERTIFICATE = "CERTIFICATE_REQUIRED"
OF_WRONG_CERTIFICATE = (
    "ALERT_UNKNOWN_CA",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_ACCESS_DENIED",
    "ALERT_DECRYPT_ERROR",
)
"""Reasons that OpenSSL gives if the server ended the handshake because of the client's certificate.
"""
HTTP_2_BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
EMPTY_SETTINGS = bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""A SETTINGS frame that contains no settings.

The first frame that each side of an HTTP/2 connection sends is a SETTINGS frame.
"""
TIMEOUT_S = 5.0
ALERT_S = 0.2
"""After a handshake, the lab waits this long for an alert by which the server ends the connection.

In TLS 1.3, the server may check the client's certificate only after the client has completed the
handshake.
"""


class HandshakeError(LabError):
    """The error for a TLS handshake that failed for a reason that the lab does not recognize."""


@dataclass(frozen=True)
class Tls:
    """Settings for TLS connections to a server: its name, and the certificates of both sides."""

    name: str
    """Host of the server's URL, which the server's certificate must name."""
    ca: str | None = None
    """File with the certificates to trust. If it is None, trust the system's certificates."""
    insecure: bool = False
    """True if any certificate of the server is accepted."""
    certificate: str | None = None
    """File with the client's certificate, or None if the client has no certificate."""
    key: str | None = None
    """File with the key of the client's certificate."""

    @property
    def of_go(self) -> dict[str, str]:
        """Environment variables that make k6 trust only `ca` (Go's crypto/x509/root_unix.go)."""
        return {} if self.ca is None else {"SSL_CERT_FILE": self.ca, "SSL_CERT_DIR": os.devnull}

    @property
    def of_wrappers(self) -> dict[str, str]:
        """Environment variables from which the lab's scripts for k6 read the client's certificate.

        The variables contain only paths of files, so that no variable contains the key itself.
        """
        if self.certificate is None or self.key is None:
            return {}
        return {"CLIENT_CERT": self.certificate, "CLIENT_KEY": self.key}

    def begin(self, *protocols: str) -> Callable[[socket.socket], ssl.SSLSocket]:
        """Return a function that prepares a socket for TLS.

        The function does not make the handshake. When the caller makes the handshake, the client
        offers `protocols` to the server.
        """
        context = _context(self, protocols)
        return partial(
            context.wrap_socket, server_hostname=self.name, do_handshake_on_connect=False
        )

    def secured(self, channel: socket.socket, *protocols: str) -> ssl.SSLSocket:
        """Make the TLS handshake on a connected socket; return the new socket.

        Raise OSError if the handshake fails.
        """
        secured = self.begin(*protocols)(channel)
        try:
            secured.do_handshake()
        except OSError:
            secured.close()
            raise
        return secured


@lru_cache
def _context(tls: Tls, protocols: tuple[str, ...]) -> ssl.SSLContext:
    """Return a client's context that verifies certificates as Go does.

    Like Go, the context ignores a certificate's common name, and compares the host only with the
    certificate's subject alternative names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(list(protocols))
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key, _refuse_password)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if tls.ca is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(tls.ca)
    return context


def require_certificates(path: str) -> None:
    """Raise LabError if a file contains no certificates in PEM form."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ValueError) as error:
        is_absent = isinstance(error, FileNotFoundError)
        why = "it does not exist" if is_absent else "the file contains no certificate"
        raise LabError(
            f"--ca {path} must name a file with certificates in PEM form, but {why}: check "
            "the file."
        ) from None


def require_pair(certificate: str, key: str) -> None:
    """Raise LabError if the files are not a client's certificate and its key in PEM form."""
    for option, path in (("--cert", certificate), ("--key", key)):
        if not Path(path).is_file():
            raise LabError(f"{option} {path} does not exist: give a file in PEM form.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key, _refuse_password)
    except (OSError, ValueError) as error:
        mismatch = "KEY_VALUES_MISMATCH" in str(error).upper().replace(" ", "_")
        why = "the key belongs to another certificate" if mismatch else "they are not"
        raise LabError(
            f"--cert {certificate} and --key {key} must be a certificate and its key in PEM form, "
            f"but {why}: check both files."
        ) from None


def _refuse_password() -> str:
    """Raise LabError, so that OpenSSL does not ask for a password on the terminal."""
    raise LabError(
        "The file of --key is encrypted: decrypt it, such as by `openssl pkey -in FILE -out NEW`."
    )


def require_tls(url: str, address: tuple[str, int], tls: Tls) -> str | None:
    """Return the protocol that a server prefers, `h2` or `http/1.1`.

    Return None if the server chooses no protocol. Raise LabError with a remedy if k6 or the probe
    cannot use the server over TLS. Raise OSError if nothing listens at the address.
    """
    _shake(url, address, tls, HTTP_1)
    return _shake(url, address, tls, HTTP_2, HTTP_1)


def _shake(url: str, address: tuple[str, int], tls: Tls, *protocols: str) -> str | None:
    """Make a handshake in which the client offers `protocols`; return the server's choice.

    Return None if the server chooses no protocol. Raise LabError if the handshake fails, or if the
    server chooses a protocol that was not offered.
    """
    channel = socket.create_connection(address, timeout=TIMEOUT_S)
    try:
        with tls.secured(channel, *protocols) as secured:
            secured.settimeout(ALERT_S)
            with contextlib.suppress(TimeoutError):
                secured.recv(1)
            chosen = secured.selected_alpn_protocol()
    except ssl.SSLCertVerificationError as error:
        raise _unfit(url, tls, error) from None
    except OSError as error:
        raise _refused(url, tls, error) from None
    if chosen not in (None, *protocols):
        raise only_http_2(url)
    return chosen


def _unfit(url: str, tls: Tls, error: ssl.SSLCertVerificationError) -> LabError:
    """Return the error for a server's certificate that the lab does not accept."""
    anyway = "accept any certificate by --insecure"
    if error.verify_code == EXPIRED:
        return LabError(f"The certificate of {url} has expired: renew it, or {anyway}.")
    if error.verify_code == NOT_YET_VALID:
        return LabError(f"The certificate of {url} is not valid yet: check the clock, or {anyway}.")
    if error.verify_code in WRONG_NAMES:
        return LabError(
            f"The certificate of {url} is not for {tls.name}: give a URL with a host among its "
            f"subject alternative names, or {anyway}."
        )
    remedy = "give its certificate authority by --ca FILE"
    if tls.ca is not None:
        remedy = f"give by --ca a file with the server's certificate authority, instead of {tls.ca}"
    return LabError(
        f"The certificate of {url} is not trusted ({error.verify_message}): {remedy}, or {anyway}."
    )


def _refused(url: str, tls: Tls, error: OSError) -> LabError:
    """Return the error for a failed handshake, if the server's certificate is not the reason."""
    # Python knows the names of only some of OpenSSL's reasons. So look for the reason in the text
    # of the error, because the text always contains the reason in words.
    reason = str(error).upper().replace(" ", "_")
    if any(name in reason for name in NO_TLS):
        return speaks_plainly(url)
    if OF_WRONG_PROTOCOL in reason:
        return only_http_2(url)
    if OF_NO_CERTIFICATE in reason:
        return LabError(
            f"The server at {url} requires a client's certificate: give it by --cert FILE, and its "
            "key by --key FILE."
        )
    if tls.certificate is not None and any(name in reason for name in OF_WRONG_CERTIFICATE):
        return LabError(
            f"The server at {url} does not accept the certificate of --cert {tls.certificate}: "
            "give one that is valid, and signed by an authority that the server trusts."
        )
    said = error.strerror or str(error) or type(error).__name__
    return HandshakeError(
        f"The server at {url} ended the TLS handshake ({said}): give the address of an "
        "HTTPS server."
    )


def speaks_plainly(url: str) -> LabError:
    """Return the error for a server without TLS at an `https://` URL."""
    there = url.replace("https://", "http://", 1)
    return LabError(f"The server at {url} does not speak TLS: write the address as {there}.")


def only_http_2(url: str) -> LabError:
    """Return the error for a server that does not speak HTTP/1.1."""
    return LabError(
        f"The server at {url} speaks only HTTP/2, but the probe (the lab's own client "
        "beside the load) speaks HTTP/1.1: let the server offer HTTP/1.1, too."
    )


def only_plain_http_2(url: str) -> LabError:
    """Return the error for a server that speaks only HTTP/2 without TLS.

    No client of the lab speaks HTTP/2 without TLS.
    """
    return LabError(
        f"The server at {url} speaks only HTTP/2 without TLS, which neither k6 nor the probe "
        "speaks: let the server offer HTTP/1.1, too."
    )


def speaks_plain_http_2(address: tuple[str, int]) -> bool:
    """Return whether a server without TLS answers the preface of HTTP/2 (RFC 9113, 3.4)."""
    try:
        with socket.create_connection(address, timeout=TIMEOUT_S) as channel:
            channel.sendall(HTTP_2_BEGIN + EMPTY_SETTINGS)
            head = channel.recv(len(EMPTY_SETTINGS), socket.MSG_WAITALL)
    except OSError:
        return False
    # A frame begins with its length (3 bytes), type, flags and stream. Do not compare the lengths,
    # because the server's frame may contain settings, and then it is longer than EMPTY_SETTINGS.
    return head[3:] == EMPTY_SETTINGS[3:]


def speaks_tls(address: tuple[str, int]) -> bool:
    """Return whether a server completes a TLS handshake, whatever its certificate."""
    anyone = Tls("localhost", insecure=True)
    try:
        with socket.create_connection(address, timeout=TIMEOUT_S) as channel:
            anyone.secured(channel, HTTP_2, HTTP_1).close()
    except OSError:
        return False
    return True
