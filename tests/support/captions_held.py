"""The rule of captions: one short sentence, and a line that names the source."""

import re

MOST_LETTERS = 150
"""About two lines of a figure."""


def sentences(text: str) -> int:
    """The number of sentences; a point in a number or in a name ends none."""
    return len(re.findall(r"[.!?](?=\s|$)", text))


def caption_faults(caption: str) -> list[str]:
    """What breaks the rule in a caption."""
    words, *rest = caption.split("\n")
    is_source = len(rest) == 1 and rest[0].startswith("Data: ") and rest[0].endswith(".")
    faults = {
        "not one sentence": sentences(words) != 1,
        "a semicolon": ";" in words,
        "too long": len(words) > MOST_LETTERS,
        "not one line of source": not is_source,
    }
    return [fault for fault, is_there in faults.items() if is_there]
