"""Addresses of the sources of data/published.csv."""

from collections.abc import Iterable

ADDRESS_OF_SOURCE = {
    "Rust and Golang Web APIs Performance Testing Results": (
        "https://www.scien.cx/2022/10/03/rust-and-golang-web-apis-performance-testing-results-"
        "objective-data-points-to-choose-between/"
    ),
    "Go vs Rust Web API Performance Testing: Rust Baseline Part 1": (
        "https://shanmukhsista.com/blog/technology/go-vs-rust-web-api-performance-testing-rust-"
        "baseline-part-1-f35c5f21e64b"
    ),
    "Rust vs. Go (Golang): Performance (Fastest Frameworks + PostgreSQL)": (
        "https://github.com/antonputra/tutorials/pull/428"
    ),
    "Gin and Axum: a short comparison": "https://blog.wsm.moe/2024/06/web-frameworks",
}
"""Addresses of the sources. Each key is the beginning of a source's name.

The first address leads to a copy of the article, and the third address leads to the code that the
source measured.
"""


def title_of(source: str) -> str:
    """Return the short title of a source, which is used as the text of links to the source.

    The title is the key of `ADDRESS_OF_SOURCE` with which the source's name begins. If there is no
    such key, the title is the whole name.
    """
    return next((begin for begin in ADDRESS_OF_SOURCE if source.startswith(begin)), source)


def addresses(sources: Iterable[str]) -> dict[str, str]:
    """Return the addresses of sources, by title. A source without an address is left out."""
    named = list(dict.fromkeys(sources))
    return {
        begin: address
        for begin, address in ADDRESS_OF_SOURCE.items()
        if any(source.startswith(begin) for source in named)
    }
