"""Names of the subjects of imported load tests, and ids of trials made from these names.

A subject is the server that was loaded, or one version of this server. The user chooses the name of
the subject.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from runner.model import LabError

LONGEST = 60  # highest number of characters of a name
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]+")


def subject_name(text: str) -> str:
    """Return the name of a subject unchanged, if the name is valid.

    `v1.4`, `main@3f2a1c` and `next release` are valid names. All printable characters are allowed,
    because the pages of reports escape special characters, and ids of trials do not contain them.
    Raise LabError if the name is empty or too long, is not printable, or has a space at an end.
    """
    if not 0 < len(text) <= LONGEST or not text.isprintable() or text != text.strip():
        raise LabError(
            f"The name {text!r} is not valid: use 1 to {LONGEST} printable characters, without a "
            "space at either end."
        )
    return text


def trial_ids(subjects: Sequence[str]) -> list[str]:
    """Return an id for the trial of each file, such as `v1-4-001` for the first file of `v1.4`.

    `subjects` contains the subject of each file. The ids are used as names of folders. So the ids
    consist of letters, digits, `-` and `_`, and no two ids are equal.
    """
    stems: dict[str, str] = {}
    for subject in dict.fromkeys(subjects):
        stems[subject] = _free_stem(subject, {each.lower() for each in stems.values()})
    return [
        f"{stems[subject]}-{1 + list(subjects[:place]).count(subject):03d}"
        for place, subject in enumerate(subjects)
    ]


def _free_stem(subject: str, taken: set[str]) -> str:
    """Return the prefix of a subject's trial ids.

    The prefix is made from the subject's name. `taken` contains the prefixes of other subjects, in
    lower case. If the prefix is among them, it gets a number, counted from 2, that makes it unique.
    """
    stem = _NOT_IN_IDS.sub("-", subject).strip("-_") or "subject"
    number = 1
    free = stem
    while free.lower() in taken:
        number += 1
        free = f"{stem}-{number}"
    return free
