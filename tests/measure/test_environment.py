"""The record of where a trial ran: complete, without names or secrets, and never a reason to fail."""

import dataclasses
import importlib.metadata
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from perf_diagnostics.measure import environment
from perf_diagnostics.measure.boards.boards import Board, PowerKind
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.environment import capture, usable_cores, with_threads_of_now
from perf_diagnostics.measure.privacy import Person
from perf_diagnostics.records import Environment, Gap
from tests.measure.kernel_files import VERSION_1, VERSION_2, machine

MACHINE = {
    **VERSION_2,
    "/etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n',
    "/proc/cpuinfo": "model name\t: Intel(R) Xeon(R) CPU @ 2.20GHz\nflags\t\t: fpu avx2 hypervisor\n",
    "/proc/meminfo": "MemTotal: 32000 kB\n",
    "/proc/pressure/cpu": "some avg10=12.50 avg60=1.00 total=5\nfull avg10=0.00 avg60=0.00 total=0\n",
    "/proc/pressure/memory": "some avg10=0.25 avg60=0.00 total=1\nfull avg10=0.10 avg60=0.00 total=1\n",
    "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "/sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
    "/sys/devices/system/cpu/cpu10/cpufreq/scaling_governor": "powersave\n",
    "/sys/fs/cgroup/cpu.max": "150000 100000\n",
    "/sys/fs/cgroup/memory.max": "16384000\n",
    "/sys/fs/cgroup/cpu.stat": "nr_periods 50\nnr_throttled 20\nthrottled_usec 1300\n",
}


def checkout(folder: Path) -> str:
    """A git checkout with one commit and a clean file; gives the commit."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    folder.mkdir(exist_ok=True)
    git("init", "-q")
    (folder / "model.py").write_text("layers = 2\n")
    git("add", "model.py")
    git("commit", "-qm", "first")
    return git("rev-parse", "HEAD").strip()


def signals(found: Environment) -> set[str]:
    return {gap.signal for gap in found.gaps}


def test_a_machine_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.os, "getloadavg", lambda: (0.0, 0.5, 2.25), raising=False)
    found = capture(root=machine(tmp_path, MACHINE))
    expected = {
        "cpu_model": "Intel(R) Xeon(R) CPU @ 2.20GHz",
        "os_release": "Ubuntu 22.04.4 LTS",
        "psi_cpu_some_avg10": 12.5,
        "psi_cpu_full_avg10": 0.0,  # measured, and zero
        "psi_memory_some_avg10": 0.25,
        "psi_memory_full_avg10": 0.1,
        "governor": "performance, powersave",
        "virtualised": True,
        "bfloat16_units": False,
        "load_1min": 0.0,
        "load_15min": 2.25,
    }
    assert {name: found.host[name] for name in expected} == expected
    assert not signals(found) & {"psi", "governor", "virtualised", "bfloat16_units", "load", "host"}


def test_limits_come_from_the_control_groups(tmp_path: Path) -> None:
    found = capture(root=machine(tmp_path, MACHINE))
    assert found.limits["cgroup_cpu_quota_cores"] == 1.5
    assert found.limits["cgroup_cpu_periods"] == 50
    assert found.limits["cgroup_cpu_throttled_periods"] == 20
    assert found.limits["cgroup_cpu_throttled_usec"] == 1300
    assert found.limits["memory_limit_bytes"] == 16_384_000


def test_what_a_bare_machine_hides_is_a_gap_and_never_a_zero(tmp_path: Path) -> None:
    found = capture(root=machine(tmp_path, {"/proc/meminfo": "MemTotal: 32000 kB\n"}))
    assert {"psi", "governor", "virtualised", "bfloat16_units"} <= signals(found)
    assert "governor" not in found.host
    assert not [name for name in found.host if name.startswith("psi")]
    assert (found.host["os_release"], found.limits["cgroup_cpu_quota_cores"]) == (None, None)
    assert found.limits["cgroup_cpu_throttled_usec"] is None
    assert found.limits["memory_limit_bytes"] == 32_768_000


def test_version_1_throttling_is_told_in_microseconds(tmp_path: Path) -> None:
    stat = "nr_periods 7\nnr_throttled 2\nthrottled_time 5123456\n"
    root = machine(tmp_path, {**VERSION_1, "/sys/fs/cgroup/cpu,cpuacct/cpu.stat": stat})
    assert capture(root=root).limits["cgroup_cpu_throttled_usec"] == 5123
    never = machine(tmp_path / "never", {**VERSION_2, "/sys/fs/cgroup/cpu.stat": "throttled_usec 0\n"})
    assert capture(root=never).limits["cgroup_cpu_throttled_usec"] == 0


def test_usable_cores_are_affinity_cut_by_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for quota, cores in (("150000 100000", 2), ("50000 100000", 1), ("1600000 100000", 8), ("max 100000", 8)):
        root = machine(tmp_path, {**VERSION_2, "/sys/fs/cgroup/cpu.max": f"{quota}\n"})
        assert usable_cores(root=root) == cores


def test_python_and_the_libraries_that_are_installed(tmp_path: Path) -> None:
    import numpy
    import psutil

    found = capture(root=tmp_path).python
    assert found["version"] == ".".join(map(str, sys.version_info[:3]))
    assert (found["numpy"], found["psutil"]) == (numpy.__version__, psutil.__version__)
    assert "deepspeed" not in found
    assert "/" not in str(found["executable"])


def test_versions_are_those_that_python_tells_of_installed_libraries() -> None:
    told = {library: environment._version(library) for library in environment.LIBRARIES}
    installed = {one.metadata["Name"].lower() for one in importlib.metadata.distributions()}
    here = {library for library in environment.LIBRARIES if library in installed}
    assert {"torch", "numpy", "psutil"} <= here
    assert {library: told[library] for library in here} == {one: importlib.metadata.version(one) for one in here}


@pytest.mark.parametrize(
    ("file", "content", "version"),
    [
        (
            "made_up-1.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: made-up\nVersion: 1.2+cpu\n\nVersion: 9\n",
            "1.2+cpu",
        ),
        ("made_up-1.dist-info/METADATA", "Metadata-Version: 2.1\r\nVersion: 3\r\n\r\nText\r\n", "3"),
        ("made_up.egg-info/PKG-INFO", "Name: made-up\nVersion: 0.1rc1\n", "0.1rc1"),
        ("made_up.egg-info", "Name: made-up\nVersion: 0.2\n", "0.2"),  # from before there were folders
    ],
)
def test_the_version_stands_in_the_head_of_a_librarys_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, content: str, version: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_bytes(content.encode())
    monkeypatch.syspath_prepend(tmp_path)
    assert environment._version("made-up") == importlib.metadata.version("made-up") == version
    assert environment._version("never-made-up") is None


def test_recording_imports_neither_torch_nor_nvml_and_says_what_that_hides() -> None:
    code = (
        "import sys, json; from perf_diagnostics.measure.environment import capture; e = capture();"
        "print(json.dumps([sorted({'torch', 'pynvml', 'jinja2'} & set(sys.modules)),"
        " e.python.get('torch'), e.threads, [g.signal for g in e.gaps]]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded, version, threads, gaps = json.loads(out)
    assert loaded == []
    assert version is not None
    assert threads == {"torch_intra_op": None, "torch_inter_op": None}
    assert "torch_build" in gaps


def test_threads_that_were_set_after_the_capture_are_recorded(tmp_path: Path) -> None:
    import torch

    threads = torch.get_num_threads()
    found = capture(root=tmp_path)
    try:
        torch.set_num_threads(threads + 1)
        later = with_threads_of_now(found)
    finally:
        torch.set_num_threads(threads)
    assert later.threads["torch_intra_op"] == threads + 1 != found.threads["torch_intra_op"]
    assert later.python == found.python


def test_an_imported_torch_is_asked_for_its_build_and_threads(tmp_path: Path) -> None:
    import torch

    found = capture(root=tmp_path)
    assert found.threads["torch_intra_op"] == torch.get_num_threads()
    assert found.python["torch_cuda"] == torch.version.cuda
    assert found.python["torch_commit"] == torch.version.git_version
    assert not torch.cuda.is_initialized()
    assert "torch_build" not in signals(found)


def test_the_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    commit = checkout(tmp_path)
    assert capture(folder=tmp_path).git == {"commit": commit, "dirty": False}
    (tmp_path / "notes.txt").write_text("untracked files change no result\n")
    assert capture(folder=tmp_path).git["dirty"] is False
    (tmp_path / "model.py").write_text("layers = 3\n")
    assert capture(folder=tmp_path).git == {"commit": commit, "dirty": True}


def test_outside_a_checkout_git_is_a_gap(tmp_path: Path) -> None:
    found = capture(folder=tmp_path)
    assert found.git == {}
    assert Gap("git", "the current folder is in no git checkout with a commit, or git refuses to read it") in found.gaps


def test_without_git_it_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Gap("git", "git is not installed") in capture(folder=tmp_path).gaps


def test_a_warning_that_was_printed_once_stays_printed_once(tmp_path: Path) -> None:
    def warn() -> None:
        warnings.warn("of the user's own", stacklevel=1)

    with warnings.catch_warnings(record=True) as printed:
        warnings.simplefilter("default")  # once a line, what Python does with a UserWarning
        warn()
        capture(folder=tmp_path)
        warn()
    assert [str(warning.message) for warning in printed] == ["of the user's own"]


def test_a_git_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(30)\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environment, "_GIT_TIMEOUT_S", 0.2)
    assert Gap("git", "git rev-parse took longer than 0.2 s") in capture(folder=tmp_path).gaps


def test_neither_secrets_nor_names_are_anywhere_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, variables = "s3cr3tValue99", {"OMP_NUM_THREADS": "4", "TORCH_HOME": "/home/alice/.cache"}
    variables |= dict.fromkeys(("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "KAGGLE_KEY"), secret)
    person = Person(home="/home/alice", user="alice", host="node-17.cluster")
    monkeypatch.setattr(Person, "here", classmethod(lambda cls: person))
    found = capture(
        command=["python", "/home/alice/train.py", "--hf-token", secret, "--host", "node-17.cluster", "--epochs", "3"],
        variables=variables,
        root=machine(tmp_path, MACHINE),
    )
    text = json.dumps(dataclasses.asdict(found), default=list)
    for hidden in (secret, "alice", "node-17"):
        assert hidden not in text
    assert found.command == {"line": "python ~/train.py --hf-token *** --host <host> --epochs 3"}
    assert found.variables == {"OMP_NUM_THREADS": "4", "TORCH_HOME": "~/.cache"}


def test_tokens_of_the_real_environment_stay_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cr3tValue99")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    found = capture()
    assert found.variables["OMP_NUM_THREADS"] == "3"
    assert "s3cr3tValue99" not in repr(found)


def test_this_process_is_shown_by_its_own_command_line() -> None:
    code = "from perf_diagnostics.measure.environment import capture; print(capture().command['line'])"
    arguments = ["--lr", "0.1", "--token", "s3cr3tValue99"]
    out = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True).stdout
    assert out.startswith(f"{Path(sys.executable).name} -c ")
    assert out.strip().endswith("--lr 0.1 --token ***")


def test_devices_carry_what_the_driver_says_about_their_board(tmp_path: Path) -> None:
    board = Board(
        uuid="GPU-bb", pci_bus_id="0000:5e:00.0", driver="550.54.15", power_limit_w=60.0, power_kind=PowerKind.INSTANT
    )
    cpu = DeviceInfo(name="cpu", kind="cpu", model="Xeon")
    gpu = DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid="bb")
    found = capture(devices=[cpu, gpu], boards=[Board(uuid="GPU-aa", driver="wrong"), board], root=tmp_path).devices
    assert "driver" not in found[0]
    assert (found[1]["driver"], found[1]["power_limit_w"], found[1]["default_power_limit_w"]) == (
        "550.54.15",
        60.0,
        None,
    )
    assert found[1]["power_reading"] == "instantaneous power"


def test_a_record_is_plain_json(tmp_path: Path) -> None:
    gpu = DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid="bb")
    found = capture(devices=[gpu], boards=[Board(uuid="GPU-bb", power_kind=PowerKind.AVERAGE)], root=tmp_path)
    again = json.loads(json.dumps(dataclasses.asdict(found), allow_nan=False))
    assert again["devices"][0]["power_reading"] == "power averaged over 1 s"


def test_a_reader_that_breaks_costs_its_section_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.platform, "release", lambda: 1 / 0)
    found = capture(root=machine(tmp_path, MACHINE))
    assert found.host == {}
    assert Gap("host", "ZeroDivisionError: division by zero") in found.gaps
    assert found.limits["cgroup_cpu_quota_cores"] == 1.5
