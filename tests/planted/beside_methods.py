"""Plants of work that nothing in the training reads, beside work outside of the phases that the method asks for."""

from __future__ import annotations

from tests.planted.plant import Plant, Script, slower

PLANTS = (
    Plant(
        name="script-areas-beside-pseudo-labels",
        number="-",
        says="a script that ranks all that it scored so far in each step, beside pseudo-labels and averaged parameters",
        dose="64 rows of five scores more with each of 150 steps",
        faulty=Script(fault="pseudo-labels-areas", steps=150),
        control=Script(fault="pseudo-labels", steps=300),
        fix=Script(fault="pseudo-labels", steps=300),
        expected=("HST006",),
        top=("STB006", "HST006"),
        must_not=("INP001", "STB004"),
        check=slower(1.3),
    ),
    Plant(
        name="script-evaluations-beside-target-network",
        number="-",
        says="a script that evaluates state by state every ten steps, beside a target network and rollouts",
        dose="3,000 states",
        faulty=Script(fault="target-network-evaluated", steps=200),
        control=Script(fault="target-network", steps=300),
        fix=Script(fault="target-network", steps=300),
        expected=("STB004|HST006",),
        top=("STB004", "HST006"),
        must_not=("INP001", "HST005"),
        check=slower(1.3),
    ),
)
