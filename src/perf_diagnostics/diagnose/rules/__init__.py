"""Every rule, in reading order: first whether the experiment can be trusted, then where its time goes."""

from __future__ import annotations

from perf_diagnostics.diagnose.rule import Rule
from perf_diagnostics.diagnose.rules.cmp001_poor_speedup import PoorSpeedup
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.diagnose.rules.cmp004_padding_waste import PaddingWaste
from perf_diagnostics.diagnose.rules.exp001_too_few_steps import TooFewSteps
from perf_diagnostics.diagnose.rules.exp002_failed_trials import FailedTrials
from perf_diagnostics.diagnose.rules.exp003_phases_do_not_close import PhasesDoNotClose
from perf_diagnostics.diagnose.rules.exp004_unsteady import Unsteady
from perf_diagnostics.diagnose.rules.exp005_non_finite_loss import NonFiniteLoss
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.mem001_memory_pressure import MemoryPressure
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import OptimizerHeavy
from perf_diagnostics.diagnose.rules.stb001_variable_shape import VariableShape
from perf_diagnostics.diagnose.rules.swp001_overhead_bound import OverheadBound
from perf_diagnostics.diagnose.rules.swp002_throughput_knee import ThroughputKnee
from perf_diagnostics.diagnose.rules.swp003_past_the_peak import PastThePeak
from perf_diagnostics.diagnose.rules.xfr001_transfer_bound import TransferBound

RULES: tuple[Rule, ...] = (
    TooFewSteps(),
    FailedTrials(),
    PhasesDoNotClose(),
    Unsteady(),
    NonFiniteLoss(),
    InputBound(),
    TransferBound(),
    OptimizerHeavy(),
    OverheadBound(),
    ThroughputKnee(),
    PastThePeak(),
    PoorSpeedup(),
    ComputeBound(),
    PaddingWaste(),
    MemoryPressure(),
    VariableShape(),
)
