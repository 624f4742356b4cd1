"""A configuration file's values under the flags that were really given."""

from __future__ import annotations

import difflib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perf_diagnostics.errors import InvalidSettings

#: The flags a file may set, by the name they have in it, and what a value may be.
_NUMBER = (int, float)
KNOWN: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("workload", "weights", "dataset", "name"), (str,)),
    **dict.fromkeys(("devices", "batch_sizes", "precisions", "num_workers", "threads"), (list, str, int)),
    **dict.fromkeys(("set", "option"), (list, dict)),
    **dict.fromkeys(("time_budget", "trial_timeout", "half_width"), _NUMBER),
    **dict.fromkeys(("steps", "warmup", "min_steps", "max_steps", "repeats", "seed"), (int,)),
    **dict.fromkeys(("quick", "quiet", "allow_failures", "sentinel", "deep"), (bool,)),
}


#: Flags that leave the number of steps to the spread; ``steps`` fixes it.
STEPS_LEFT_OPEN = ("min_steps", "max_steps", "half_width")


def merged(given: Mapping[str, Any], quick: Mapping[str, Any]) -> dict[str, Any]:
    """Flags over the file they name over ``--quick``'s presets; a flag that was not given never wins over anything.

    Raises:
        InvalidSettings: the file cannot be read or holds something it may not.
    """
    from_file = read(Path(given["config"])) if "config" in given else {}
    if "steps" in given:
        from_file = {name: value for name, value in from_file.items() if name not in STEPS_LEFT_OPEN}
    elif any(name in given for name in STEPS_LEFT_OPEN):
        from_file.pop("steps", None)
    chosen = {**from_file, **given}
    return {**quick, **chosen} if chosen.get("quick") else chosen


def read(path: Path) -> dict[str, Any]:
    """The checked values of a JSON or TOML file, dashes in names read as underscores."""
    try:
        text = path.read_text(encoding="utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise InvalidSettings(f"--config {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise InvalidSettings(f"--config {path} is not {kind}: {error}") from error
    if not isinstance(values, dict):
        raise InvalidSettings(f"--config {path} should hold an object of flags, not {type(values).__name__}.")
    return {name.replace("-", "_"): _checked(name.replace("-", "_"), value, path) for name, value in values.items()}


def _checked(name: str, value: Any, path: Path) -> Any:
    if name not in KNOWN:
        close = difflib.get_close_matches(name, KNOWN, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(KNOWN))}."
        raise InvalidSettings(f"--config {path}: unknown name {name!r}; {hint}")
    kinds = KNOWN[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidSettings(f"--config {path}: {name} should be {wanted}, not {value!r:.80}.")
    if any(isinstance(part, float) and not math.isfinite(part) for part in _parts(value)):
        raise InvalidSettings(f"--config {path}: {name} holds a number that is none (NaN or infinity): {value!r:.80}.")
    if name in ("time_budget", "trial_timeout") and isinstance(value, int | float) and not value > 0:
        raise InvalidSettings(f"--config {path}: {name}={value!r} should be more than 0 seconds.")
    if name in ("devices", "batch_sizes", "precisions", "num_workers", "threads") and not isinstance(value, list):
        return [str(value)]
    if name == "set" and isinstance(value, dict):
        return [f"{key}={','.join(map(str, v if isinstance(v, list) else [v]))}" for key, v in value.items()]
    return value


def _parts(value: Any) -> Iterator[Any]:
    """A value, or all values in it, however deep."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inside is None:
        yield value
        return
    for part in inside:
        yield from _parts(part)
