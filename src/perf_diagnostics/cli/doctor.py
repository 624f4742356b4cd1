"""``doctor``: what this installation can and cannot do here, and how to mend it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE, GATE_FAILED


def add(commands: Any) -> None:
    command = commands.add_parser(
        "doctor",
        help="check what works on this machine",
        description="Check torch, the devices, the sensors and the report formats. Exit code 3: something that every "
        "run needs does not work.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    import json

    rows = []
    for name, needed, check in CHECKS:
        problem, detail = check()
        state = "ok" if not problem else ("FAIL" if needed else "none")
        rows.append({"check": name, "state": state, "needed": needed, "says": problem or detail})
        if not given.json:
            print(f"{state:4}  {name}: {problem or detail}", flush=True)  # a check may take seconds
    if given.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    return GATE_FAILED if any(row["state"] == "FAIL" for row in rows) else DONE


def _torch() -> tuple[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return "", version("torch")
    except PackageNotFoundError:
        return "not installed: pip install torch", ""


def _trials() -> tuple[str, str]:
    """Start the warm process and one trial in it: what every sweep depends on."""
    import tempfile
    from pathlib import Path

    from perf_diagnostics.errors import PerfDiagnosticsError
    from perf_diagnostics.records import Length, Settings, Trial
    from perf_diagnostics.store.files import codec
    from perf_diagnostics.store.trial_folder import TrialFolder
    from perf_diagnostics.trials.launch.launcher import Request, launcher

    trial = Trial(workload="mlp", settings=Settings(batch_size=8), length=Length.exactly(3))
    launch = launcher()
    with tempfile.TemporaryDirectory() as directory:
        try:
            process = launch.start(Request(codec.encode(trial), directory, None))
            code = process.wait(120)
            result = TrialFolder(Path(directory)).read_measured()
        except PerfDiagnosticsError as error:
            return str(error), ""
        finally:
            launch.close()
    if code != 0 or result is None:
        return f"a three-step trial ended with exit code {code}", ""
    return "", f"a three-step trial {result.outcome}" + (f": {result.reason}" if result.reason else "")


def _gpu() -> tuple[str, str]:
    from perf_diagnostics.measure.boards.devices import probe_devices

    devices = [device for device in probe_devices() if device.kind != "cpu"]
    if not devices:
        return "torch sees none; trials run on the CPU", ""
    broken = [f"{device.name}: {device.why_not}" for device in devices if not device.usable]
    return "; ".join(broken), ", ".join(f"{device.name} {device.model}" for device in devices)


def _rapl() -> tuple[str, str]:
    from pathlib import Path

    zones = sorted(Path("/sys/class/powercap").glob("*rapl:*/energy_uj"))
    if not zones:
        return "no RAPL counters (a virtual machine, or not Linux); CPU energy is not measured", ""
    try:
        zones[0].read_text()
    except OSError as error:
        return f"RAPL counters cannot be read ({error.strerror}); CPU energy is not measured", ""
    return "", f"{len(zones)} RAPL counters"


def _pdf() -> tuple[str, str]:
    from perf_diagnostics.errors import FormatUnavailable
    from perf_diagnostics.report.formats.pdf import weasyprint_module

    try:
        return "", f"WeasyPrint {weasyprint_module().__version__}"
    except FormatUnavailable as error:
        return str(error), ""


def _results() -> tuple[str, str]:
    import tempfile
    from pathlib import Path

    here = Path("results") if Path("results").is_dir() else Path()
    try:
        with tempfile.TemporaryFile(dir=here):
            return "", str(here.resolve().name) + " can be written"
    except OSError as error:
        return f"{here} cannot be written: {error.strerror}", ""


CHECKS: tuple[tuple[str, bool, Callable[[], tuple[str, str]]], ...] = (
    ("torch", True, _torch),
    ("isolated trials", True, _trials),
    ("results folder", True, _results),
    ("GPU", False, _gpu),
    ("CPU energy", False, _rapl),
    ("PDF reports", False, _pdf),
)
