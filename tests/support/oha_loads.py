"""Two cells whose load comes from oha.

CLOSED keeps ten connections busy for two seconds. OPEN offers 500 requests/s.
"""

from cells import cell_of, changed

from runner.generator_traits import LEAD_S

RATE = 500
SECONDS = 2
CLOSED = cell_of(
    server="axum",
    language="Rust",
    framework="axum",
    workload="static-oha",
    tool="oha",
    path="/devices",
    connections=10,
    duration_s=SECONDS,
)
OPEN = changed(
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
