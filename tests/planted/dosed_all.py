"""All doses in made-up records, and which limits have none."""

from __future__ import annotations

from collections.abc import Mapping

from perf_diagnostics.diagnose.rule import thresholds_of
from perf_diagnostics.diagnose.rules import RULES
from tests.planted import (
    dosed,
    dosed_calls,
    dosed_dataflow,
    dosed_late,
    dosed_operators,
    dosed_products,
    dosed_runs,
    dosed_second,
)
from tests.planted.doses import Dose

DOSES: tuple[Dose, ...] = (
    *dosed.DOSES,
    *dosed_late.DOSES,
    *dosed_second.DOSES,
    *dosed_products.DOSES,
    *dosed_runs.DOSES,
    *dosed_calls.DOSES,
    *dosed_dataflow.DOSES,
    *dosed_operators.DOSES,
)

_SECOND = "a second condition of the rule; its first one is dosed"
_LOOK = "decides whether the rule can look at all; above it the rule is unchecked and never fires"
_COUNT = "how much evidence it takes, not how large a fault is"

#: Limits (or whole rules) without a dose, and why.
WITHOUT: Mapping[str, str] = {
    "EXP004 thirds": _SECOND,
    "EXP004 moves": _SECOND,
    "EXP004 describes": _SECOND,
    "EXP004 least_steps": _COUNT,
    "EXP004 trusted_steps": _COUNT,
    "EXP007 explained": _SECOND,
    "EXP008 trend_sentinels": _COUNT,
    "EXP010 compute_part": _SECOND,
    "EXP010 phase_part": _SECOND,
    "EXP010 idle": _SECOND,
    "EXP010 quota": _SECOND,
    "EXP010 switches": "looked at where the kernel counts no waiting; that is dosed",
    "INP001 computing_share": "names the cause; dosed as INP002's",
    "INP001 waiting_share": "names the cause; dosed as INP002's",
    "INP001 workers_per_core": "limits an advice",
    "INP002 waiting_share": "the other side of computing_share",
    "INP003 computing_share": "names the cause; dosed as INP002's",
    "INP003 waiting_share": "names the cause; dosed as INP002's",
    "INP003 workers_per_core": "limits an advice",
    "INP004 ahead": _SECOND,
    "INP004 likeness": _SECOND,
    "INP005 least_passes": _COUNT,
    "INP006 by_waiting": _SECOND,
    "INP007 robbed_share": _LOOK,
    "INP007 crowded_share": _LOOK,
    "INP008 timed_share": "names the cause; its shares are dosed",
    "INP010 waits": "from there on another rule speaks; its shares are dosed",
    "HST001 lead_share": _SECOND,
    "HST001 agreement": _SECOND,
    "HST001 waits_share": "makes a remark of a warning: another cause of the same",
    "HST005 longest_s": _SECOND,
    "HST006 computing_share": "names the cause",
    "HST006 least_s": _SECOND,
    "HST008 anomaly_low": "the size of a gain; the setting is read",
    "HST008 anomaly_high": "the size of a gain; the setting is read",
    "HST010 call_s": "the size of a gain",
    "HST010 least_tensors": _COUNT,
    "HST010 fixed_share": "counted operators surely reach it; see CMP022 warn_share",
    "HST015 room": "decides whether the remedy is tried",
    "CMP004 least_unused": "decides which of two remedies leads",
    "CMP022 small_slice": _SECOND,
    "CMP022 warn_share": "makes a warning of a remark whose own limits are dosed; counted operators surely reach it",
    "CMP023 least_saved": "the size of a gain, by what gathering rows takes",
    "CMP025 most_views": _SECOND,
    "OPT001 at_floor": "clears the rule; see the plant optimizer-at-its-floor",
    "OPT001 above_floor": "names the cause",
    "OPT002": "the setting is read",
    "OPT003": "counted in a profiler window; see tests/diagnose/trace",
    "OPT005 room": _SECOND,
    "OPT006 least_s": _SECOND,
    "OPT006 computing_share": "names the cause",
    "OPT008 least_groups": _COUNT,
    "SWP001 largest_error": "refuses a fit",
    "SWP003 processes": "the scatter that single processes are credited with",
    "SWP003 unknown": "the same, to warn; see tests/diagnose/statistics/test_past_peak.py",
    "SWP004 spreads": _SECOND,
    "SWP004 others": "refuses a fit",
    "CMP002 starved_share": _SECOND,
    "CMP003 least_speedup": "the size of a gain; settings are read",
    "CMP003 product_share": "the size of a gain; settings are read",
    "CMP006 most_share": _LOOK,
    "CMP007": "the size of a gain; settings are read",
    "CMP008": "layers are read",
    "CMP009 long_tokens": "layers are read",
    "CMP001 roof_share": "takes the place of warn_speedup where ceilings were measured; that is dosed",
    "CMP011": "layers are read",
    "CMP012": "layers are read",
    "MEM004 horizon_steps": _SECOND,
    "MEM004 most_pullback": _SECOND,
    "MEM004 settling_steps": _COUNT,
    "MEM005": "an info beside SWP001, whose share is dosed",
    "MEM006 least_faults": _COUNT,
    "MEM007 price": "the price in the gain that least_gain limits; that is dosed",
    "MEM009": "a model of memory, no fault",
    "STB002 least_steps": _COUNT,
    "STB002 explained": "dosed as STB001's",
    "STB003 lost_share": "dosed as STB002's",
    "STB003 explained": "dosed as STB001's",
    "STB004 explained": "dosed as STB001's",
    "STB005 training_steps": "what the share is held against",
    "STB006 explained": "dosed as STB001's",
    "PWR002 lowered": "settings are read",
    "PWR004": "the optimum of a sweep's energies, an info",
    "PWR006 price_per_hour": "a price that the user gives: it limits nothing, and no multiple of 0 is a dose",
    "CPU003 least_periods": _COUNT,
    "CPU004 info_share": "makes a remark; threads and idle cores are counted",
    "CPU005 turns": "names the cause",
    "COM002 uneven": "names the cause",
    "COM004 uneven": "names the cause",
    "COM005 processes": "the scatter that single trainings are credited with",
}


def undosed() -> tuple[str, ...]:
    """The limits of all rules that no dose is about."""
    dosed_limits = {f"{dose.code} {dose.limit}" for dose in DOSES}
    names = (f"{rule.code} {field.name}" for rule in RULES for field in thresholds_of(rule))
    return tuple(name for name in names if name not in dosed_limits)


def not_dosed_yet() -> tuple[str, ...]:
    """Rules with limits of which none has a dose, and for which no reason is given."""
    dosed_rules = {dose.code for dose in DOSES}
    reasoned = {name.split()[0] for name in WITHOUT}
    return tuple(dict.fromkeys(name.split()[0] for name in undosed() if name.split()[0] not in dosed_rules | reasoned))
