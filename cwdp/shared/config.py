"""Configuration files: TOML into typed structs, with errors that a person can act on."""

import tomllib
from pathlib import Path
from typing import TypeVar

import msgspec

from cwdp.errors import ConfigError

_T = TypeVar("_T", bound=msgspec.Struct)


def read_toml(path: Path, kind: type[_T]) -> _T:
    """Read a file whose keys are the fields of `kind` (a struct with `forbid_unknown_fields`).

    Raises:
        ConfigError: the file is missing, is not TOML, or has an unknown key or a wrong type.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path}: {error.strerror}", "name another file, or create it"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file", "it must be TOML") from error
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        known = ", ".join(msgspec.structs.fields(kind)[i].name for i in range(len(kind.__struct_fields__)))
        raise ConfigError(f"{path}: {error}", f"known keys: {known}") from error
