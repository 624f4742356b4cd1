"""Values from a notebook: what can only mean one thing is taken as that, anything else is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.here import given_values

CPU = DeviceInfo(name="cpu", kind="cpu", model="a CPU")
OLD = DeviceInfo(name="cuda:0", kind="cuda", model="an old GPU", usable=False, why_not="no kernels for sm_60")


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (8, [8]),
        (np.int64(8), [8]),
        (torch.tensor(8), [8]),
        ([8, 16, 8], [8, 16]),
        (np.array([4, 8]), [4, 8]),
        (torch.tensor([4, 8]), [4, 8]),
        (range(2, 4), [2, 3]),
        ((size for size in (1, 2)), [1, 2]),
    ],
)
def test_sizes(given: object, sizes: list[int]) -> None:
    found = given_values.sizes(given)
    assert found == sizes and {type(size) for size in found} == {int}


@pytest.mark.parametrize("given", [None, "8", b"8", 8.0, True, [], [True], [0], [-1], [8.0], ["8"], {8: 1}, [[8]]])
def test_what_is_no_size(given: object) -> None:
    with pytest.raises(InvalidSettings, match="batch_size"):
        given_values.sizes(given)


@pytest.mark.parametrize(("given", "seconds"), [(None, None), (0, 0.0), (2, 2.0), (np.float32(0.5), 0.5)])
def test_seconds(given: object, seconds: float | None) -> None:
    assert given_values.seconds(given) == seconds


@pytest.mark.parametrize("given", ["10", -1, float("inf"), float("nan"), True, [1], np.float64("nan")])
def test_what_is_no_length_of_time(given: object) -> None:
    with pytest.raises(InvalidSettings, match=r"time_budget_s=.* is no length of time"):
        given_values.seconds(given)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("cpu", ["cpu"]),
        (torch.device("cpu"), ["cpu"]),
        (["cpu", "cpu:0", torch.device("cpu")], ["cpu"]),
        (("cuda:1", "mps"), ["cuda:1", "mps"]),
    ],
)
def test_devices(given: object, names: list[str]) -> None:
    assert given_values.device_names(given) == names


@pytest.mark.parametrize("given", ["gpu", "", 3.5, True, None, [None], [], ["gpu"], {"cpu": 1}])
def test_what_is_no_device(given: object) -> None:
    with pytest.raises(InvalidSettings, match="device"):
        given_values.device_names(given)


def test_a_device_that_cannot_be_used_says_why_and_the_cpu_is_not_looked_for() -> None:
    def never() -> Any:
        raise AssertionError("nobody has to look for devices")

    given_values.check_device("cpu", never)
    with pytest.raises(InvalidSettings, match="device='cuda:0' cannot be used: no kernels for sm_60"):
        given_values.check_device("cuda:0", lambda: (CPU, OLD))
    with pytest.raises(InvalidSettings, match="device='cuda:1': this machine has no such device; usable here: cpu"):
        given_values.check_device("cuda:1", lambda: (CPU, OLD))


def test_only_what_no_configuration_could_run_is_refused() -> None:
    cpu = [Settings(batch_size=8, precision=precision) for precision in ("float32", "float16")]
    with pytest.raises(InvalidSettings, match="float16"):
        given_values.check_settings(cpu, lambda: (CPU,))
    given_values.check_settings(cpu[:1], lambda: (CPU,))


def test_one_text_is_no_row_of_letters() -> None:
    assert given_values.texts("INP001", name="only", such_as="codes") == ["INP001"]
    assert given_values.texts((), name="only", such_as="codes") == []
    for wrong in (3, None, [3]):
        with pytest.raises(InvalidSettings, match=r"only=.*; give codes\."):
            given_values.texts(wrong, name="only", such_as="codes")


def test_folders_and_whole_numbers(tmp_path: Path) -> None:
    assert given_values.folder(tmp_path, name="results_dir") == tmp_path
    assert given_values.whole_number(np.int8(-3), name="seed") == -3
    with pytest.raises(InvalidSettings, match="seed='a' must be a whole number"):
        given_values.whole_number("a", name="seed")
    with pytest.raises(InvalidSettings, match="pairs=0 must be a whole number of at least 1"):
        given_values.whole_number(0, name="pairs", least=1)
    for wrong in (3, None, ""):
        with pytest.raises(InvalidSettings, match=r"results_dir=.* is no folder"):
            given_values.folder(wrong, name="results_dir")


def test_a_long_value_is_cut_and_stands_on_one_line() -> None:
    text = given_values.shown(torch.zeros(100, 100))
    assert "\n" not in text and len(text) < 80
