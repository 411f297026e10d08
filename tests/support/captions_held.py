"""Check captions: a caption must consist of one short sentence and a line that names the source."""

import re

MOST_LETTERS = 150
"""A caption's sentence may have at most this many letters, which fill about two lines."""


def sentences(text: str) -> int:
    """Return the number of sentences. A full stop within a number or a name ends no sentence."""
    return len(re.findall(r"[.!?](?=\s|$)", text))


def caption_faults(caption: str) -> list[str]:
    """Return the faults of a caption, as texts."""
    words, *rest = caption.split("\n")
    is_source = len(rest) == 1 and rest[0].startswith("Data: ") and rest[0].endswith(".")
    faults = {
        "not one sentence": sentences(words) != 1,
        "a semicolon": ";" in words,
        "too long": len(words) > MOST_LETTERS,
        "not one line of source": not is_source,
    }
    return [fault for fault, is_there in faults.items() if is_there]
