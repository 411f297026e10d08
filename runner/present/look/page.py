"""One HTML page: its style sheet inside, nothing to load, no script, fit for a phone, a dark screen and paper."""

from __future__ import annotations

import re
from collections import Counter
from html import escape
from pathlib import Path

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
{description}<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
"""The empty icon keeps a browser from asking a server for one."""
LABEL = re.compile(r'(<div class="table" role="region" aria-label=")([^"]*)(")')


def page(title: str, body: str, description: str = "") -> str:
    """Return a whole page; `title` and `description` are text, `body` is HTML."""
    about = f'<meta name="description" content="{escape(description)}">\n' if description else ""
    return PAGE.format(title=escape(title), description=about, style=style_sheet(), body=_labels_apart(body))


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
