"""Every rule about traces, in reading order; those with a code of their own have a manual page of their own."""

from __future__ import annotations

from perf_diagnostics.diagnose.trace.rule import AnyTraceRule
from perf_diagnostics.diagnose.trace.rules.cmp002_computing import Computing
from perf_diagnostics.diagnose.trace.rules.cmp003_precision import SinglePrecision
from perf_diagnostics.diagnose.trace.rules.com001_communication import CommunicationBound
from perf_diagnostics.diagnose.trace.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.trace.rules.exp001_few_steps import FewMarkedSteps
from perf_diagnostics.diagnose.trace.rules.exp006_cold_start import ColdStart
from perf_diagnostics.diagnose.trace.rules.hst001_launch_bound import LaunchBound
from perf_diagnostics.diagnose.trace.rules.hst002_synchronisation import SynchronisationTax
from perf_diagnostics.diagnose.trace.rules.hst003_allocation import AllocationChurn
from perf_diagnostics.diagnose.trace.rules.hst004_host_work import HostWork
from perf_diagnostics.diagnose.trace.rules.hst009_unexplained import UnexplainedGap
from perf_diagnostics.diagnose.trace.rules.inp001_waiting_for_input import WaitingForInput
from perf_diagnostics.diagnose.trace.rules.xfr001_exposed_copies import ExposedCopies
from perf_diagnostics.diagnose.trace.rules.xfr002_pageable import PageableCopies

TRACE_RULES: tuple[AnyTraceRule, ...] = (
    FewMarkedSteps(),
    ColdStart(),
    WaitingForInput(),
    ExposedCopies(),
    PageableCopies(),
    LaunchBound(),
    SynchronisationTax(),
    AllocationChurn(),
    HostWork(),
    UnexplainedGap(),
    CommunicationBound(),
    Straggler(),
    Computing(),
    SinglePrecision(),
)
