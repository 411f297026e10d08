"""Give each point of k6 a label: a request's endpoint, group and scenario, or the name of a check.

If the script gives a request a name, k6 writes this name into the request's tag `name`, and the
lab uses the name as the endpoint. Otherwise k6 writes the URL into the tag. The lab then uses the
URL as the endpoint, with `{id}` in place of each identifier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from runner.model import OTHER_ENDPOINTS

MOST_LABELS = 5_000
"""A load has at most about this many different labels.

If the points need more labels, points with any further label get the label OTHER instead.
"""
MOST_URLS = 100_000
"""The different URLs of a label are counted only up to about this number."""
LONGEST = 300  # names are cut off after this number of characters
_KEPT_TAGS = ("method", "group", "scenario", "proto", "tls_version")
_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_ID = re.compile(rf"\d+|{_UUID}|(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{{16,}}|(?=\S*\d)[A-Za-z0-9_-]{{22,}}")
"""Pattern of a segment of a URL's path that identifies an object.

Such a segment is a number, a UUID, a hash or a long token.
"""


@dataclass(frozen=True)
class Labels:
    """The label of a point: the tags by which requests and checks are grouped.

    A missing tag is an empty text.
    """

    method: str = ""
    name: str = ""
    """The name that the script gave the request; empty if the script gave no name."""
    url: str = ""
    """The URL with `{id}` for each identifier; empty if the request has a name."""
    group: str = ""
    scenario: str = ""
    check: str = ""
    proto: str = ""
    """HTTP version of the answer, such as `HTTP/2.0`."""
    tls_version: str = ""


OTHER = Labels(name=OTHER_ENDPOINTS)
"""Label of each point whose own label is not kept, because MOST_LABELS labels are kept already."""


@dataclass
class Checked:
    """Results of one check of a script.

    `first_fail_ns` and `last_fail_ns` are the wall-clock times when the check first and last
    failed; both are 0 if the check never failed.
    """

    passes: int = 0
    fails: int = 0
    first_fail_ns: int = 0
    last_fail_ns: int = 0


@dataclass
class Labelling:
    """Labels, numbered in the order in which they appear, and the different URLs of each label."""

    labels: list[Labels] = field(default_factory=list)
    _numbers: dict[Labels, int] = field(default_factory=dict)
    _urls: dict[int, set[int]] = field(default_factory=dict)

    def number(self, label: Labels, url: str) -> int:
        """Return the index of a label in `labels`, and store the URL as one of the label's URLs.

        A label that is not in `labels` yet is added first (see `MOST_LABELS`). An empty URL is not
        stored.
        """
        number = self._add(label)
        if url:
            self._count(number, {hash(url)})
        return number

    def numbers_of(self, others: Labelling) -> NDArray[np.int32]:
        """Add the labels and URLs of `others` to this Labelling.

        Return the number that each label of `others` has in this Labelling, in the order of the
        labels in `others`.
        """
        numbers = [self._add(each) for each in others.labels]
        for number, label in zip(numbers, range(len(numbers)), strict=True):
            self._count(number, others._urls.get(label, set()))
        return np.array(numbers, np.int32)

    @property
    def counts(self) -> dict[int, int]:
        """Number of different URLs of each label, by the label's number.

        Each label's URLs are counted only up to about MOST_URLS.
        """
        return {number: len(urls) for number, urls in self._urls.items()}

    def different_urls(self, numbers: Iterable[int]) -> int:
        """Return the number of different URLs of several labels together, up to MOST_URLS."""
        urls: set[int] = set()
        for number in numbers:
            if len(urls) < MOST_URLS:
                urls |= self._urls.get(number, set())
        return min(len(urls), MOST_URLS)

    def _add(self, label: Labels) -> int:
        known = self._numbers.get(label)
        if known is not None:
            return known
        if len(self.labels) > MOST_LABELS and label is not OTHER:
            return self._add(OTHER)
        self.labels.append(label)
        return self._numbers.setdefault(label, len(self.labels) - 1)

    def _count(self, number: int, urls: set[int]) -> None:
        known = self._urls.setdefault(number, set())
        if len(known) < MOST_URLS:
            known |= urls


def url_of(tags: Mapping[str, Any]) -> str:
    """Return the tag `url` of a point, or else its tag `name`.

    Return an empty text if the point has neither tag.
    """
    return str(tags.get("url", tags.get("name")) or "")


def labels_of(tags: Mapping[str, Any]) -> Labels:
    """Return the label of a point that has the given tags."""
    known = {name: str(tags.get(name, ""))[:LONGEST] for name in _KEPT_TAGS}
    name = str(tags.get("name", ""))
    url = str(tags.get("url", name))
    # If the script gives a request a name, k6 writes the name into both tags. If the script gives
    # no name, k6 writes the URL into both tags. So a text without `://` in both tags is a name.
    has_name = bool(name) and (name != url or "://" not in name)
    return Labels(
        **known,
        name=name[:LONGEST] if has_name else "",
        url="" if has_name else collapsed(url)[:LONGEST],
        check=str(tags.get("check", ""))[:LONGEST],
    )


def collapsed(url: str) -> str:
    """Return a URL with `{id}` for each identifier in the path, and without values in the query.

    For example, `/items/17?page=3&size=5` becomes `/items/{id}?page&size`.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    path = "/".join(
        "{id}" if _ID.fullmatch(segment) else segment for segment in parts.path.split("/")
    )
    names = sorted({each.partition("=")[0] for each in parts.query.split("&") if each})
    origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
    return f"{origin}{path}{'?' if names else ''}{'&'.join(names)}"


@dataclass(frozen=True)
class Announced:
    """Facts about a metric, from the line with which k6 declares the metric."""

    metric: str
    kind: str
    """`counter`, `gauge`, `rate` or `trend`; empty if the line does not say the kind."""
    thresholds: tuple[str, ...]
    """Expressions of the script's thresholds."""


def announced_in(line: bytes) -> Announced | None:
    """Return the facts about the metric that a line declares.

    Return None if the line declares no metric.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match record:
        case {"type": "Metric", "metric": str(metric), "data": dict(data)}:
            given = data.get("thresholds")
            texts = [_expression(each) for each in given] if isinstance(given, list) else []
            return Announced(metric, str(data.get("type", "")), tuple(filter(None, texts)))
    return None


def _expression(given: object) -> str:
    """Return the expression of a threshold, or an empty text if `given` has no expression.

    If the threshold may abort the load, k6 writes an object that has the expression as a member.
    Otherwise k6 writes only the expression.
    """
    text = given.get("threshold") if isinstance(given, dict) else given
    return text if isinstance(text, str) else ""
