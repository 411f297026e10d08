"""Read from a program which compiler built it.

The program itself says it: Go stores its build information in a section of the file, and rustc
its version in the section of comments. So the answer is right if the program came from elsewhere.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<I4xQQQQ")
"""Name, flags, address, offset and size of a section, at the begin of its header."""
_GO_MAGIC = b"\xff Go buildinf:"
_GO_STRINGS = 32
"""Offset of the version in the section, with one byte or more for its length before it."""
_GO_INLINE = 2
"""Bit of the flags (byte 15): the version is in the section, which Go does since 1.18."""
_RUSTC = re.compile(rb"rustc version (\d[^\x00]*)")


@dataclass(frozen=True)
class _Section:
    name: bytes
    offset: int
    bytes: int


def compiler_of(program: Path) -> str | None:
    """Return name and version of the compiler that built a program: `go 1.26.8`, `rustc 1.95.0`.

    None if the file is no ELF program of 64 bits, or does not say it. Sources: the ELF
    specification (section headers), and Go's package debug/buildinfo.
    """
    try:
        data = program.read_bytes()
        sections = {section.name: section for section in _sections(data)}
    except (OSError, struct.error):
        return None
    version = _go(_content(data, sections, b".go.buildinfo"))
    if version:
        return f"go {version}"
    found = _RUSTC.search(_content(data, sections, b".comment"))
    return f"rustc {found[1].split()[0].decode(errors='replace')}" if found else None


def _sections(data: bytes) -> list[_Section]:
    """Return the sections of an ELF file; none if it is another file, or of another kind."""
    if not data.startswith(_ELF_64_LITTLE):
        return []
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [_SECTION.unpack_from(data, table + size * number) for number in range(count)]
    if of_names >= len(headers):
        return []
    names = headers[of_names][3]
    return [
        _Section(data[names + name : data.find(b"\0", names + name)], offset, length)
        for name, _, _, offset, length in headers
    ]


def _content(data: bytes, sections: dict[bytes, _Section], name: bytes) -> bytes:
    """Return a section's bytes; empty if the file has no such section."""
    section = sections.get(name)
    return data[section.offset : section.offset + section.bytes] if section else b""


def _go(info: bytes) -> str:
    """Return the version of Go in its build information, without the `go` before it."""
    if not info.startswith(_GO_MAGIC) or len(info) <= _GO_STRINGS or not info[15] & _GO_INLINE:
        return ""
    length = info[_GO_STRINGS]  # shorter than 128 bytes, so that one byte has it
    said = info[_GO_STRINGS + 1 : _GO_STRINGS + 1 + length]
    return said.decode(errors="replace").removeprefix("go")
