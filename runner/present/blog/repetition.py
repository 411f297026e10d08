"""Tell the reader of a post how to repeat a run, with its requests, commands, code and versions."""

from collections.abc import Mapping
from typing import Any

from runner.manifest import Manifest
from runner.present.blog.handlers import framework_version, handler
from runner.present.blog.story import Story, workload_of
from runner.present.look import captions
from runner.present.look.markup import Block, Code, Paragraph

MOST_HANDLERS = 2
"""A post shows the code of at most this many servers."""
COMMIT_LETTERS = 12
"""Number of characters of a commit's hash that a post shows."""


def requests_and_code(story: Story) -> list[Block]:
    """Return the requests and commands of the load generators, the servers' code, and the versions.

    Return an empty list for a run that measured the user's own API.
    """
    if story.tables.manifest.campaign.apis:
        return []
    rows: list[Mapping[Any, Any]] = []
    if story.load is not None:
        rows.append(story.load)
    if story.case is not None:
        rows.append(story.case.row)
    lines = [*dict.fromkeys(_request_words(row) for row in rows)]
    lines += [_command_words(story, row) for row in rows]
    known = [line for line in lines if line]
    commands = [Code("\n".join(known), "sh")] if known else []
    code = _handlers(story, rows[0]) if rows else []
    return [*commands, *code, _versions(story)]


def _request_words(row: Mapping[Any, Any]) -> str:
    """Return the request of a trial as a shell comment.

    Return an empty text if the trial's workload is unknown.
    """
    workload = workload_of(row)
    if workload is None:
        return ""
    return f"# {row['workload']}: {workload.method} {workload.path} {workload.body}".rstrip()


def _command_words(story: Story, row: Mapping[Any, Any]) -> str:
    """Return the command of a trial's load generator, or an empty text if it is unknown.

    If the trial's load is divided into slices, a comment before the command says how many times the
    command runs in a trial.
    """
    command = story.commands.get(str(row["trial_id"]))
    if command is None or not command.arguments:
        return ""
    slices = row["slices"]
    if not slices > 1:
        return command.words
    turns = (
        f"# A trial runs this command {slices:.0f} times, because the servers are loaded in turn"
    )
    return f"{turns}\n{command.words}"


def _handlers(story: Story, row: Mapping[Any, Any]) -> list[Block]:
    """Return the code that answers a trial's request, for one server of each language.

    The code of at most `MOST_HANDLERS` servers is returned, each with a line that names the server.
    Return an empty list if the trial's workload or the code is unknown.
    """
    workload = workload_of(row)
    if workload is None:
        return []
    under_load = story.sealed[story.sealed["load"] == row["load"]].drop_duplicates("server")
    found = []
    for _, alike in under_load.groupby("language", sort=True):
        handlers = [
            handler(story.public, each["server"], each["language"], workload.path)
            for each in alike.to_dict("records")
        ]
        found += [known for known in handlers if known is not None][:1]
    blocks: list[Block] = []
    for each in found[:MOST_HANDLERS]:
        blocks.append(Paragraph(f"{workload.path} in {each.server}:", "note"))
        blocks.append(Code(each.code, each.language.lower()))
    return blocks


def _versions(story: Story) -> Paragraph:
    """Return the versions of compilers, frameworks, tools, system and database."""
    manifest = story.public
    frameworks = []
    servers = story.sealed.drop_duplicates("server").sort_values("server")
    for row in servers.to_dict("records"):
        version = framework_version(manifest, row["server"], row["framework"])
        if version:
            frameworks.append(f"{row['framework']} {version}")
    versions = {
        "Compilers": captions.compilers(manifest, list(servers["server"])),
        "Frameworks": ", ".join(frameworks) or "unknown",
        "Tools": ", ".join(f"{name} {version}" for name, version in manifest.tools.items()),
        "System": " ".join(filter(None, (manifest.machine.os, manifest.machine.kernel))),
    }
    sentences = [f"{what}: {value}." for what, value in versions.items() if value]
    if story.tables.has_database():
        sentences.append(captions.durability(manifest))
    return Paragraph(" ".join(sentences), "note")


def repetition(story: Story) -> list[Block]:
    """Return the run's name, commit and seed, and the commands that repeat the run.

    The commands are left out if the campaign's name is unknown, or if the run measured the user's
    own API.
    """
    manifest = story.public
    identity = f"This is run {manifest.run_id}{_commit_words(manifest)}, seed {manifest.seed}."
    blocks: list[Block] = [Paragraph(identity)]
    name = manifest.campaign.name
    if name and not story.tables.manifest.campaign.apis:
        until = story.tables.manifest.until
        commands = (
            "make setup",
            f".venv/bin/bench run {name} --until {until}"
            if until
            else f".venv/bin/bench run {name}",
            ".venv/bin/bench publish latest --out post",
        )
        blocks.append(Code("\n".join(commands), "sh"))
    return blocks


def _commit_words(manifest: Manifest) -> str:
    """Return a clause with a run's commit, beginning with a comma.

    Return an empty text if the commit is unknown.
    """
    git = manifest.git
    if git is None or not git.commit:
        return ""
    changes = ", with uncommitted changes" if git.dirty else ""
    return f", made at commit {git.commit[:COMMIT_LETTERS]}{changes}"
