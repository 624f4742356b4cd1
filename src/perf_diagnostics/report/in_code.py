"""How a change is written: as settings of a sweep, or as what a script of one's own says for it."""

from __future__ import annotations

from collections.abc import Mapping

from perf_diagnostics.diagnose.finding import Diagnosis, Remedy, Tried
from perf_diagnostics.records import Json
from perf_diagnostics.report.words import change_in_code

#: Settings that are arguments of a DataLoader, under the same names.
_OF_THE_LOADER = frozenset({"num_workers", "persistent_workers", "pin_memory", "prefetch_factor"})


def in_code(remedy: Remedy | Tried, diagnosis: Diagnosis) -> str:
    """The change that carries a remedy out, in code; "" where its words have to do."""
    setting = diagnosis.setting_of(remedy)
    return change_in_code(setting) if setting else _in_a_script(remedy.change)


def _in_a_script(change: Mapping[str, Json]) -> str:
    """What a script says for settings that it gives to one place.

    >>> _in_a_script({"num_workers": 8, "persistent_workers": True})
    'DataLoader(…, num_workers=8, persistent_workers=True)'
    >>> _in_a_script({"optimizer_implementation": "fused"}), _in_a_script({"batch_size": 8})
    ('fused=True', '')
    """
    if change and change.keys() <= _OF_THE_LOADER:
        return f"DataLoader(…, {change_in_code(change)})"
    match dict(change):
        case {"optimizer_implementation": "fused" | "foreach" as name, **rest} if not rest:
            return f"{name}=True"
        case {"threads": int(count), **rest} if not rest:
            return f"torch.set_num_threads({count})"
        case {"compile_mode": "default", **rest} if not rest:
            return "model = torch.compile(model)"
        case {"compile_mode": str(mode), **rest} if not rest:
            return f"model = torch.compile(model, mode={mode!r})"
    return ""
