"""Loads of oha: ten connections for two seconds, and 500 requests/s."""

from dataclasses import replace

from runner.generator_traits import LEAD_S
from runner.model import Cell

RATE = 500
SECONDS = 2
CLOSED = Cell(
    "axum",
    "Rust",
    "axum",
    "realistic",
    "static-oha",
    "oha",
    "closed",
    "keepalive",
    "/devices",
    connections=10,
    duration_s=SECONDS,
)
OPEN = replace(
    CLOSED,
    load_model="open",
    connections=None,
    duration_s=None,
    vus=100,
    first_rate_rps=RATE,
    rate_rps=RATE,
    steps=1,
    step_s=SECONDS - LEAD_S,
)
