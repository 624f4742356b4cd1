"""Names of workloads: listed without torch, found, and told when wrong."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.workloads import find, names, options_of, registry

BUILT_IN = ["distilbert-sst2", "mlp", "tiny-transformer", "faulty"]

OUTSIDE = """
class Other:
    name = "other"
    says = "of another package"
    def build(self, settings, *, options, seed):
        raise NotImplementedError
ready = Other()
def factory():
    return Other()
class Half:
    name = "half"
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install entry points of another package: ``installed(other="outside_workloads:ready")``."""
    (tmp_path / "outside_workloads.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "outside_workloads", raising=False)

    def install(**points: str) -> None:
        found = EntryPoints(EntryPoint(n, value, registry.ENTRY_POINTS) for n, value in points.items())
        monkeypatch.setattr(registry, "_entry_points", lambda: found)

    return install


def test_names_are_listed_and_looked_up_without_torch() -> None:
    program = (
        "import sys, perf_diagnostics.workloads as w; print([n for n, _ in w.names()]);"
        "heavy = {'torch', 'transformers', 'tokenizers'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(BUILT_IN)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_built_in_workload_says_what_the_list_says(name: str) -> None:
    workload = find(name)
    assert workload.name == name
    assert dict(names())[name] == workload.says
    assert "\n" not in workload.says


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_option_of_a_built_in_workload_is_explained(name: str) -> None:
    texts = options_of(find(name))
    assert texts
    assert all(len(text.says.split()) >= 2 for text in texts)


def test_the_options_of_an_mlp_are_told_with_their_defaults() -> None:
    told = {text.name: text.default for text in options_of(find("mlp"))}
    assert told == {
        "width": 512,
        "depth": 4,
        "features": 256,
        "classes": 10,
        "samples": 4096,
        "optimizer": "sgd",
    }


def test_a_misspelt_name_is_told_with_its_close_match_and_all_names() -> None:
    with pytest.raises(
        WorkloadError, match=r"no workload 'distilbert-sst'; did you mean 'distilbert-sst2'\? known"
    ) as e:
        find("distilbert-sst")
    assert all(name in str(e.value) for name in BUILT_IN)


def test_an_untrusted_name_is_shown_escaped_and_cut() -> None:
    with pytest.raises(WorkloadError) as caught:
        find("\x1b[31m" + "x" * 5000)
    assert "\x1b" not in str(caught.value)
    assert "\\x1b[31mxxx" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("attribute", ["ready", "factory", "Other"])
def test_an_installed_workload_is_an_instance_a_factory_or_a_class(installed, attribute: str) -> None:
    installed(other=f"outside_workloads:{attribute}")
    assert find("other").says == "of another package"
    assert ("other", f"installed: outside_workloads:{attribute}") in names()
    assert options_of(find("other")) == ()


def test_a_built_in_name_cannot_be_taken_over(installed) -> None:
    installed(mlp="outside_workloads:ready")
    assert type(find("mlp")).__module__ == "perf_diagnostics.workloads.mlp"
    assert [n for n, _ in names()].count("mlp") == 1


@pytest.mark.parametrize("value", ["no_such_module:x", "outside_workloads:absent"])
def test_an_installed_workload_that_does_not_load_is_told(installed, value: str) -> None:
    installed(broken=value)
    with pytest.raises(WorkloadError, match=f"'broken' is installed as {value} but cannot be loaded"):
        find("broken")


def test_an_installed_workload_that_lacks_a_part_is_told(installed) -> None:
    installed(half="outside_workloads:Half")
    with pytest.raises(WorkloadError, match="lacks says, build"):
        find("half")
