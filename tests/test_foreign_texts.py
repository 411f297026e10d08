"""A run whose texts are hostile: pages and posts show them, and none of them is ever markup, script or a formula."""

import json
import re
from pathlib import Path

import bs4
import fake_lab
import mistune
import pandas as pd
import pytest
import synthetic_run
from fake_lab import bench
from shown import soup

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3)) $\\input{/etc/passwd}^$ \"'`|"
TEXTS = ("framework", "language", "error", "verdict_reason")
HARMLESS = re.compile(r"#|data:image/|data:,|figures/|tables/|index\.html|[\w./-]+\.(csv|md|svg|png|json)$")


def acts(page: bs4.BeautifulSoup) -> list[str]:
    """What a page would do beside showing text."""
    found = [tag.name for tag in page.find_all(["script", "iframe", "object", "embed", "base", "form"])]
    for tag in page.find_all(True):
        for name, value in tag.attrs.items():
            if name.startswith("on") or (name in ("src", "href", "srcset") and not HARMLESS.match(value)):
                found.append(f"{tag.name} {name}={value[:60]}")
    return found


def hostile(trials: pd.DataFrame) -> pd.DataFrame:
    known = trials[list(TEXTS)].notna().assign(error=trials["status"].ne("sealed"))
    texts = dict.fromkeys(TEXTS, HOSTILE) | {"framework": trials["framework"] + HOSTILE[:30]}
    return trials.assign(**{name: trials[name].mask(known[name], text) for name, text in texts.items()})


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
    synthetic_run.rewrite(folder, "trials", hostile)
    (folder / "journal.jsonl").touch()
    synthetic_run.write_records(folder)
    return root


@pytest.mark.long
@pytest.mark.fault("a foreign run's texts are HTML, script, links, Markdown or LaTeX", "they are shown as text")
def test_hostile_texts_stay_texts_in_a_report(lab):
    page = soup(Path(json.loads(bench(lab, "report", "hostile", "--json", code=0).stdout)["html"]).read_text())
    assert acts(page) == []
    assert "<script>alert(1)</script>" in page.get_text()


@pytest.mark.long
@pytest.mark.fault("the same run is published", "text still, in the page and in the post")
def test_hostile_texts_stay_texts_in_a_post(lab, tmp_path):
    post = tmp_path / "post"
    bench(lab, "publish", "hostile", "--out", str(post), code=0)
    markdown = (post / "post.md").read_text().split("---\n", 2)[2]
    rendered = mistune.create_markdown(escape=False, plugins=["table"])(markdown)
    for page in ((post / "index.html").read_text(), str(rendered)):
        assert acts(soup(page)) == []
    assert not any("<script" in drawing.read_text() for drawing in (post / "figures").glob("*.svg"))
