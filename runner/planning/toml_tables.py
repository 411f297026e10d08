"""Read TOML tables as pydantic models; errors name the file and the line."""

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
"""A line may have at most this many characters.

tomllib needs a second for a key of this length, and a minute for a key that is ten times as long.
"""


@dataclass(frozen=True)
class Kind:
    """Annotation of a key's type that says in words what the key's value must be.

    Every error about the value contains these words.
    """

    words: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Let pydantic report the words of this kind, whatever is wrong with the value."""
        return core_schema.custom_error_schema(
            handler(source), custom_error_type="kind", custom_error_message=self.words
        )


class TableModel(BaseModel):
    """The possible keys of a table, each with its kind. A key without a default is required."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys: first the table's own keys, then the keys shared with other tables."""
        return [
            key
            for each in cls.mro()
            if each is not TableModel and issubclass(each, TableModel)
            for key in each.__annotations__
        ]

    def given(self) -> dict[str, Any]:
        """Return the values that the file contains, by key. Missing keys are left out."""
        return {key: value for key, value in self if key in self.model_fields_set}


Model = TypeVar("Model", bound=TableModel)


@dataclass(frozen=True)
class Table:
    """One TOML table with its file and header, so that errors can name file and line."""

    path: Path
    text: str
    header: str
    """The table's header as it is written, such as `[build]` or `[[load]]`.

    The header of the file's top level is empty.
    """
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
        """Return the table's values as an instance of `model`.

        Raise LabError for an unknown key, and for a wrong or missing value.
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
            raise self.error(key, f"unknown key {key!r}: the known keys are {known}") from None

    def value(self, key: str, kind: Any) -> Any:
        """Return the value of a key; raise LabError if the value is missing, or is not of `kind`.

        `kind` is a type that is annotated with a `Kind`, such as `Pairs` of toml_files.py.
        """
        if key not in self.values:
            raise self.lacks(key)
        try:
            return _adapter(kind).validate_python(self.values[key])
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise self._wrong({**fault, "loc": (key, *fault["loc"])}) from None

    def lacks(self, key: str) -> LabError:
        """Return the error for a missing key."""
        return self.error(key, f"{self.header or 'the file'} lacks {key!r}: add it")

    def _wrong(self, fault: ErrorDetails) -> LabError:
        key = str(fault["loc"][0])
        if fault["type"] == "missing":
            return self.lacks(key)
        return self.error(key, f"{key} = {self.values[key]!r} must be {fault['msg']}")

    def table(self, name: str) -> Table:
        """Return the table `[name]`, or an empty table if the file has no such table."""
        values = self.values.get(name, {})
        if not isinstance(values, dict):
            raise self.error(name, f"{name} must be a table: [{name}]")
        return Table(self.path, self.text, f"[{name}]", 0, values)


def read_table(path: Path) -> Table:
    """Return the top level of a file; raise LabError if the file cannot be read or is not TOML."""
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
    ) as error:  # both tomllib and Python (for a number with too many digits) raise ValueError
        raise LabError(f"{path}: {error}.") from None


@lru_cache(maxsize=16)
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
