"""Write the front matter of a post, in the format that a static site generator expects."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Site(StrEnum):
    """A static site generator for which front matter can be written."""

    HUGO = "hugo"
    JEKYLL = "jekyll"
    ZOLA = "zola"


@dataclass(frozen=True)
class PostFacts:
    """The facts about a post that go into its front matter.

    `image` is the file of the post's card, which other sites show beside a link to the post.
    """

    title: str
    date: str
    description: str
    tags: tuple[str, ...]
    image: str

    @property
    def _common(self) -> dict[str, Any]:
        return {"title": self.title, "date": self.date, "description": self.description}

    def written_for(self, site: Site | None) -> str:
        """Return the front matter for a static site generator.

        If `site` is None, return YAML that most generators can read. Hugo expects the card in the
        key `images`. Jekyll needs a layout, and its plugin jekyll-seo-tag expects the card in the
        key `image`. Zola reads TOML. For Zola, tags must be in the table `taxonomies`, and keys
        that Zola does not define must be in the table `extra`.
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
    """Return facts as YAML front matter.

    Strings and lists are written as JSON, which is valid YAML.
    """
    lines = (f"{name}: {_json(value)}" for name, value in facts.items() if value)
    return "\n".join(("---", *lines, "---"))


def _toml(facts: Mapping[str, Any], taxonomies: Mapping[str, Any], extra: Mapping[str, Any]) -> str:
    """Return facts as TOML front matter, with the tables `taxonomies` and `extra`.

    Strings and lists are written as JSON, which is valid TOML. A date has no quotes in TOML.
    """
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
