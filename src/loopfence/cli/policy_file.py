"""Reads a policy from a TOML file: Policy fields at top level, `[tools."glob"]` tables for single tools."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from loopfence.errors import ConfigError
from loopfence.policy import Policy

if TYPE_CHECKING:
    from pathlib import Path


def load_policy(path: Path) -> Policy:
    """The policy in the file `path`; ConfigError names the file, and what is wrong in it."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
        return Policy.from_mapping(settings)
    except OSError as error:
        raise ConfigError(f"cannot read the policy {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path} is not TOML: nested too deeply") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
