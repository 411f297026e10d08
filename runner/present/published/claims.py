"""Read the published claims from claims.toml."""

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from runner.manifest import Manifest
from runner.model import CLAIMS
from runner.planning.toml_files import Day
from runner.planning.toml_tables import read_table
from runner.present.published.counterparts import LOADS
from runner.present.published.outcomes import Combine
from runner.present.published.quantities import CLAIM_QUANTITIES
from runner.present.published.special_claims import JUDGES, NOTES
from runner.store import sha256


def _one_of(known: Collection[str]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"{name!r} is none of {', '.join(known)}")
        return name

    return AfterValidator(check)


Text = Annotated[str, Field(pattern=r"\S")]
Border = Annotated[float, Field(gt=0, strict=True)]
QuantityName = Annotated[str, _one_of(CLAIM_QUANTITIES)]
Numbers = tuple[Annotated[int, Field(gt=0)], ...]
WHOLE = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Against:
    """The quantity, the load and the connections of a ratio's divisor.

    Each of these properties is given only if it differs from that of the dividend. Otherwise it is
    None or empty.
    """

    __pydantic_config__ = WHOLE
    quantity: QuantityName | None = None
    load: (
        Literal["experiments", "experiments-md5", "experiments offered", "experiments-md5 offered"]
        | None
    ) = None
    connections: Numbers = ()


@dataclass(frozen=True)
class Comparison:
    """An entry of claims.toml that says which ratios decide a claim, with one ratio for each load.

    Each ratio is the first server's quantity divided by the second server's. If the entry names a
    single server, this server is both the dividend and the divisor, and `against` says in what the
    divisor differs. The comment at the top of claims.toml explains the keys.
    """

    __pydantic_config__ = WHOLE
    quantity: QuantityName
    load: Annotated[str, _one_of(("count", *LOADS))]
    servers: Annotated[tuple[Text, ...], Field(min_length=1, max_length=2)]
    modes: tuple[Literal["keepalive", "close"], ...] = ()
    connections: Numbers = ()
    against: Against = Against()
    words: str = ""
    names: tuple[Text, ...] = ()
    reading: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a contradictory entry."""
        if (self.load == "count") != bool(self.modes and self.connections):
            raise ValueError("modes and connections belong to load = 'count', which needs both")
        if len(self.servers) == 1 and self.against == Against():
            raise ValueError("a single server needs `against`")
        if self.against.load and not self.load.startswith("experiments"):
            raise ValueError("only experiments and experiments-md5 can be divided by another load")
        if self.against.connections and len(self.against.connections) != len(self.connections):
            raise ValueError("`against` needs as many numbers of connections")


@dataclass(frozen=True)
class Claim:
    """A published claim in our words, and the rule by which it is judged.

    A claim about a ratio is judged by the comparisons in `compare`: it holds if the ratio is
    between `at_least` and `at_most`. The range is open at one end if `at_least` is 0 or `at_most`
    is infinite. Any other claim is judged by the function in special_claims.py that `judge` names.
    The comment at the top of claims.toml explains the keys.
    """

    __pydantic_config__ = WHOLE
    name: Text
    short: Text
    says: Text
    looks_at: Text
    source: str = ""
    compare: tuple[Comparison, ...] = ()
    judge: Annotated[str, _one_of(JUDGES)] = ""
    at_least: Border = 0.0
    at_most: Border = math.inf
    combine: Combine = "all"
    depends_on: str = ""
    also: tuple[Annotated[str, _one_of(NOTES)], ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a contradictory entry."""
        if bool(self.compare) == bool(self.judge):
            raise ValueError("a claim needs either `compare` or `judge`")
        if bool(self.compare) != bool(self.range_words) or self.at_least >= self.at_most:
            raise ValueError(
                "`compare` needs a range: at_least, at_most, or both with at_least below at_most"
            )

    @property
    def range_words(self) -> str:
        """The range in words: `above 1`, `below 0.75`, `0.95 to 1.05`.

        The text is empty if the claim is not about a ratio.
        """
        if self.at_most == math.inf:
            return f"above {self.at_least:g}" if self.at_least else ""
        return (
            f"{self.at_least:g} to {self.at_most:g}" if self.at_least else f"below {self.at_most:g}"
        )

    def nearest_border(self, ratio: float) -> float:
        """Return the end of the range that is closest to a ratio on a logarithmic scale."""
        borders = [border for border in (self.at_least, self.at_most) if 0 < border < math.inf]
        return min(borders, key=lambda border: abs(math.log(border / ratio)))


def read_claims(path: Path = CLAIMS) -> tuple[Claim, ...]:
    """Return the claims in the order of claims.toml.

    Raise LabError with file and line if an entry is incomplete or contradictory.
    """
    top = read_table(path)
    adapter = TypeAdapter(Claim)
    found = []
    for group in (top.table(name) for name in top.values if name != "written"):
        source = group.values.get("source", "")
        for name in (key for key in group.values if key != "source"):
            entry = replace(group.table(name), header=f"{group.header[:-1]}.{name}]")
            try:
                found.append(
                    adapter.validate_python({"source": source, **entry.values, "name": name})
                )
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(map(str, first["loc"]))
                message = first["msg"].removeprefix("Value error, ")
                raise entry.error(
                    place.split(".")[0], f"claim {name}: {place and f'{place}: '}{message}"
                ) from None
    return tuple(found)


def rules_words(manifest: Manifest) -> str:
    """Return a sentence with the day on which the rules in claims.toml were written.

    The sentence also says whether the rules are the same as when the run began.
    """
    written = read_table(CLAIMS).value("written", Day)
    known = manifest.claims_sha256
    now = sha256(CLAIMS)
    began = (
        "as they stood when the run began"
        if known == now
        else "after the run began"
        if known
        else "after the run"
    )
    return f"The rules (claims.toml of {written}, SHA-256 {now[:12]}…) were written down {began}."
