"""Read the log that `psrecord PID --log FILE` writes."""

from __future__ import annotations

from runner.importing.cpu.series import Sample, Series, Time, series_of_samples

_HEAD = "# Elapsed time"


def read_psrecord(text: str) -> list[Series]:
    """Return the series of the process, or no series if the text has another format.

    A row has the seconds since psrecord began, the CPU use in percent of one core, and the resident
    memory in MiB.
    """
    if not text.startswith(_HEAD):
        return []
    samples = []
    for line in text.splitlines()[1:]:
        cells = line.split()
        try:
            at_s, cpu_pct, rss_mib = (float(each) for each in cells[:3])
        except ValueError:
            continue
        samples.append(Sample(("process",), Time(at_s, "relative"), cpu_pct, rss_mib * 2**20))
    return series_of_samples(samples)
