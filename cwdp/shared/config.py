"""Files of settings: TOML or JSON into typed structs, with errors that a person can act on."""

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from cwdp.errors import ConfigError

_T = TypeVar("_T", bound=Struct)


def read_toml(path: Path, kind: type[_T]) -> _T:
    """Read a configuration file whose keys are the fields of `kind` (a struct with `forbid_unknown_fields`).

    Raises:
        ConfigError: the file is missing, is not TOML, or has an unknown key or a wrong type.
    """
    return _converted(path, kind, tomllib.loads, "TOML", "create it, or name another file with --config")


def read_document(path: Path, kind: type[_T]) -> _T:
    """Read a file given as an argument: JSON where its name ends so, otherwise TOML; else as `read_toml`."""
    if path.suffix == ".json":
        return _converted(path, kind, json.loads, "JSON", "name a file that is there")
    return _converted(path, kind, tomllib.loads, "TOML", "name a file that is there")


def _converted(
    path: Path, kind: type[_T], parse: Callable[[str], Any], language: str, missing_hint: str
) -> _T:
    try:
        return msgspec.convert(parse(path.read_text(encoding="utf-8")), kind)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", missing_hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file", f"it must be {language} in UTF-8") from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        raise ConfigError(f"{path} is not valid {language}: {error}", "correct that line") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {error}", _hint(str(error), kind)) from error


def _hint(message: str, kind: type[Struct]) -> str:
    """What is allowed where msgspec's message says the error is (`... - at `$.section.key``)."""
    place, section = "the top level", kind
    for name in re.findall(r"\.(\w+)", message.rpartition(" - at ")[2]):
        fields = {field.name: field.type for field in msgspec.structs.fields(section)}
        inner = _struct_in(fields.get(name))
        if inner is not None:
            place, section = f"[{name}]", inner
    known = ", ".join(section.__struct_fields__)
    if "unknown field" in message:
        return f"known keys of {place}: {known}"
    if "missing required field" in message:
        return f"add it; keys of {place}: {known}"
    return f"correct the value; keys of {place}: {known}"


def _struct_in(annotation: Any) -> type[Struct] | None:
    """The struct that an annotation such as `Annotated[list[Key], ...]` or `Key | None` holds."""
    arguments = get_args(annotation)
    if arguments:
        return next((found for found in map(_struct_in, arguments) if found), None)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Struct) else None
