"""Fetch a table from an https address: capped in size and time, and nothing else than https."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from typing import Any

from runner.model import LabError

MOST_BYTES = 64 * 2**20
SECURE = "https://"
FETCH_S = 60


class _Secure(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not newurl.startswith(SECURE):
            raise urllib.error.URLError(f"it leads to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch(address: str) -> bytes:
    """Return what an https address has, a byte more than `MOST_BYTES` of it at most; LabError where there is nothing.

    Redirections lead to https only. It takes `FETCH_S` seconds at most, and as long again to connect.
    """
    began, data = time.monotonic(), bytearray()
    try:
        opener = urllib.request.build_opener(_Secure)
        with opener.open(address, timeout=FETCH_S) as answer:
            while len(data) <= MOST_BYTES and (more := answer.read1(2**20)):
                data += more
                if time.monotonic() - began > FETCH_S:
                    raise LabError(f"{address} took more than {FETCH_S} s.", exit_code=1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise LabError(f"{address} cannot be fetched: {reason}.", exit_code=1) from None
    return bytes(data[: MOST_BYTES + 1])
