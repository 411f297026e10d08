"""One HTML page: its style sheet inside, nothing to load, no script, fit for a phone, a dark screen and paper."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from runner.present.look.markup import templates

LABEL = re.compile(r'(<div class="table" role="region" aria-label=")([^"]*)(")')


def page(title: str, body: str, description: str = "") -> str:
    """Return a whole page; `title` and `description` are text, `body` is HTML."""
    return (
        templates()
        .get_template("page.html")
        .render(title=title, description=description, style=style_sheet(), body=_labels_apart(body))
    )


def style_sheet() -> str:
    """Return the style sheet that all pages share."""
    return Path(__file__).with_name("page.css").read_text(encoding="utf-8")


def _labels_apart(body: str) -> str:
    """Number the tables that have one label: a screen reader lists the regions of a page by theirs."""
    seen: Counter[str] = Counter()

    def label(found: re.Match[str]) -> str:
        seen[found[2]] += 1
        number = f" ({seen[found[2]]})" if seen[found[2]] > 1 else ""
        return f"{found[1]}{found[2]}{number}{found[3]}"

    return LABEL.sub(label, body)
