"""What pages and posts are made of: a list of blocks that `markup` turns into HTML or Markdown."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

NOT_RANKED = "†"  # follows a value that must not be ranked; HTML greys the cell too
DAGGER = (
    f"{NOT_RANKED} A rate of this load, not a rank of this server: the server was not the limit in every trial, or the "
    "rate was set, or the server is there for calibration."
)


@dataclass(frozen=True)
class Heading:
    """A heading; rank 1 is the title of a page."""

    text: str
    rank: int = 2


@dataclass(frozen=True)
class Paragraph:
    """A paragraph. Its kind is empty, or `lead` or `note`: a class of the style sheet."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of sentences; warnings stand out."""

    sentences: tuple[str, ...]
    warn: bool = False

    def __bool__(self) -> bool:
        return bool(self.sentences)


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table of texts below the heading `title`; `about` is what a screen reader says instead.

    A `name` is that of its files in a published folder: NAME.md and NAME.csv.
    """

    frame: pd.DataFrame
    title: str = ""
    about: str = ""
    name: str = ""

    def __bool__(self) -> bool:
        return not self.frame.empty


@dataclass(frozen=True)
class Picture:
    """A figure in the files NAME.svg and NAME.png, and the same with `-dark` behind the name.

    `caption` is a paragraph: what it is about, trials, verdicts, engine and machine. Sizes are CSS pixels; the PNG has
    twice as many. `trial_id` is empty where it is about the run.
    """

    folder: Path
    name: str
    alt: str
    caption: str
    width_px: int
    height_px: int
    trial_id: str = ""


@dataclass(frozen=True)
class Downloads:
    """Where the files with numbers and hashes are that lie beside a post."""


Block = Heading | Paragraph | Bullets | TextTable | Picture | Downloads
"""What is false, as a list without sentences or a table without rows, is on no page."""
