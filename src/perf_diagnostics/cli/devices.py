"""``devices``: what this machine could train on, and why not where it could not."""

from __future__ import annotations

import argparse
from typing import Any

from perf_diagnostics.cli.exit_codes import DONE


def add(commands: Any) -> None:
    command = commands.add_parser(
        "devices",
        help="list the devices of this machine",
        description="List what this machine can train on. Each GPU is tried with one small kernel.",
        allow_abbrev=False,
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    import dataclasses
    import json

    from perf_diagnostics.measure.boards.devices import probe_devices

    found = probe_devices()
    if given.json:
        print(json.dumps([dataclasses.asdict(device) for device in found], indent=2))
        return DONE
    for device in found:
        memory = "" if device.memory_bytes is None else f"  {device.memory_bytes / 2**30:.1f} GiB"
        state = "" if device.usable else f"  NOT USABLE: {device.why_not}"
        print(f"{device.name:8} {device.model}{memory}{state}")
    return DONE
