"""Tests of a bundle, the folder of a published post.

A bundle must be complete. If it is made twice, both bundles must be the same. It must contain
nothing about failed trials, and nothing private about this machine.
"""

import base64
import hashlib
import json
import re
import shutil
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import bs4
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import synthetic_run
import yaml
from built import ROOT, bare_lab
from markdown_it import MarkdownIt
from scipy.stats import gmean
from shown import soup

from runner.model import LabError
from runner.present.answers.summary import summarize
from runner.present.blog.front_matter import Site
from runner.present.blog.publish import Bundle, publish, rounded
from runner.present.chart.value import charts
from runner.present.frames import read_tables
from runner.store import RunFolder

pytestmark = pytest.mark.long

SECRETS = {
    **{
        "command": ["bench", "run", "/home/mallory/mine.toml"],
        "environment": {"API_TOKEN": "hunter2"},
    },
    **{"hostname": "mallorys-laptop", "user": "mallory"},
}
OF_RATES = {"cpu-peaks", "cpu-side-by-side"}
"""The figures that need loads at an offered rate."""
OF_PROFILES = {"cpu-spikes-ran"}
"""The figures that need profiles."""
SHOWN = tuple(
    name
    for notebook in ("report", "published", "cpu_spikes")
    for name in charts(notebook)
    if name not in OF_RATES | OF_PROFILES
)
"""The figures that the bundle of these tests must contain.

All other figures lack data, because the published run has no database, no probe, no loads at an
offered rate and no profiles.
"""
Post = tuple[dict[str, Any], bs4.BeautifulSoup]
KINDS = (".svg", ".png", "-dark.svg", "-dark.png")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lab with one run, whose manifest has private facts that must not be published."""
    lab = bare_lab(tmp_path_factory.mktemp("mallory"))
    run = synthetic_run.write_records(
        synthetic_run.build(lab / "data" / "runs" / synthetic_run.RUN_ID, trials=5)
    )
    manifest = json.loads((run / "run.json").read_text()) | SECRETS
    manifest["machine"] |= {"hostname": "mallorys-laptop", "home": "/home/mallory"}
    manifest["tools"] |= {"k6_path": "/home/mallory/k6"}
    manifest["compilers"] = {"axum": "rustc 1.95.0", "gin": "go 1.26.8"}
    manifest["campaign"]["servers"] = ["axum", "gin", "nginx"]
    manifest["placement"] |= {"note": "hunter2"}
    manifest["campaign"] |= {"toml": "# /home/mallory", "path": "/home/mallory/mine.toml"}
    (run / "run.json").write_text(json.dumps(manifest))
    return lab


@pytest.fixture(scope="module")
def run(in_lab: Path) -> RunFolder:
    return RunFolder(in_lab / "data" / "runs" / synthetic_run.RUN_ID)


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Return a list to which `bundle` adds the lines that are printed while the bundle is made."""
    return []


@pytest.fixture(scope="module")
def bundle(lab: Path, run: RunFolder, said: list[str]) -> Bundle:
    return publish(run, lab / "out" / "bundle", said.append)


@pytest.fixture(scope="module")
def post(bundle: Bundle) -> Post:
    """Return the front matter and the body of post.md.

    A YAML parser reads the front matter, and a CommonMark library turns the body into HTML.
    """
    _, front, body = (bundle.folder / "post.md").read_text().split("---\n", 2)
    render = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render
    return yaml.safe_load(front), soup(render(body))


@pytest.fixture(scope="module")
def page(bundle: Bundle) -> bs4.BeautifulSoup:
    return soup((bundle.folder / "index.html").read_text())


@pytest.fixture(scope="module")
def report(bundle: Bundle) -> bs4.BeautifulSoup:
    """Return the report's page, to which the post has a link."""
    return soup((bundle.folder / "report.html").read_text())


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def cells(page: bs4.BeautifulSoup) -> list[list[list[str]]]:
    return [
        [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in table.find_all("tr")]
        for table in page.find_all("table")
    ]


# --- the contents of a bundle ---------------------------------------------------------------------


def test_the_folder_has_each_figure_4_times_each_table_twice(bundle, said):
    """The bundle has four files of each figure and two of each table.

    The bundle's only other files are the seven that the test names.
    """
    found = contents(bundle.folder)
    tables = ("servers", "k6-loads", "wrk-requests", "wrk-cpu-per-request", "claims")
    assert set(found) == {
        *(f"figures/{name}{kind}" for name in SHOWN for kind in KINDS),
        *(f"tables/{name}.{kind}" for name in tables for kind in ("md", "csv")),
        *("tables/summary.csv", "tables/trials.csv", "provenance.json"),
        *("post.md", "index.html", "report.html", "card.png"),
    }
    assert {path.relative_to(bundle.folder).as_posix() for path in bundle.files} == set(found)
    assert bundle.figures == len(SHOWN) and bundle.page_bytes == len(found["index.html"])
    assert [line.split("]")[0] for line in said[:-1]] == [
        f"[{n}/{len(SHOWN)}" for n in range(1, len(SHOWN) + 1)
    ]


def test_the_front_matter_is_yaml_and_computed(post):
    front, _ = post
    assert front["title"] == "gin takes 1.1 to 1.8 times axum's CPU time per request"
    assert front["image"] == "card.png"
    assert str(front["date"]).startswith("2026-01-02")
    assert front["tags"] == ["k6", "wrk", "c", "go", "rust", "axum", "gin", "nginx"]
    assert front["description"].startswith("On a core, with 100 kept connections (wrk-matrix), ")


def test_the_report_says_what_was_measured_and_on_what(report):
    lead = report.find("p", class_="lead").get_text()
    assert lead.startswith("A synthetic run. ") and "1 failed trial left out" in lead
    assert "Example CPU @ 2.50GHz, 2 CPUs" in lead


@pytest.mark.parametrize("site", Site)
def test_the_front_matter_is_what_a_site_reads(run, tmp_path, site):
    made = publish(run, tmp_path / "out", print, figures={}, site=site)
    text = (made.folder / "post.md").read_text()
    mark = "+++" if site is Site.ZOLA else "---"
    _, front, body = text.split(f"{mark}\n", 2)
    facts = tomllib.loads(front) if site is Site.ZOLA else yaml.safe_load(front)
    assert facts["title"] and facts["description"] and str(facts["date"]).startswith("2026-01-02")
    tags = facts["taxonomies"]["tags"] if site is Site.ZOLA else facts["tags"]
    assert "axum" in tags and body.lstrip().startswith("On a core, with 100 kept connections")
    image = {
        Site.HUGO: lambda: facts["images"][0],
        Site.JEKYLL: lambda: facts["image"],
        Site.ZOLA: lambda: facts["extra"]["image"],
    }[site]()
    assert (made.folder / image).is_file()


def test_the_card_has_the_size_that_sites_ask_for(bundle, page):
    card = matplotlib.image.imread(bundle.folder / "card.png")
    assert card.shape[:2] == (630, 1200)
    edge = np.concatenate([card[:40].reshape(-1, card.shape[2]), card[:, -40:].reshape(-1, 4)])
    assert (edge == edge[0]).all()  # no text reaches the edge
    assert page.find("meta", property="og:image")["content"] == "card.png"


MOST_WORDS = 1150
OF_CAPTIONS = 50
"""How many of the MOST_WORDS words of a post are reserved for the captions of its figures.

A post that is made without figures has no captions, so it may have at most MOST_WORDS minus
OF_CAPTIONS words.
"""
MOST_BYTES = 1_500_000


def words_of(document: bs4.BeautifulSoup) -> int:
    return len(document.get_text(" ").split())


def test_a_post_is_read_to_its_end(bundle, post, page):
    """A post has few words, figures and bytes, and a short table, so that it is read to its end."""
    _, markdown = post
    assert words_of(markdown) <= MOST_WORDS
    images = markdown.find_all("img")
    assert 1 <= len(images) <= 4 and bundle.figures_in_post == len(images)
    assert all(int(image["height"]) <= 1100 and image["width"] == "700" for image in images)
    assert [len(table) <= 11 for table in cells(page)] == [True]
    assert bundle.page_bytes <= MOST_BYTES
    captions = [caption.get_text() for caption in page.find_all("figcaption")]
    assert all(caption.count(". ") <= 1 for caption in captions), captions


def test_the_sample_is_told_in_a_post(tmp_path):
    """The post about the sample has every chapter: from the title to the sources and files."""
    made = publish(RunFolder(ROOT / "data" / "sample"), tmp_path / "out", print, figures={})
    text = (made.folder / "post.md").read_text()
    page = soup((made.folder / "index.html").read_text())
    assert page.h1.get_text() == "k6 said 240 ms. A second client waited 0.253 ms."
    assert [heading.get_text() for heading in page.find_all("h2")] == [
        "What surprised",
        "Which server does more",
        "Why",
        "Which published claims hold here",
        "What to take",
        "What was sent, and to what",
        "Repeat it",
        "Sources and files",
    ]
    assert "wrk -t5 -c100 -d1s --timeout=10s -s histogram.lua http://server/count" in text
    addresses = {a["href"] for a in page.find_all("a") if a["href"].startswith("https://")}
    assert len(addresses) == 4
    assert page.find("ul", class_=False) and len(page.find_all("ul")[0].find_all("li")) <= 6
    rows = cells(page)[0]
    assert rows[0][:3] == ["server", "requests/s", "axum's rate / this server's"] and len(rows) == 5
    assert ["±" in row[1] for row in rows[1:]] == [row[1] != "not loaded" for row in rows[1:]]
    assert words_of(page.main) <= MOST_WORDS - OF_CAPTIONS


def test_the_page_alone_is_the_page_without_the_report(bundle, run, tmp_path):
    """If only the page is published, it has the same text as the page of a whole bundle.

    Only the link to the report is missing, because no report is written.
    """
    made = publish(run, tmp_path / "post", print, page_only=True)
    names = {path.relative_to(made.folder).as_posix() for path in made.files}
    assert {"index.html", "card.png", "provenance.json"} <= names
    assert all(name.startswith("tables/") for name in names if "/" in name)
    assert not {"post.md", "report.html"} & names
    alone = soup((made.folder / "index.html").read_text())
    links = {a["href"] for a in alone.find_all("a") if "://" not in a["href"]}
    assert links <= names and {"tables/trials.csv", "tables/claims.csv"} <= links
    whole = soup((bundle.folder / "index.html").read_text())
    (report,) = (a.find_parent("li") for a in whole.find_all("a", href="report.html"))
    report.decompose()
    assert alone.get_text(" ", strip=True) == whole.get_text(" ", strip=True)
    again = publish(run, tmp_path / "post", print, page_only=True)
    assert again.files == made.files


def test_the_numbers_are_those_that_went_in(bundle):
    files = (bundle.folder / "tables" / f"{name}.csv" for name in ("trials", "wrk-requests"))
    trials, rates = (pd.read_csv(file, dtype=str) for file in files)
    assert set(trials["trial_id"]) == set(provenance(bundle)["sealed_trials"])
    expected = synthetic_run.wrk_rate("gin", 1, "close", 100, 3)
    blocks = [synthetic_run.wrk_rate("gin", 1, "close", 100, block) for block in range(1, 6)]
    cell = trials.query(
        "server == 'gin' and connections == '100.0' and mode == 'close' and block == '3.0'"
    )
    assert float(cell["rps"].item()) == pytest.approx(expected)
    row = rates.set_index("load").loc["wrk-matrix, close, 100 connections"]
    assert row["gin"].startswith(f"{gmean(blocks):,.0f} ±") and row["nginx"].endswith(" †")


def test_the_summary_does_not_depend_on_the_last_bit_of_a_logarithm(run):
    """A machine whose CPU computes logarithms by other instructions writes the same bytes.

    On such a machine the last bit of some floats may differ. The test changes all floats that much.
    """
    summary = summarize(read_tables(run))
    floats = summary.select_dtypes("float")
    changed = summary.assign(**floats * (1 + np.finfo(float).eps))
    assert not changed.equals(summary)
    assert rounded(changed).to_csv() == rounded(summary).to_csv()


def test_post_and_page_have_the_same_tables_lists_and_pictures(bundle, post, page, report):
    _, markdown = post
    assert cells(markdown) == cells(page) and len(cells(page)) == 1
    assert len(cells(report)) == 6
    lists, captions = (
        [
            [
                [item.get_text() for item in each.find_all("li") or [each]]
                for each in document.find_all(tag)
            ]
            for document in (markdown, page)
        ]
        for tag in ("ul", "figcaption")
    )
    assert lists[0] == lists[1] and len(lists[0]) == 3
    assert captions[0] == captions[1] and len(captions[0]) == bundle.figures_in_post
    captions = [caption.get_text() for caption in report.find_all("figcaption")]
    assert len(captions) == len(SHOWN)
    assert all(re.search(r"\nData: run \S+\.$", caption) for caption in captions)
    end = report.get_text().partition("Machine and provenance")[2]
    assert "Example CPU @ 2.50GHz, 2 CPUs" in end and re.search(r"bound \d+ of \d+", end)
    pictures = [
        [tuple(image[name] for name in ("alt", "width", "height")) for image in images]
        for images in (
            markdown.find_all("img"),
            *(page.find_all("img", class_=kind) for kind in ("light", "dark")),
        )
    ]
    assert pictures[0] == pictures[1] == pictures[2]
    for document in (page, report):
        ranks = [int(heading.name[1]) for heading in document.find_all(re.compile("^h[1-6]$"))]
        assert ranks[0] == 1 and ranks.count(1) == 1 and all(b <= a + 1 for a, b in pairwise(ranks))
    assert [heading.get_text() for heading in report.find_all("h2")] == [
        *(
            "The answer",
            "Which published claims hold here",
            "How it was measured",
            "What is not known",
        ),
        *("More figures", "Tables", "Load by load", "Verdicts", "Machine and provenance"),
    ]


def test_every_link_of_the_post_leads_to_a_file(bundle, post, page, report):
    """Every link leads to a file of the bundle.

    Links to web pages, for example to the published numbers, are excepted.
    """
    _, markdown = post
    links = {a["href"] for document in (markdown, page, report) for a in document.find_all("a")}
    links = {link for link in links if not link.startswith("https://")}
    links |= {image["src"] for image in markdown.find_all("img")} | {
        s["srcset"] for s in markdown.find_all("source")
    }
    links |= {image["src"] for image in report.find_all("img")}
    assert len(links) > 2 * len(SHOWN)
    assert all((bundle.folder / link).is_file() for link in links)


def test_the_page_holds_the_figures_and_loads_nothing(bundle, page):
    for kind, behind in (("light", ""), ("dark", "-dark")):
        addresses = [image["src"] for image in page.find_all("img", class_=kind)]
        inside = [
            base64.b64decode(address.removeprefix("data:image/svg+xml;base64,"))
            for address in addresses
        ]
        files = [(bundle.folder / "figures" / f"{name}{behind}.svg").read_bytes() for name in SHOWN]
        assert len(inside) == bundle.figures_in_post and set(inside) <= set(files)
    assert not page.find_all(["script", "iframe", "object", "embed", "base"])
    assert {link["href"] for link in page.find_all("link")} == {"data:,"}
    text = (bundle.folder / "index.html").read_text()
    assert not re.search(r"@import|url\(", text)
    assert all("https:" not in str(tag) for tag in page.find_all(["img", "link", "meta"]))


def provenance(bundle: Bundle) -> dict[str, Any]:
    return json.loads((bundle.folder / "provenance.json").read_text())


def test_provenance_has_the_hash_of_every_file_and_record(bundle, run):
    facts = provenance(bundle)
    found = contents(bundle.folder)
    assert facts["files"] == {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in found.items()
        if name != "provenance.json"
    }
    inputs = {f"tables/{name}.parquet" for name in ("trials", "latency", "throughput", "resources")}
    assert set(facts["inputs"]) == {"run.json", "published.csv", *inputs}
    for name in (*inputs, "run.json"):
        assert (
            facts["inputs"][name]["sha256"]
            == hashlib.sha256((run.path / name).read_bytes()).hexdigest()
        )
    trials = pd.read_parquet(run.table("trials"))
    sealed = trials.loc[trials["status"] == "sealed", "trial_id"]
    assert facts["sealed_trials"] == {
        name: hashlib.sha256((run.trial(name) / "trial.json").read_bytes()).hexdigest()
        for name in sorted(sealed)
    }
    about = facts["run"]
    assert (about["run_id"], about["git"]["commit"]) == (synthetic_run.RUN_ID, "0" * 40)
    assert about["tools"]["wrk"] == "4.1.0"
    assert about["compilers"] == {"axum": "rustc 1.95.0", "gin": "go 1.26.8"}


def test_post_and_report_name_compilers_and_tools(page, report):
    for document in (page, report):
        words = document.get_text(" ")
        assert "go 1.26.8 (gin)" in words and "rustc 1.95.0 (axum)" in words
        assert "k6 1.8.1" in words and "wrk 4.1.0" in words


def test_nothing_says_where_or_by_whom_it_was_made(bundle):
    for name, data in contents(bundle.folder).items():
        for word in (b"mallory", b"hunter2", str(ROOT).encode(), str(Path.home()).encode() + b"/"):
            assert word not in data, (name, word)


# --- a second bundle of the same run --------------------------------------------------------------


def test_failed_trials_and_a_second_time_change_nothing(lab, run, bundle):
    """A second bundle is the same as the first, even if failed trials have other values.

    Only provenance.json differs, because it contains the hashes of the tables that were read.
    """
    absurd = RunFolder(Path(shutil.copytree(run.path, lab / "absurd")))
    trials = pd.read_parquet(absurd.table("trials"))
    out = trials["status"] != "sealed"
    assert out.any()
    for column in trials.select_dtypes("number").columns.difference(
        [
            "block",
            "trial_order",
            "attempt",
            "connections",
            "vus",
            "failed",
        ]  # `failed` is kept, because a claim asks whether any request failed
    ):
        trials[column] = trials[column].astype(float).mask(out, 987654.0)
    trials.loc[out, "verdict"] = "server-bound"
    trials.to_parquet(absurd.table("trials"))
    failed = trials.loc[out, "trial_id"].iloc[0]
    for name in ("latency", "throughput", "resources"):
        table = pd.read_parquet(absurd.table(name))
        extra = table[table["trial_id"] == "axum-experiments-vus3000-b1"].assign(trial_id=failed)
        numbers = extra.select_dtypes("number").columns.difference(["t_s", "dt_s", "second"])
        extra[numbers] = extra[numbers] * 3
        pd.concat([table, extra.astype(table.dtypes)]).to_parquet(absurd.table(name))
    again = publish(absurd, lab / "out" / "again", print)
    before = contents(bundle.folder)
    after = contents(again.folder)
    changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    assert changed == {"provenance.json"}
    facts = [provenance(each) for each in (bundle, again)]
    inputs = [each.pop("inputs") for each in facts]
    assert {name for name in inputs[0] if inputs[0][name] != inputs[1][name]} == {
        f"tables/{name}.parquet" for name in ("trials", "latency", "throughput", "resources")
    }
    assert facts[0] == facts[1]


# --- files that exist already ---------------------------------------------------------------------


@pytest.fixture
def quick() -> Any:
    """Return a function that publishes a run without figures, which is quick."""
    return lambda run, folder: publish(run, folder, print, figures={})


@pytest.fixture
def target(bundle: Bundle, tmp_path: Path) -> Path:
    """Return an unedited copy of the bundle."""
    return Path(shutil.copytree(bundle.folder, tmp_path / "bundle"))


def test_an_untouched_bundle_is_replaced_without_a_trace(quick, run, target):
    """A bundle that has not been edited is replaced, and no file of the old bundle is left.

    A bundle may also be written into an empty folder.
    """
    made = quick(run, target)
    assert not (target / "figures").exists() and made.figures == 0
    assert [path.name for path in target.parent.iterdir()] == ["bundle"]
    (target.parent / "empty").mkdir()
    assert quick(run, target.parent / "empty").files


@pytest.mark.parametrize(
    "left", ["a stranger's file", "an edited post", "a file beside ours", "a file", "not our JSON"]
)
def test_what_a_user_wrote_is_never_lost(quick, run, bundle, tmp_path, left):
    target = tmp_path / "bundle"
    if left in {"an edited post", "a file beside ours"}:
        shutil.copytree(bundle.folder, target)
    elif left != "a file":
        target.mkdir()
    named = {
        "an edited post": target / "post.md",
        "a file": target,
        "not our JSON": target / "provenance.json",
    }
    where = named.get(left, target / "notes.txt")
    with where.open("a") as handle:
        handle.write('{"files": {}}' if left == "not our JSON" else "My words.")
    before = contents(tmp_path)
    with pytest.raises(LabError) as caught:
        quick(run, target)
    assert (
        caught.value.exit_code == 2
        and str(target) in str(caught.value)
        and str(caught.value).endswith(".")
    )
    assert contents(tmp_path) == before


def test_an_error_half_way_leaves_what_was_there(quick, run, target, monkeypatch):
    before = contents(target)

    def fail(*_: object) -> str:
        raise OSError("no space left")

    monkeypatch.setattr("runner.present.blog.post.Post.html", fail)
    with pytest.raises(OSError, match="no space left"):
        quick(run, target)
    assert contents(target) == before and [path.name for path in target.parent.iterdir()] == [
        "bundle"
    ]


# --- runs that cannot be published ----------------------------------------------------------------


@pytest.mark.parametrize("status", ["failed", None])
def test_tables_that_disagree_with_the_records_are_refused(quick, run, tmp_path, status):
    stale = RunFolder(Path(shutil.copytree(run.path, tmp_path / "run")))
    record = stale.trial("gin-experiments-vus3000-b1") / "trial.json"
    if status:
        record.write_text(json.dumps(json.loads(record.read_text()) | {"status": status}))
    else:
        record.unlink()
    with pytest.raises(LabError, match="gin-experiments-vus3000-b1 is sealed") as caught:
        quick(stale, tmp_path / "out")
    assert caught.value.exit_code == 1 and not (tmp_path / "out").exists()


def test_a_run_without_a_sealed_trial_is_refused(in_lab, tmp_path):
    folder = synthetic_run.write_records(synthetic_run.build(tmp_path / "run", k6=(), wrk=False))
    with pytest.raises(LabError, match="publish another run") as caught:
        publish(RunFolder(folder), tmp_path / "out", print)
    assert caught.value.exit_code == 1 and not (tmp_path / "out").exists()


# --- the command line -----------------------------------------------------------------------------


def test_the_command_prints_paths_and_knows_wrong_usage(quick, run, bench, tmp_path):
    code, out, err = bench(run.run_id, "--out", str(tmp_path / "out"), "--json", command="publish")
    assert code == 0, err
    printed = json.loads(out)
    assert printed["run_id"] == run.run_id
    assert {Path(path).name for path in printed["files"]} >= {
        "post.md",
        "index.html",
        "provenance.json",
    }
    assert all(Path(path).is_file() for path in printed["files"])
    assert bench(run.run_id, command="publish")[0] == 2
    code, _, err = bench("nope", "--out", str(tmp_path / "other"), command="publish")
    assert code == 2 and err.startswith("Error: There is no run 'nope'")
