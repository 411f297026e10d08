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
"""Beginning of a source's name -> address of the source.

The first address is a copy of the article, and the third address is the article's code.
"""


def title_of(source: str) -> str:
    """Return the title of a source in a post's links.

    If the source's address is unknown, return its name.
    """
    return next((begin for begin in ADDRESS_OF_SOURCE if source.startswith(begin)), source)


def addresses(sources: Iterable[str]) -> dict[str, str]:
    """Return the address of each source by its title; leave out sources without an address."""
    named = list(dict.fromkeys(sources))
    return {
        begin: address
        for begin, address in ADDRESS_OF_SOURCE.items()
        if any(source.startswith(begin) for source in named)
    }
