"""A run whose texts are hostile: pages and posts show them, and none of them is ever markup, script or a formula."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import fake_lab
import mistune
import pandas as pd
import pytest
import synthetic_run
from fake_lab import bench

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3)) $\\input{/etc/passwd}^$ \"'`|"
TEXTS = ("framework", "language", "error", "verdict_reason")
HARMLESS = re.compile(r"#|data:image/|data:,|figures/|tables/|index\.html|[\w./-]+\.(csv|md|svg|png|json)$")


class Reader(HTMLParser):
    """Collects what a page would do beside showing text."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "iframe", "object", "embed", "base", "form"):
            self.done.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (name in ("src", "href", "srcset") and not HARMLESS.match(value or "")):
                self.done.append(f"{tag} {name}={str(value)[:60]}")

    def handle_data(self, data: str) -> None:
        self.words += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    root = tmp_path_factory.mktemp("lab")
    fake_lab.make(root)
    folder = synthetic_run.build(root / "data" / "runs" / "hostile")
    manifest = json.loads((folder / "run.json").read_text())
    manifest["campaign"]["title"] = HOSTILE
    manifest["machine"] |= {"cpu_model": HOSTILE, "os": HOSTILE}
    manifest |= {"host_warnings": [HOSTILE], "engine_reason": HOSTILE}
    (folder / "run.json").write_text(json.dumps(manifest))
    path = folder / "tables" / "trials.parquet"
    trials = pd.read_parquet(path)
    for name in TEXTS:
        known = trials[name].notna() if name != "error" else trials["status"].ne("sealed")
        trials.loc[known, name] = HOSTILE if name != "framework" else trials["framework"] + HOSTILE[:30]
    trials.to_parquet(path)
    (folder / "journal.jsonl").touch()
    synthetic_run.write_records(folder)
    return root


@pytest.mark.long
@pytest.mark.fault("a foreign run's texts are HTML, script, links, Markdown or LaTeX", "they are shown as text")
def test_hostile_texts_stay_texts_in_a_report(lab):
    made = json.loads(succeeded(lab, "report", "hostile", "--json"))
    for page in made["pages"] if "pages" in made else [made["html"]]:
        assert read(Path(page).read_text(encoding="utf-8")).done == [], page
    assert "<script>alert(1)</script>" in read(Path(made["html"]).read_text(encoding="utf-8")).words


@pytest.mark.long
@pytest.mark.fault("the same run is published", "text still, in the page and in the post")
def test_hostile_texts_stay_texts_in_a_post(lab, tmp_path):
    post = tmp_path / "post"
    succeeded(lab, "publish", "hostile", "--out", str(post))
    markdown = (post / "post.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    rendered = mistune.create_markdown(escape=False, plugins=["table"])(markdown)
    for page in ((post / "index.html").read_text(encoding="utf-8"), str(rendered)):
        assert read(page).done == []
    assert not any("<script" in drawing.read_text(encoding="utf-8") for drawing in (post / "figures").glob("*.svg"))


def succeeded(lab, *arguments):
    """What a command printed, which ended well."""
    done = bench(lab, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout
