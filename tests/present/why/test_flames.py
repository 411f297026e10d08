"""Tests of flame graphs.

Widths must agree with folded stacks, and differences must agree with the tables. Hostile names of
functions must do no harm.
"""

import hashlib
import math
import re
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from captions_held import caption_faults
from made_profiles import LOAD, profiles_of

from runner.present.look import markup
from runner.present.look.palette import KNOWN, contrast, tint
from runner.present.why import flame_pictures as pictures
from runner.present.why.exports import folded
from runner.present.why.flames import Change, of_difference, of_server

SOURCE = "Data: run one."
KERNEL = "entry_[k];do_syscall_[k]"
US = {
    "axum": {
        "main;serve": ("HTTP", 4.0),
        "main;serve;parse": ("HTTP", 2.0),
        f"main;serve;{KERNEL};tcp_sendmsg_[k]": ("kernel network", 10.0),
        f"main;poll;{KERNEL};tcp_recvmsg_[k]": ("kernel network", 5.0),
    },
    "gin": {
        "goexit;ServeHTTP": ("HTTP", 9.0),
        "goexit;mallocgc": ("allocator", 3.0),
        f"goexit;Write;{KERNEL};tcp_sendmsg_[k]": ("kernel network", 14.0),
        f"goexit;Read;{KERNEL};tcp_recvmsg_[k]": ("kernel network", 5.0),
    },
}
HOSTILE = "main;</title><script>alert(1)</script>&\"'\x00\u202e]]>"


def drawn(svg):
    """Yield (title, x, y, width) of each box of an SVG, as an XML parser reads them."""
    tag = "{http://www.w3.org/2000/svg}"
    for group in ET.fromstring(svg).iter(f"{tag}g"):
        box = group.find(f"{tag}rect")
        yield (
            group.find(f"{tag}title").text,
            *(float(box.get(name)) for name in ("x", "y", "width")),
        )


def nanoseconds(profiles, server):
    """Return the CPU time of each function at each depth, in ns, by (depth, function).

    The times are computed in the way of programs that read folded stacks. The time of a function
    contains the time of the functions that it calls.
    """
    found = Counter()
    for line in folded(profiles.stacks_of(server, LOAD)).splitlines():
        stack, value = line.rsplit(" ", 1)
        names = stack.split(";")
        for depth in range(1, len(names) + 1):
            found[depth, names[depth - 1].removesuffix("_[k]")] += int(value)
    return found


def test_widths_are_those_of_the_folded_stacks():
    profiles = profiles_of(US, noise_us=0.3)
    total = sum(
        int(line.rsplit(" ", 1)[1])
        for line in folded(profiles.stacks_of("axum", LOAD)).splitlines()
    )
    widths = Counter()
    for title, _, y, width in drawn(pictures.svg(of_server(profiles, "axum", LOAD))):
        widths[round(y / pictures.ROW_PX), title.rsplit(": ", 1)[0]] += width
    expected = {
        key: value * pictures.WIDTH_PX / total
        for key, value in nanoseconds(profiles, "axum").items()
    }
    assert widths.pop((0, "axum")) == pictures.WIDTH_PX
    assert widths == pytest.approx(expected, abs=0.1)


def test_boxes_lie_within_their_callers_and_beside_each_other():
    rows = {}
    for _, x, y, width in drawn(pictures.svg(of_server(profiles_of(US), "axum", LOAD))):
        rows.setdefault(y, []).append((x, x + width))
    for y, boxes in sorted(rows.items())[1:]:
        callers = rows[y - pictures.ROW_PX]
        assert all(any(a - 0.1 <= x and end <= b + 0.1 for a, b in callers) for x, end in boxes)
        assert all(end <= x + 0.1 for (_, end), (x, _) in pairwise(boxes))


def test_a_difference_adds_up_to_that_of_the_cpu_times():
    profiles = profiles_of(US, noise_us=0.3)
    root = of_difference(profiles, "axum", "gin", LOAD)
    used = profiles.slices.groupby("server")["sampled_us_per_request"].mean()
    assert root.more_us == pytest.approx(used["gin"] - used["axum"])
    assert sum(each.more_us for each in root.callees) == pytest.approx(root.more_us)
    stacks = profiles.stacks.groupby(["server", "category"])["us_per_request"].sum() / 6
    for each in root.callees:
        mine, theirs = (stacks.get((server, each.name), 0.0) for server in ("gin", "axum"))
        assert each.more_us == pytest.approx(mine - theirs)
        assert each.us == pytest.approx((mine + theirs) / 2)


def test_servers_of_two_languages_share_the_kernel():
    root = of_difference(profiles_of(US), "axum", "gin", LOAD)
    kernel = next(each for each in root.callees if each.name == "kernel network")
    names = [each.name for each in kernel.frames()]
    assert names.count("tcp_sendmsg") == names.count("tcp_recvmsg") == 1
    by_name = {each.name: each for each in kernel.frames()}
    assert by_name["tcp_sendmsg"].more_us == pytest.approx(4.0)
    assert by_name["tcp_recvmsg"].more_us == pytest.approx(0.0)


def test_only_what_is_sure_has_a_colour():
    us = {
        "a": {"main;same": ("HTTP", 9.0), "main;less": ("HTTP", 4.0), "main;more": ("HTTP", 1.0)},
        "b": {"main;same": ("HTTP", 9.0), "main;less": ("HTTP", 1.0), "main;more": ("HTTP", 5.0)},
    }
    root = of_difference(profiles_of(us, noise_us=0.3), "a", "b", LOAD)
    changes = {each.name: each.change for each in root.frames()}
    assert (changes["more"], changes["less"]) == (Change.MORE, Change.LESS)
    svg = pictures.svg(root, of_two=True)
    classes = dict(re.findall(r"<title>([^:]*):[^<]*</title><rect class=\"(\w+)\"", svg))
    assert (classes["more"], classes["less"]) == ("more", "less")
    assert "+4" in svg and "−3" in svg, "the sign is written, for readers without colours"


def test_equal_servers_have_no_colour_in_nineteen_of_twenty():
    work = {f"main;f{number}": ("HTTP", 5.0) for number in range(40)}
    profiles = (profiles_of({"a": work, "b": work}, noise_us=0.5, seed=each) for each in range(20))
    roots = [of_difference(each, "a", "b", LOAD) for each in profiles]
    sure = [
        frame.change is not Change.UNSURE
        for root in roots
        for frame in root.frames()
        if frame.name.startswith("f")
    ]
    assert np.mean(sure) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(sure))


def test_narrow_frames_are_part_of_their_callers():
    work = {"main;wide": ("HTTP", 99.95), "main;narrow": ("HTTP", 0.05)}
    root = of_server(profiles_of({"a": work}), "a", LOAD)
    assert [each.name for each in root.frames()] == ["a", "main", "wide"]
    assert root.callees[0].us == pytest.approx(100.0)


def test_a_picture_of_thousands_of_frames_is_small_and_keeps_callers():
    work = {
        f"main;{'x' * 80}{number};callee{number}": ("HTTP", 1.0 + number / 1000)
        for number in range(900)
    }
    root = of_server(profiles_of({"a": work}), "a", LOAD)
    svg = pictures.svg(root)
    assert len(svg.encode()) < 300_000
    kept = root.kept(100)
    assert len(list(kept.frames())) <= 100
    assert {each.name for each in kept.callees} == {"main"}


def test_the_same_tables_give_the_same_bytes_in_any_order():
    profiles = profiles_of(US, noise_us=0.3)
    shuffled = type(profiles)(
        profiles.stacks.sample(frac=1, random_state=3), profiles.slices, profiles.counters
    )
    one, other = (
        [markup.html([block]) for block in pictures.blocks(each, LOOKS, LOAD, "a load", SOURCE)]
        for each in (profiles, shuffled)
    )
    assert one == other


LOOKS = {"axum": KNOWN["rust", "axum"], "gin": KNOWN["go", "gin"]}


def test_a_server_without_a_trial_has_a_graph():
    """A server with a profile but without a trial has a flame graph.

    A run has such a server if the run's time sufficed only for the server's profile.
    """
    names = [each.name for each in pictures.blocks(profiles_of(US), {}, LOAD, "a load", SOURCE)]
    assert names == ["gin minus axum, a load", "axum, a load", "gin, a load"]


def test_hostile_names_are_shown_and_do_nothing():
    profiles = profiles_of({"axum": {HOSTILE: ("HTTP", 9.0)}, "gin": US["gin"]})
    names = [title for title, *_ in drawn(pictures.svg(of_server(profiles, "axum", LOAD)))]
    assert any("<script>alert(1)</script>" in name for name in names)
    html = "".join(
        markup.html([block]) for block in pictures.blocks(profiles, LOOKS, LOAD, "a load", SOURCE)
    )
    assert "<script>alert" not in html and "\x00" not in html and "\u202e" not in html
    assert html.count("<script") == html.count('<script type="application/json">') == 3
    assert html.count("</script>") == 3


@pytest.mark.parametrize("look", KNOWN.values(), ids=lambda look: look.color)
def test_names_are_legible_on_every_colour(look):
    assert contrast("#222222", tint(look.color)) >= 4.5


def test_the_files_of_others_are_those_of_the_registry():
    """Each file from another project is unchanged, and the project's licence is listed.

    A file is unchanged if it has the hash that origins.toml records. This is the hash of the file
    in the package registry.
    """
    folder = Path(markup.__file__).with_name("viewer")
    files = tomllib.loads((folder / "origins.toml").read_text())["file"]
    licences = (folder / "LICENSES.txt").read_text()
    assert {each["name"] for each in files} == {path.name for path in folder.glob("*.min.js")}
    for each in files:
        assert hashlib.sha256((folder / each["name"]).read_bytes()).hexdigest() == each["sha256"]
        assert f"{each['package']} {each['version']}\n" in licences


def test_only_a_page_with_flame_graphs_has_their_viewer():
    block = next(pictures.blocks(profiles_of(US), LOOKS, LOAD, "a load", SOURCE))
    assert "d3js.org" in markup.page("t", markup.html([block]))
    assert "<script" not in markup.page("t", markup.html([markup.Paragraph("words")]))


def test_a_caption_is_one_sentence_and_one_line_of_source():
    blocks = list(pictures.blocks(profiles_of(US), LOOKS, LOAD, "a load", SOURCE))
    assert len(blocks) == 3
    assert not [fault for each in blocks for fault in caption_faults(each.caption)]
    assert {each.caption.partition("\n")[2] for each in blocks} == {SOURCE}
