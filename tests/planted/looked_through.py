"""Plants of work that need not be done, or not operator by operator, which looking through one step finds."""

from __future__ import annotations

from tests.planted.plant import Plant, Script, slower

_OTHERS = ("INP001", "HST005", "HST006", "OPT001", "CMP017", "CMP020", "CMP021")

#: What following the data through one step finds.
_NEEDLESS = ("CMP027", "CMP028", "CMP029", "CMP030", "CMP032", "CMP033", "CMP038", "HST014")

#: Several operators for what one of torch's does at once, and what they are not to be taken for.
_COMPOSED = ("CMP009", "CMP026", "CMP031", "CMP030", "CMP032", "CMP034", "CMP039", "CMP040")

#: What generates lies outside of all phases, as HST006 may say.
_GENERATES = tuple(one for one in _OTHERS if one != "HST006")


def _plant(
    codes: tuple[str, ...],
    code: str,
    fault: str,
    twin: str,
    says: str,
    *,
    dose: str,
    steps: tuple[int, int],
    slower_by: float,
    control: tuple[str, int] | None = None,
    others: tuple[str, ...] = _OTHERS,
) -> Plant:
    # Steps of the fault and of its twin: three seconds of each, for a step is looked through after the first one.
    return Plant(
        name=f"script-{fault}",
        number="-",
        says=says,
        dose=dose,
        faulty=Script(fault=fault, steps=steps[0]),
        control=Script(fault=twin, steps=steps[1]) if control is None else Script(fault=control[0], steps=control[1]),
        fix=Script(fault=twin, steps=steps[1]),
        expected=(code,),
        top=(code,),
        must_not=(*others, *(one for one in codes if one != code)),
        tried=(code,),
        check=slower(slower_by),
    )


PLANTS = (
    _plant(
        _NEEDLESS,
        "CMP027",
        "constants-anew",
        "constants-kept",
        "a script whose model makes its table of sines in each forward",
        dose="2,048 by 1,024 numbers",
        steps=(250, 2000),
        slower_by=1.2,
    ),
    _plant(
        _NEEDLESS,
        "CMP028",
        "merged-weights",
        "weights-beside",
        "a script whose adapters are merged into the weights in each forward",
        dose="three weights of 512 by 512, rank 8, for 64 rows",
        steps=(350, 600),
        slower_by=1.1,
    ),
    _plant(
        _NEEDLESS,
        "CMP029",
        "idle-head",
        "one-head",
        "a script whose model has a second head, the output of which nobody takes",
        dose="512 by 4,000",
        steps=(450, 2200),
        slower_by=1.2,
    ),
    _plant(
        _NEEDLESS,
        "CMP030",
        "encoded-twice",
        "encoded-once",
        "a script whose model calls its encoder for each of two terms",
        dose="the encoder twice",
        steps=(500, 900),
        slower_by=1.1,
    ),
    _plant(
        _NEEDLESS,
        "CMP032",
        "kernel-anew",
        "kernel-kept",
        "a script whose model computes the kernel of points that never move in each forward",
        dose="512 points of 64 numbers",
        steps=(700, 1400),
        slower_by=1.2,
    ),
    _plant(
        _NEEDLESS,
        "CMP038",
        "watched-each",
        "watched-seldom",
        "a script whose model sorts its features in each forward, for a log",
        dose="64 rows of 2,048",
        steps=(400, 1300),
        slower_by=1.2,
    ),
    _plant(
        _NEEDLESS,
        "HST014",
        "pooled-one-by-one",
        "pooled-at-once",
        "a script whose model weighs the features of each row by itself, in a loop",
        dose="64 rows of 512",
        steps=(450, 2400),
        slower_by=1.5,
    ),
    _plant(
        _NEEDLESS,
        "CMP033",
        "teacher-asked",
        "answers-kept",
        "a script whose frozen teacher is asked for the same rows in each pass; its control augments them",
        dose="layers of 256, 1,024, 1,024 and 10 for 64 rows, 32 batches a pass",
        steps=(700, 1400),
        # The control asks its teacher as well, of rows that are new in each pass: it takes as long, or longer.
        slower_by=0.6,
        control=("teacher-augmented", 700),
    ),
    _plant(
        _COMPOSED,
        "CMP026",
        "spread-pairs",
        "distances",
        "a script that takes squared distances by spreading rows over prototypes",
        dose="64 rows, 192 prototypes, 128 features",
        steps=(500, 1200),
        slower_by=1.3,
    ),
    _plant(
        _COMPOSED,
        "CMP031",
        "one-hot-arithmetic",
        "picked-first",
        "a script that multiplies what it computes for 8,000 topics by labels of one",
        dose="64 rows, 8,000 topics",
        steps=(300, 600),
        slower_by=1.05,
    ),
    _plant(
        _COMPOSED,
        "CMP009",
        "written-scores",
        "one-kernel",
        "a script whose attention is written operator by operator",
        dose="768 places, four heads, a causal mask",
        steps=(100, 160),
        slower_by=1.1,
    ),
    _plant(
        _COMPOSED,
        "CMP034",
        "scores-first",
        "keys-first",
        "a script whose attention has no softmax, and multiplies queries and keys first",
        dose="512 places, four heads of 16",
        steps=(200, 600),
        slower_by=1.3,
    ),
    _plant(
        _COMPOSED,
        "CMP039",
        "written-gelu",
        "called-gelu",
        "a script whose GELU and layer norm are written operator by operator",
        dose="262,144 numbers, 8 and 9 operators, three times",
        steps=(120, 400),
        slower_by=1.5,
    ),
    _plant(
        _COMPOSED,
        "CMP040",
        "full-covariance",
        "independent-normal",
        "a script whose normal distribution has a matrix for what is a diagonal",
        dose="64 matrices of 32 by 32",
        steps=(150, 500),
        slower_by=1.3,
    ),
    _plant(
        _NEEDLESS,
        "CMP035",
        "without-cache",
        "with-cache",
        "a script that generates what it learns from, and computes all earlier tokens again for each",
        dose="24 tokens of 16 rows, one by one",
        steps=(50, 200),
        slower_by=1.3,
        others=_GENERATES,
    ),
    _plant(
        _NEEDLESS,
        "CMP035",
        "forecast-again",
        "forecast-from-state",
        "a script whose recurrent layer reads the whole history again for each position that it forecasts",
        dose="12 positions after 24, one by one, for 32 rows",
        steps=(40, 250),
        slower_by=1.5,
    ),
    _plant(
        _NEEDLESS,
        "CMP036",
        "squares-in-loss",
        "decayed",
        "a script whose loss has the squares of all weights in it, which its optimizer could decay",
        dose="2.8 million weights, 16 rows a step",
        steps=(250, 400),
        slower_by=1.2,
    ),
    _plant(
        _NEEDLESS,
        "CMP037",
        "side-times-zero",
        "side-skipped",
        "a script whose second head has the weight 0 in the loss, and is computed all the same",
        dose="8,000 classes of 512 features, 64 rows a step",
        steps=(150, 1000),
        slower_by=1.5,
    ),
)
