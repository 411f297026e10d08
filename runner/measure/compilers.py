"""Find out which compiler built a program, by reading the program's file.

Go's compiler stores its version in the section `.go.buildinfo` of each program, and rustc stores
its version in the section `.comment`. So the compiler is known even if the program was built on
another machine.
"""

import re
import struct
from dataclasses import dataclass
from pathlib import Path

_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<I4xQQQQ")
"""The first fields of a section's header: name, flags, address, offset and size."""
_GO_MAGIC = b"\xff Go buildinf:"
_GO_STRINGS = 32
"""Offset in the section `.go.buildinfo` at which the length of Go's version is stored.

The text of the version follows the length.
"""
_GO_INLINE = 2
"""Bit in byte 15 of the section `.go.buildinfo`: set if the section contains Go's version.

Go has set this bit since version 1.18.
"""
_RUSTC = re.compile(rb"rustc version (\d[^\x00]*)")


@dataclass(frozen=True)
class _Section:
    name: bytes
    offset: int
    bytes: int


def compiler_of(program: Path) -> str | None:
    """Return the name and version of the compiler that built a program.

    The result is for example `go 1.26.8` or `rustc 1.95.0`. Return None if the file is not a 64-bit
    ELF program, or if it does not name its compiler. The format is described by the ELF
    specification (section headers) and by Go's package debug/buildinfo.
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
    """Return the sections of a 64-bit little-endian ELF file.

    Return an empty list for any other file.
    """
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
    """Return the version of Go that a program's build information names, without the prefix `go`.

    `info` is the content of the section `.go.buildinfo`. Return an empty text if it contains no
    version.
    """
    if not info.startswith(_GO_MAGIC) or len(info) <= _GO_STRINGS or not info[15] & _GO_INLINE:
        return ""
    length = info[_GO_STRINGS]  # one byte, because a version is shorter than 128 bytes
    said = info[_GO_STRINGS + 1 : _GO_STRINGS + 1 + length]
    return said.decode(errors="replace").removeprefix("go")
