"""Plants of several operators for what one of torch's does at once, which looking through one step finds."""

from __future__ import annotations

from tests.planted.plant import Plant, Script, slower

_OTHERS = ("INP001", "HST005", "HST006", "OPT001", "CMP017", "CMP020", "CMP021", "CMP030")


def _plant(code: str, fault: str, twin: str, says: str, *, dose: str, slower_by: float) -> Plant:
    codes = ("CMP009", "CMP026", "CMP031")
    return Plant(
        name=f"script-{fault}",
        number="-",
        says=says,
        dose=dose,
        faulty=Script(fault=fault, steps=200),
        control=Script(fault=twin, steps=200),
        fix=Script(fault=twin, steps=200),
        expected=(code,),
        top=(code,),
        must_not=(*_OTHERS, *(one for one in codes if one != code)),
        tried=(code,),
        check=slower(slower_by),
    )


PLANTS = (
    _plant(
        "CMP026",
        "spread-pairs",
        "distances",
        "a script that takes squared distances by spreading rows over prototypes",
        dose="64 rows, 96 prototypes, 128 features",
        slower_by=1.3,
    ),
    _plant(
        "CMP031",
        "one-hot-arithmetic",
        "picked-first",
        "a script that multiplies what it computes for 8,000 topics by labels of one",
        dose="64 rows, 8,000 topics",
        slower_by=1.05,
    ),
    _plant(
        "CMP009",
        "written-scores",
        "one-kernel",
        "a script whose attention is written operator by operator",
        dose="four samples of 384 places, four heads, a causal mask",
        slower_by=1.1,
    ),
)
