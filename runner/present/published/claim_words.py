"""State claims in plain words that are short enough for a figure."""

from runner.present.published.claims import Claim

SENTENCES = {
    "rust-slightly-more-requests": "Rust does slightly more requests/s than Echo",
    "percentiles-alike": "Rust and Echo respond equally fast",
    "rust-half-the-cpu": "Rust takes half of Echo's CPU",
    "md5-costs-little": "Hashing by MD5 costs little",
    "rust-no-spikes": "Rust's CPU has no spikes",
    "gnet-more-static": "gnet serves static lists faster than axum",
    "gnet-lower-p90": "gnet's p90 is lower than axum's",
    "gnet-less-memory": "gnet takes less memory than axum",
    "gnet-equal-cpu": "gnet and axum take the same CPU",
    "gnet-more-inserts": "gnet inserts more rows/s than axum",
    "gnet-latency-starts-high": "gnet's first inserts are slow",
    "axum-steadier": "axum inserts more steadily than gnet",
    "gnet-more-rows": "gnet inserts more rows on a ramp than axum",
    "gin-ahead-close": "gin is ahead at many new connections",
    "axum-ahead-close-few": "axum is ahead at few new connections",
    "axum-far-ahead-at-1000": "axum is far ahead at 1,000 kept connections",
    "even-at-100": "axum and gin are even at 100 kept connections",
    "axum-grows-to-1000": "axum is 2.7 times as fast at 1,000 as at 100",
    "axum-less-cpu": "axum takes below 75 % of gin's CPU",
    "axum-half-cpu-keepalive": "axum gets down to 50 % of gin's CPU",
    "nginx-nearly-twice": "nginx is nearly twice as fast as both",
    "actix-slower": "actix is 20 % slower than axum",
    "actix-less-cpu": "actix takes 30 % less CPU than axum",
    "actix-less-memory": "actix takes 50 % less memory than axum",
}
"""Sentences that state the claims, by the claim's name in claims.toml."""


def sentence(claim: Claim) -> str:
    """Return the sentence that states a claim.

    If `SENTENCES` does not contain the claim, return the words that claims.toml gives in the key
    `short`.
    """
    return SENTENCES.get(claim.name, claim.short)
