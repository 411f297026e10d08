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
HARMLESS_LINKS = ("#", "data:image/", "data:,", "figures/", "tables/", "index.html")


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
            if name.startswith("on") or (name in ("src", "href", "srcset") and not _harmless(value or "")):
                self.done.append(f"{tag} {name}={str(value)[:60]}")

    def handle_data(self, data: str) -> None:
        self.words += data


def _harmless(link: str) -> bool:
    return link.startswith(HARMLESS_LINKS) or re.fullmatch(r"[\w./-]+\.(csv|md|svg|png|json)", link) is not None


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    root = tmp_path_factory.mktemp("lab")
    fake_lab.make(root)
    folder = root / "data" / "runs" / "hostile"
    synthetic_run.build(folder)
    manifest = json.loads((folder / "run.json").read_text())
    manifest["campaign"]["title"] = HOSTILE
    manifest["machine"] |= {"cpu_model": HOSTILE, "os": HOSTILE}
    manifest["host_warnings"] = [HOSTILE]
    manifest["engine_reason"] = HOSTILE
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


@pytest.mark.fault("a foreign run's texts are HTML, script, links, Markdown or LaTeX", "they are shown as text")
def test_hostile_texts_stay_texts_in_a_report(lab, monkeypatch):
    done = bench(lab, "report", "hostile", "--json")
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    for page in made["pages"] if "pages" in made else [made["html"]]:
        reader = read(Path(page).read_text(encoding="utf-8"))
        assert reader.done == [], page
    assert "<script>alert(1)</script>" in read(Path(made["html"]).read_text(encoding="utf-8")).words


@pytest.mark.fault("the same run is published", "text still, in the page and in the post")
def test_hostile_texts_stay_texts_in_a_post(lab, tmp_path):
    done = bench(lab, "publish", "hostile", "--out", str(tmp_path / "post"))
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert read((tmp_path / "post" / "index.html").read_text(encoding="utf-8")).done == []
    markdown = (tmp_path / "post" / "post.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    rendered = mistune.create_markdown(escape=False, plugins=["table"])(markdown)
    assert read(str(rendered)).done == []
    for drawing in (tmp_path / "post" / "figures").glob("*.svg"):
        assert "<script" not in drawing.read_text(encoding="utf-8")
