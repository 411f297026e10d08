"""Recognize a file of k6 by the file's content. The file's name does not matter."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from runner.model import LabError

HEAD_BYTES = 65_536
"""To recognize a file, only this many bytes at the beginning of the file are read.

If the file is compressed, only this many bytes of the decompressed content are examined.
"""
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_JSON_HEADS = (b'{"type":"Metric"', b'{"metric":"', b'{"type":"Point"')
_CSV_HEAD = b"metric_name,timestamp,metric_value"


@dataclass(frozen=True)
class K6File:
    """A file that k6 wrote by `--out json` or `--out csv`."""

    path: Path
    raw_name: str
    """Name of the file's copy in a trial's folder, for example `k6.json.gz`."""


def recognize(path: Path) -> K6File:
    """Return the file at a path, and the name that the file's copy gets.

    Raise LabError if k6 did not write the file.
    """
    if not path.is_file():
        raise LabError(f"{path} is not a file: name a file that k6 wrote by --out json=FILE.")
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head:
        raise LabError(
            f"{path} is empty, so k6 has sent no request in this test: run the test again.",
            exit_code=1,
        )
    packing, text = _unpacked(path, head)
    start = text.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(_JSON_HEADS):
        return K6File(path, f"k6.json{packing}")
    if start.startswith(_CSV_HEAD):
        return K6File(path, f"k6.csv{packing}")
    raise LabError(_what_else(path, start), exit_code=1)


def _unpacked(path: Path, head: bytes) -> tuple[str, bytes]:
    """Return a file's compression (`.gz`, `.zst` or empty), and its first decompressed bytes."""
    try:
        if head.startswith(_GZIP):
            return ".gz", zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
        if head.startswith(_ZSTD):
            with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, "zstd") as stream:
                return ".zst", stream.read(HEAD_BYTES)
    except (zlib.error, OSError) as error:
        raise LabError(f"{path} cannot be unpacked: {error}.", exit_code=1) from None
    return "", head


def _what_else(path: Path, start: bytes) -> str:
    """Return a sentence that says why a file cannot be imported, and what to do instead."""
    if start.startswith(b"{") and b'"metrics"' in start:
        return (
            f"{path} is an end-of-test summary of k6, which has no samples: import the file of "
            "--out json=FILE, and give the summary by --summary."
        )
    return (
        f"{path} is not a file that k6 wrote by --out json=FILE or --out csv=FILE: "
        "to check a table of results, or the output of another load generator, use `bench audit`."
    )
