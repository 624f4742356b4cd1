"""Plants of several operators for what one of torch's does at once, which looking through one step finds."""

from __future__ import annotations

from tests.planted.plant import Plant, Script, slower

_OTHERS = ("INP001", "HST005", "HST006", "OPT001", "CMP017", "CMP020", "CMP021", "CMP030")


def _plant(
    code: str, fault: str, twin: str, says: str, *, dose: str, steps: tuple[int, int], slower_by: float
) -> Plant:
    # Steps of the fault and of its twin: three seconds of each, for a step is looked through after the first one.
    codes = ("CMP009", "CMP026", "CMP031")
    return Plant(
        name=f"script-{fault}",
        number="-",
        says=says,
        dose=dose,
        faulty=Script(fault=fault, steps=steps[0]),
        control=Script(fault=twin, steps=steps[1]),
        fix=Script(fault=twin, steps=steps[1]),
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
        dose="64 rows, 192 prototypes, 128 features",
        steps=(500, 1200),
        slower_by=1.3,
    ),
    _plant(
        "CMP031",
        "one-hot-arithmetic",
        "picked-first",
        "a script that multiplies what it computes for 8,000 topics by labels of one",
        dose="64 rows, 8,000 topics",
        steps=(300, 600),
        slower_by=1.05,
    ),
    _plant(
        "CMP009",
        "written-scores",
        "one-kernel",
        "a script whose attention is written operator by operator",
        dose="four samples of 384 places, four heads, a causal mask",
        steps=(100, 160),
        slower_by=1.1,
    ),
)
