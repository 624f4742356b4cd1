"""What can be refused of a workload's options and settings before anything of it is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads.options import options_from
from perf_diagnostics.workloads.workload import Workload


@runtime_checkable
class Foresighted(Protocol):
    """A workload that can tell, without building anything, what it would refuse; a workload need not be one."""

    def check_options(self, options: Mapping[str, Json]) -> None:
        """Look at the options once, before all trials; may read local files.

        Raises:
            WorkloadError: An unknown or impossible option.
        """
        ...

    def check_settings(self, settings: Settings, options: Mapping[str, Json]) -> None:
        """Look at one configuration; cheap, and asks no device. The options have been looked at.

        Raises:
            InvalidSettings: A setting this workload cannot honour.
        """
        ...


def check_options(workload: Workload, options: Mapping[str, Json]) -> None:
    """Refuse options that every trial would refuse.

    Of a workload that does not look ahead only the names and types it declares in ``options`` are held against.

    Raises:
        WorkloadError: As the workload says.
    """
    if isinstance(workload, Foresighted):
        workload.check_options(options)
        return
    declared = getattr(workload, "options", None)
    if isinstance(declared, type):
        options_from(declared, options, workload=workload.name)


def check_settings(workload: Workload, settings: Settings, options: Mapping[str, Json]) -> None:
    """Refuse settings that the workload would refuse; nothing is refused for one that does not look ahead.

    Raises:
        InvalidSettings: As the workload says.
    """
    if isinstance(workload, Foresighted):
        workload.check_settings(settings, options)
