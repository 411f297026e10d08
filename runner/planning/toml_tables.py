"""TOML tables read as pydantic models, and errors that name the file and the line."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from runner.model import LabError

LONGEST_LINE = 10_000
"""A key of as many parts takes tomllib a second, and of ten times as many a minute."""


@dataclass(frozen=True)
class Kind:
    """What a value must be, in words: an annotation, whose words every error of the value has."""

    words: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Tell pydantic to say the words, whatever is wrong with the value or a part of it."""
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="kind", custom_error_message=self.words
        )


class TableModel(BaseModel):
    """The keys that a table may have, each with its kind; those without a default must be given."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys, those of the table itself before those that it shares with others."""
        return [
            key
            for each in cls.mro()
            if each is not TableModel and issubclass(each, TableModel)
            for key in each.__annotations__
        ]

    def given(self) -> dict[str, Any]:
        """Return the values that the file has, by key; defaults are left out."""
        return {key: value for key, value in self if key in self.model_fields_set}


Model = TypeVar("Model", bound=TableModel)


@dataclass(frozen=True)
class Table:
    """One TOML table together with where it came from, so that errors can name file and line."""

    path: Path
    text: str
    header: str
    """The table's header as written, such as `[build]` or `[[load]]`; empty for the top level."""
    nth: int
    values: dict[str, Any]

    def error(self, key: str, message: str) -> LabError:
        """Return an error that names the file and the line of `key`."""
        return LabError(f"{self.path}, line {self._line(key)}: {message}.")

    def _line(self, key: str) -> int:
        lines = self.text.splitlines()
        headers = (
            [i for i, line in enumerate(lines) if line.strip().startswith(self.header)]
            if self.header
            else []
        )
        start = headers[self.nth] + 1 if self.nth < len(headers) else 0
        for number in range(start, len(lines)):
            if re.match(rf"\s*{re.escape(key)}\s*=", lines[number]):
                return number + 1
            if number > start and lines[number].lstrip().startswith("["):
                break
        return max(start, 1)

    def read(self, model: type[Model]) -> Model:
        """Return the values as the model has them.

        LabError for a key that it does not have, and for a value that is wrong or lacking.
        """
        try:
            return model.model_validate(self.values)
        except ValidationError as error:
            faults = error.errors(include_url=False)
            unknown = [fault for fault in faults if fault["type"] == "extra_forbidden"]
            if not unknown:
                raise self._wrong(faults[0]) from None
            key = str(unknown[0]["loc"][0])
            known = ", ".join(model.keys())
            raise self.error(key, f"unknown key {key!r}; known here are {known}") from None

    def value(self, key: str, kind: Any) -> Any:
        """Return one value as its kind, an annotated type; LabError if it is wrong or lacking."""
        if key not in self.values:
            raise self.lacks(key)
        try:
            return _adapter(kind).validate_python(self.values[key])
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise self._wrong({**fault, "loc": (key, *fault["loc"])}) from None

    def lacks(self, key: str) -> LabError:
        """Return the error of a key that must be given and is not."""
        return self.error(key, f"{self.header or 'the file'} lacks {key!r}")

    def _wrong(self, fault: ErrorDetails) -> LabError:
        key = str(fault["loc"][0])
        if fault["type"] == "missing":
            return self.lacks(key)
        return self.error(key, f"{key} = {self.values[key]!r} is not {fault['msg']}")

    def table(self, name: str) -> Table:
        """Return the table `[name]`, empty if there is none."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, f"{name} must be a table: [{name}]")
        return Table(self.path, self.text, f"[{name}]", 0, values)


def read_table(path: Path) -> Table:
    """Return a file's top level; LabError if it cannot be read or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        if any(len(line) > LONGEST_LINE for line in text.splitlines()):
            raise ValueError(f"a line has more than {LONGEST_LINE:,} characters")
        return Table(path, text, "", 0, tomllib.loads(text))
    except FileNotFoundError:
        raise LabError(f"{path} does not exist.") from None
    except UnicodeDecodeError:
        raise LabError(f"{path} is not UTF-8 text.") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # what tomllib raises is a ValueError, and so is a number too long
        raise LabError(f"{path}: {error}.") from None


@lru_cache(maxsize=16)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
