"""The test server's validation of request bodies, written independently of the lab's checks.

It follows the contract, except for the fault that a test chooses.
"""

import json
import math
from typing import Any

from contract_http import RefusedError


def read_json(body: bytes, fault: str) -> dict[str, Any]:
    if fault == "deep nesting kills the connection" and b"[[[[" in body:
        raise ConnectionAbortedError
    if fault == "escaped keys are unknown" and b"\\u006e" in body.lower():
        raise RefusedError(400, "name is missing")
    if fault == "trailing bytes are ignored":
        body = body.rstrip(b"x")
    if fault == "any white space":
        body = body.strip(b"\f\xc2\xa0")
    constant = float if fault == "NaN is accepted" else reject_constant
    try:
        text = body.decode(errors="replace" if fault == "invalid UTF-8 is replaced" else "strict")
        value = json.loads(text, parse_constant=constant, strict=fault != "raw control characters")
    except (ValueError, RecursionError) as error:
        if fault == "500 for bad JSON":
            raise RefusedError(500, "internal error") from None
        raise RefusedError(400, f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RefusedError(400, "not an object")
    return value


def reject_constant(name: str) -> float:
    raise ValueError(name)


def read_experiment(body: bytes, fault: str) -> dict[str, Any]:
    experiment = read_json(body, fault)
    check_text(experiment.get("name"), "name", 200, fault)
    variants = experiment.get("variants")
    most = 101 if fault == "101 variants are accepted" else 100
    if not isinstance(variants, list) or not 1 <= len(variants) <= most:
        raise RefusedError(400, "variants must be 1 to 100")
    total = 0.0
    for variant in variants:
        if not isinstance(variant, dict):
            raise RefusedError(400, "variants must be objects")
        check_text(variant.get("name"), "variants.name", 200, fault)
        total += check_percent(variant.get("allocation_percent"), fault)
    tolerances = {"sum has no room for rounding": 0.01, "sum is loose": 1.0, "sum is narrow": 0.005}
    if not abs(total - 100) <= tolerances.get(fault, 0.01 + 1e-9):
        raise RefusedError(400, "allocation_percent must sum to 100")
    kept = [{"name": v["name"], "allocation_percent": v["allocation_percent"]} for v in variants]
    for variant in kept:
        number = variant["allocation_percent"]
        whole = int(number) if number == int(number) else number
        variant["allocation_percent"] = (
            math.nextafter(number, 0) if fault == "numbers lose a bit" else whole
        )
    name = experiment["name"]
    if fault == "names are of the basic plane":
        name = "".join(letter if letter <= "\uffff" else "\ufffd" for letter in name)
    return {"name": name, "variants": kept}


def check_text(text: object, field: str, most: int, fault: str) -> None:
    if fault == "null is text" and text is None:
        return
    if not isinstance(text, str):
        raise RefusedError(400, f"{field} must be text")
    length = len(text)
    if fault == "length in bytes":
        length = len(text.encode("utf-8", "replace"))
    if fault == "length in UTF-16 units":
        length = len(text.encode("utf-16-le", "replace")) // 2
    if not 1 <= length <= most + (fault == "one character more"):
        raise RefusedError(400, f"{field} must have 1 to {most} characters")


def check_percent(percent: object, fault: str) -> float:
    if percent is None and fault == "null is 0":
        return 0.0
    if isinstance(percent, bool) and fault != "bool as a number":
        raise RefusedError(400, "allocation_percent must be a number")
    if fault == "text as a number" and isinstance(percent, str) and percent.isdigit():
        return float(percent)
    low, high = (-1e-300, 100.001) if fault == "range is loose" else (0, 100)
    if not isinstance(percent, int | float) or not low <= percent <= high:
        raise RefusedError(400, "allocation_percent must be from 0 to 100")
    return percent


def read_device(body: bytes, fault: str) -> tuple[str, str]:
    device = read_json(body, fault)
    for field in ("mac", "firmware"):
        check_text(device.get(field), field, 100, fault)
        if "\0" in device[field] and fault != "null characters pass":
            raise RefusedError(400, f"{field} must not have U+0000")
    return device["mac"], device["firmware"]
