"""What a workload can tell before it is built, and what is asked of one that does not look ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads import Training, find
from perf_diagnostics.workloads.beforehand import Foresighted, check_options, check_settings
from perf_diagnostics.workloads.options import option


@dataclass(frozen=True)
class Options:
    width: int = option(3, "units", least=1)


class Plain:
    """A workload as an installed package may offer one: nothing but the protocol."""

    name = "plain"
    says = "a workload that does not look ahead"

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        raise AssertionError("nothing is built")


class Declaring(Plain):
    options = Options


def test_of_one_that_does_not_look_ahead_only_declared_options_are_checked() -> None:
    check_options(Plain(), {"whatever": 1})
    check_options(Declaring(), {"width": 4})
    with pytest.raises(WorkloadError, match="did you mean 'width'"):
        check_options(Declaring(), {"widht": 4})
    check_settings(Plain(), Settings(batch_size=10**9), {})


@pytest.mark.parametrize("name", ["distilbert-sst2", "mlp", "tiny-transformer", "faulty"])
def test_what_is_built_in_looks_ahead(name: str) -> None:
    assert isinstance(find(name), Foresighted)
    with pytest.raises(WorkloadError, match="no option 'widht'"):
        check_options(find(name), {"widht": 4})
