"""Report how many requests a script sent to other ports than the server's.

Rates and percentiles do not include these requests.
"""

import pandas as pd

from runner.present.frames import Tables


def sentences(tables: Tables) -> tuple[str, ...]:
    """Return a sentence that says how many requests a user's script sent to other ports.

    Return an empty tuple if the campaign allowed no other port.
    """
    apis = tables.manifest.campaign.apis
    # The other ports are the same for all servers, so those of the first server are enough.
    ports = [str(port) for port in apis[0].also] if apis else []
    if not ports or "elsewhere" not in tables.trials:
        return ()
    known = pd.to_numeric(tables.trials["elsewhere"]).dropna()
    where = f"port{'s' if len(ports) > 1 else ''} {' and '.join(ports)}"
    to_server = int(tables.trials.loc[known.index, "requests"].sum())
    by_port = "" if len(ports) == 1 else " The checks in trial.json have the number for each port."
    return (
        f"The script sent {int(known.sum()):,} requests to {where} beside {to_server:,} to the "
        f"server. No rate and no percentile includes the requests to other ports.{by_port}",
    )
