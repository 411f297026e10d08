"""Write the bill of materials of a wheel (CycloneDX), from the bill of materials of .venv.

`setup/sbom.py WHEEL < ENVIRONMENT.json` writes a file beside WHEEL with the same name, but with the
suffix .cdx.json. This file lists the lab with the wheel's version, and the locked packages that the
lab needs with all of its extras. ENVIRONMENT.json also contains development tools, because
cyclonedx-py, which writes it, includes every installed package that any extra of another package
needs. This program leaves these tools out.
"""

import json
import sys
from importlib.metadata import PackageNotFoundError, metadata, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "web-bench-lab"


def needed(name: str, extras: tuple[str, ...]) -> set[str]:
    """Return the names of a package and of all packages that it needs with these extras.

    Packages that are needed only on other platforms are left out.
    """
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    while waiting:
        of, extra = waiting.pop()
        if (of, extra) in seen:
            continue
        seen.add((of, extra))
        try:
            lines = requires(of) or ()
        except PackageNotFoundError:  # the package is for another platform
            continue
        found.add(of)
        for need in map(Requirement, lines):
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(need.name), each) for each in ("", *need.extras)]
    return found


def of_wheel(bom: dict[str, Any], names: set[str], version: str) -> dict[str, Any]:
    """Return a copy of a bill of materials that has only the components with these names.

    The version of the main component is set to `version`.
    """
    components = [each for each in bom["components"] if canonicalize_name(each["name"]) in names]
    main = bom["metadata"]["component"] | {"version": version}
    kept = {main["bom-ref"], *(each["bom-ref"] for each in components)}
    return bom | {
        "metadata": bom["metadata"] | {"component": main},
        "components": components,
        "dependencies": [
            each | {"dependsOn": [ref for ref in each.get("dependsOn", ()) if ref in kept]}
            for each in bom["dependencies"]
            if each["ref"] in kept
        ],
    }


def main(wheel: Path) -> None:
    """Read the bill of materials of .venv from stdin, and write the bill of the wheel beside it."""
    version = wheel.name.split("-")[1]
    extras = tuple(metadata(NAME).get_all("Provides-Extra") or ())
    found = of_wheel(json.load(sys.stdin), needed(NAME, extras) - {NAME}, version)
    wheel.with_suffix(".cdx.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
