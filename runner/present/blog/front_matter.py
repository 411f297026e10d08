"""Front matter of a post for generators of static sites."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Site(StrEnum):
    """A generator of static sites, whose front matter a post can have."""

    HUGO = "hugo"
    JEKYLL = "jekyll"
    ZOLA = "zola"


@dataclass(frozen=True)
class PostFacts:
    """What front matter says of a post. `image` is the file of its card for links."""

    title: str
    date: str
    description: str
    tags: tuple[str, ...]
    image: str

    @property
    def _common(self) -> dict[str, Any]:
        return {"title": self.title, "date": self.date, "description": self.description}

    def written_for(self, site: Site | None) -> str:
        """Return the front matter for a site; without one, YAML that most tools read.

        Hugo has `images` for cards, Jekyll `image` (jekyll-seo-tag) and a layout. Zola reads TOML,
        with tags as a taxonomy and what it does not know itself below `extra`.
        """
        match site:
            case Site.HUGO:
                return _yaml(self._common | {"tags": self.tags, "images": [self.image]})
            case Site.JEKYLL:
                layout = {"layout": "post"}
                return _yaml(layout | self._common | {"tags": self.tags, "image": self.image})
            case Site.ZOLA:
                return _toml(self._common, {"tags": self.tags}, {"image": self.image})
            case None:
                return _yaml(self._common | {"tags": self.tags, "image": self.image})


def _yaml(facts: Mapping[str, Any]) -> str:
    """Return YAML, which includes the strings and lists of JSON."""
    lines = (f"{name}: {_json(value)}" for name, value in facts.items() if value)
    return "\n".join(("---", *lines, "---"))


def _toml(facts: Mapping[str, Any], taxonomies: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """Return TOML, whose strings and lists are those of JSON; a date has no quotes."""
    lines = [
        f"{name} = {value if name == 'date' else _json(value)}"
        for name, value in facts.items()
        if value
    ]
    for table, values in {"taxonomies": taxonomies, "extra": extra}.items():
        lines += ["", f"[{table}]", *(f"{name} = {_json(value)}" for name, value in values.items())]
    return "\n".join(("+++", *lines, "+++"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
