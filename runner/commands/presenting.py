"""Commands that show results."""

from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from runner import console
from runner.commands.options import (
    FailAbove,
    Force,
    Html,
    JsonFlag,
    Run,
    emit,
    opened,
    run_of,
    write_page,
)
from runner.model import LabError
from runner.present.blog.front_matter import Site
from runner.store import RunFolder, short_name


def report(
    run: Run = "latest",
    salvage: Annotated[
        bool,
        typer.Option(
            "--salvage",
            help=(
                "Read what is left of damaged files of k6's samples, and mark the trials of these "
                "files as failed."
            ),
        ),
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="local|ADDRESS",
            help=(
                "Rebuild the tables from the raw files on Dask workers: those of this machine "
                "(local), or those of the scheduler at this address."
            ),
        ),
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Make the tables, figures and HTML pages of a run by executing the notebooks."""
    from runner.present.notebook.kernels import Kernels

    folder = run_of(run)
    if cluster is not None:
        from runner.digest.cluster import spread_over
        from runner.digest.tables import rebuild

        with spread_over(cluster, console.note) as spread:
            rebuild(folder, salvage=salvage, spread=spread, threads=1)
    # Start the kernels first, so that they import their modules while this process imports its own.
    with Kernels() as kernels:
        from runner.digest.profiles import ensure_profiles
        from runner.digest.tables import ensure_tables
        from runner.present.answers.summary import printable, summarize
        from runner.present.frames import read_tables
        from runner.present.notebook.notebooks import build_report

        ensure_tables(folder, console.note, salvage=salvage and cluster is None)
        ensure_profiles(folder)
        console.note("Executing the notebooks …")
        pages = build_report(folder, console.note, kernels)
    html = next(iter(pages))
    if json_:
        names = dict.fromkeys(chain.from_iterable(pages.values()))
        figures = [
            str(html.with_name(f"{name}.{kind}")) for name in names for kind in ("png", "svg")
        ]
        emit({"run_id": folder.run_id, "html": str(html), "figures": figures})
        return
    console.frame(f"run {folder.run_id}", printable(summarize(read_tables(folder))))
    console.note(f"Figures: {html.parent}", *(f"Report:  {page}" for page in pages))


def compare(
    run_a: Annotated[
        str,
        typer.Argument(
            help=("The run that is the baseline: its id, its path, `latest` or `sample`.")
        ),
    ],
    run_b: Annotated[str, typer.Argument(help="The run that is compared with the baseline.")],
    force: Force = False,
    fail_above: FailAbove = None,
    html: Html = None,
    json_: JsonFlag = False,
) -> None:
    """Compare run B with run A: for each server and load a ratio with its interval, or a tie."""
    from runner.present.two_runs.compare import compare_runs, left_out, provenance, tables

    folders = opened(run_a), opened(run_b)
    found = compare_runs(*folders, force=force, fail_above_pct=fail_above)
    if json_:
        emit(found.plain())
    else:
        console.note(f"A: run {found.run_a}\nB: run {found.run_b}")
        if found.differences:
            rows = [
                (each.what, each.here_in_words, each.there_in_words) for each in found.differences
            ]
            console.table("compared because of --force", ("the runs differ in", "A", "B"), rows)
        for load, texts in tables(found).items():
            console.frame(load, texts)
        out = (f"{why}: {'; '.join(cells)}." for why, cells in left_out(found).items())
        console.note(*provenance(found), *out)
    a, b = map(short_name, folders)
    given = {"run_a": a, "run_b": b, "force": force, "fail_above": fail_above}
    write_page("compare", given, html, f"{found.run_a} and {found.run_b}")
    if found.regressions:
        console.error(
            f"{len(found.regressions)} of {len(found.comparisons)} comparisons show run B "
            f"to be worse than run A by more than {fail_above:g} %."
        )
        raise typer.Exit(1)
    if fail_above is not None and not any(row.ratio for row in found.comparisons):
        console.error(
            "Nothing could be decided, because no server has five comparable trials under the "
            "same load in both runs."
        )
        raise typer.Exit(1)


def history(
    runs: Annotated[
        list[str],
        typer.Argument(help=("Two or more runs: their ids, their paths, `latest` or `sample`.")),
    ],
    append: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=(
                "Copy the runs into this folder, then show the history of all runs in the folder."
            ),
        ),
    ] = None,
    force: Force = False,
    fail_above: FailAbove = None,
    html: Html = None,
    json_: JsonFlag = False,
) -> None:
    """Follow each server and load over many runs: the mean of each run, and changes that lasted."""
    from runner.present.two_runs.history import findings, table
    from runner.present.two_runs.history import history as history_of

    folders = [opened(run) for run in runs]
    if append is not None:
        folders = _appended(folders, append)
        if len(folders) == 1:
            console.note(
                f"{append} holds one run, and a history needs at least two: append another run."
            )
            return
    found = history_of(folders, force=force, fail_above_pct=fail_above)
    if json_:
        emit(
            {
                "runs": found.runs,
                "days": found.days,
                "courses": [asdict(course) for course in found.courses],
            }
        )
    else:
        console.frame("means by run", table(found))
        console.note(*findings(found))
    given = {"runs": ",".join(map(short_name, folders)), "force": force, "fail_above": fail_above}
    write_page("history", given, html, f"{len(folders)} runs")
    if fail_above is not None and found.regressions:
        console.error(
            f"In {len(found.regressions)} comparisons, the latest change that lasted is a "
            f"regression of more than {fail_above:g} %."
        )
        raise typer.Exit(1)


def _appended(folders: list[RunFolder], to: Path) -> list[RunFolder]:
    """Copy runs into the folder `to`, unless it contains them, and return all runs in `to`."""
    from runner.digest.tables import shrink
    from runner.store import export_compact

    to.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        if not (to / folder.run_id).exists():
            export_compact(folder, to / folder.run_id, shrink)
    return [opened(str(path.parent.resolve())) for path in sorted(to.glob("*/run.json"))]


def claims(run: Run = "latest", json_: JsonFlag = False) -> None:
    """Judge the published claims by a run: outcomes, ratios and reasons."""
    from runner.present.frames import read_tables
    from runner.present.published.claims import rules_words
    from runner.present.published.judging import judge_all
    from runner.present.published.outcomes import count_words

    folder = opened(run)
    tables = read_tables(folder)
    judged = judge_all(tables)
    rules = rules_words(tables.manifest)
    if json_:
        emit({"run_id": folder.run_id, "rules": rules, "claims": [each.plain for each in judged]})
        return
    rows = [
        (
            each.claim.short,
            each.outcome_words,
            "\n".join(each.ratios),
            each.claim.range_words,
            each.why,
        )
        for each in judged
    ]
    console.table(
        f"run {folder.run_id}",
        ("claim", "outcome", "ratio [95 % interval]", "claimed", "why"),
        rows,
    )
    console.note(count_words([each.direction for each in judged]), rules)


def export(
    run: Run,
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help=(
                "Folder for the copy. An earlier exported run in this folder is replaced. With "
                "--hgrm, --out names a new file."
            ),
        ),
    ],
    hgrm: Annotated[
        str,
        typer.Option(
            metavar="TRIAL",
            help=(
                "Instead of a copy of the run, write the histogram of this trial's response times "
                "in the text format of HdrHistogram (.hgrm)."
            ),
        ),
    ] = "",
) -> None:
    """Copy a run without its single requests: all data of the figures, small enough to commit."""
    from runner.digest.histogram import to_hgrm
    from runner.digest.tables import shrink
    from runner.present.frames import read_tables, sealed_trials
    from runner.store import export_compact

    if hgrm:
        folder = opened(run)
        tables = read_tables(folder)
        rows = tables.latency[tables.latency["trial_id"] == hgrm]
        if hgrm not in set(sealed_trials(tables.trials)["trial_id"]) or rows.empty:
            raise LabError(
                f"Run {folder.run_id} has no sealed trial {hgrm!r} with response times: "
                "choose a trial_id with status `sealed` from the run's table `trials`."
            )
        try:
            with Path(out).open("x", encoding="utf-8") as file:
                file.write(to_hgrm(rows["upper_ms"], rows["count"]))
        except FileExistsError:
            raise LabError(f"{out} already exists: name a new file.") from None
    else:
        export_compact(run_of(run), Path(out), shrink)
    console.note(f"Exported to {out}")


def publish(
    out: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help=(
                "Folder for the post. It must be new or empty, or hold an earlier post of this "
                "command that nobody has changed."
            ),
        ),
    ],
    run: Run = "latest",
    front_matter: Annotated[
        Site | None,
        typer.Option(
            metavar="hugo|jekyll|zola",
            help="Begin the post with front matter for this static site generator.",
        ),
    ] = None,
    page_only: Annotated[
        bool,
        typer.Option(
            "--page-only",
            help=(
                "Write only the self-contained page, its card and its tables, without the report, "
                "the Markdown and separate figures."
            ),
        ),
    ] = False,
    json_: JsonFlag = False,
) -> None:
    """Write a folder for a blog.

    It has a post of some 1,000 words as Markdown and as a self-contained page, a card for
    link previews, the whole report, figures in light and dark, tables and provenance.
    """
    from runner.present.blog.publish import publish as publish_run

    if page_only and front_matter is not None:
        raise LabError(
            "--front-matter begins the Markdown, and --page-only writes no Markdown: leave out "
            "one of them."
        )
    folder = opened(run)
    target = Path(out)
    made = publish_run(folder, target, console.note, site=front_matter, page_only=page_only)
    if json_:
        emit(
            {
                "run_id": folder.run_id,
                "path": str(made.folder),
                "files": [str(path) for path in made.files],
            }
        )
        return
    inside = f"{made.figures_in_post} of {made.figures} figures inside, each light and dark"
    page = f"Page:    {made.folder / 'index.html'} ({made.page_bytes / 1e6:.1f} MB: {inside})"
    if page_only:
        console.note(page)
        return
    console.note(f"Post:    {made.folder / 'post.md'}")
    console.note(page)
    console.note(f"Report:  {made.folder / 'report.html'}")
