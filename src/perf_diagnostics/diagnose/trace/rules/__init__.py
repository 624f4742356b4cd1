"""Every rule about traces, in reading order; those with a code of their own have a manual page of their own."""

from __future__ import annotations

from perf_diagnostics.diagnose.trace.rule import AnyTraceRule
from perf_diagnostics.diagnose.trace.rules.cmp002_compute_bound import Computing
from perf_diagnostics.diagnose.trace.rules.cmp003_single_precision import SinglePrecision
from perf_diagnostics.diagnose.trace.rules.cmp006_memory_bandwidth_bound import PassesInARow
from perf_diagnostics.diagnose.trace.rules.cmp008_misaligned_dimensions import OddProducts
from perf_diagnostics.diagnose.trace.rules.cmp009_unfused_attention import WrittenScores
from perf_diagnostics.diagnose.trace.rules.cmp010_wave_quantisation import WaveQuantisation
from perf_diagnostics.diagnose.trace.rules.cmp011_conv_layout import LayoutChanges
from perf_diagnostics.diagnose.trace.rules.cmp014_tiny_kernels import TinyKernels
from perf_diagnostics.diagnose.trace.rules.cmp015_kernel_variance import KernelVariance
from perf_diagnostics.diagnose.trace.rules.cmp016_double_precision import DoubleProducts
from perf_diagnostics.diagnose.trace.rules.cmp017_unused_gradients import GradientsNotUpdated
from perf_diagnostics.diagnose.trace.rules.cmp019_gradients_in_forward import GradientsInForward
from perf_diagnostics.diagnose.trace.rules.cmp020_repeated_backward import NodesAgain
from perf_diagnostics.diagnose.trace.rules.cmp023_products_with_zeros import OneHotMultiplied
from perf_diagnostics.diagnose.trace.rules.cmp025_rows_without_gradient import LogitsOfAllPlaces
from perf_diagnostics.diagnose.trace.rules.cmp026_broadcast_blow_up import SpreadToBeAddedUp
from perf_diagnostics.diagnose.trace.rules.cmp027_constants_made_anew import MadeOfNumbers
from perf_diagnostics.diagnose.trace.rules.cmp028_parameters_multiplied_first import WeightsMerged
from perf_diagnostics.diagnose.trace.rules.cmp036_penalty_by_gradients import PenaltyInTheLoss
from perf_diagnostics.diagnose.trace.rules.cmp039_written_out import FunctionsWrittenOut
from perf_diagnostics.diagnose.trace.rules.cmp040_diagonal_matrices import MatricesOfDiagonals
from perf_diagnostics.diagnose.trace.rules.cmp041_dropout_masks import MasksDrawn
from perf_diagnostics.diagnose.trace.rules.cmp042_graph_of_earlier_steps import NodesOfEarlierSteps
from perf_diagnostics.diagnose.trace.rules.cmp044_more_rows_than_needed import LayersOverCopies
from perf_diagnostics.diagnose.trace.rules.cmp045_mostly_unread import ProductsMostlyUnread
from perf_diagnostics.diagnose.trace.rules.cmp046_fft_length import SlowTransforms
from perf_diagnostics.diagnose.trace.rules.cmp050_slow_indexing import IndexedBackward
from perf_diagnostics.diagnose.trace.rules.cmp051_sorted_for_few import Sorts
from perf_diagnostics.diagnose.trace.rules.cmp053_inverse_for_products import InversesMultiplied
from perf_diagnostics.diagnose.trace.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.trace.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.trace.rules.com003_little_overlap import RunsAlone
from perf_diagnostics.diagnose.trace.rules.com004_rank_imbalance import TakingTurns
from perf_diagnostics.diagnose.trace.rules.com009_exchange_each_micro_batch import ExchangedForNothing
from perf_diagnostics.diagnose.trace.rules.com012_collectives_in_the_loop import BuffersSent
from perf_diagnostics.diagnose.trace.rules.com015_devices_take_turns import DevicesTakeTurns
from perf_diagnostics.diagnose.trace.rules.exp001_too_few_steps import FewMarkedSteps
from perf_diagnostics.diagnose.trace.rules.exp006_cold_start import ColdStart
from perf_diagnostics.diagnose.trace.rules.hst001_launch_bound import LaunchBound
from perf_diagnostics.diagnose.trace.rules.hst002_synchronisation_tax import Waits
from perf_diagnostics.diagnose.trace.rules.hst003_allocation_churn import AllocationChurn
from perf_diagnostics.diagnose.trace.rules.hst004_host_work import HostWork
from perf_diagnostics.diagnose.trace.rules.hst006_time_outside_phases import OperatorsOutsidePhases
from perf_diagnostics.diagnose.trace.rules.hst007_recompiles import CompilesInSteps
from perf_diagnostics.diagnose.trace.rules.hst008_debug_settings import AnomalyDetection
from perf_diagnostics.diagnose.trace.rules.hst009_unexplained_device_gap import UnexplainedGap
from perf_diagnostics.diagnose.trace.rules.hst011_many_small_calls import ManySmallCalls
from perf_diagnostics.diagnose.trace.rules.hst018_grown_by_copies import GrownByCopies
from perf_diagnostics.diagnose.trace.rules.inp001_input_bound import WaitingForInput
from perf_diagnostics.diagnose.trace.rules.inp007_preprocessing_in_the_loop import Preprocessing
from perf_diagnostics.diagnose.trace.rules.opt001_optimizer_heavy import LaunchesInOptimizer
from perf_diagnostics.diagnose.trace.rules.opt003_optimizer_synchronises import WaitsInOptimizer
from perf_diagnostics.diagnose.trace.rules.opt005_recomputation import ForwardAgain
from perf_diagnostics.diagnose.trace.rules.opt007_dense_embedding_gradients import ZerosOfTables
from perf_diagnostics.diagnose.trace.rules.xfr001_transfer_bound import ExposedCopies
from perf_diagnostics.diagnose.trace.rules.xfr002_pageable_copies import PageableCopies
from perf_diagnostics.diagnose.trace.rules.xfr003_many_small_copies import SmallCopies
from perf_diagnostics.diagnose.trace.rules.xfr005_reads_back import CopiesBack

TRACE_RULES: tuple[AnyTraceRule, ...] = (
    FewMarkedSteps(),
    ColdStart(),
    WaitingForInput(),
    Preprocessing(),
    ExposedCopies(),
    PageableCopies(),
    SmallCopies(),
    CopiesBack(),
    LaunchBound(),
    Waits(),
    AllocationChurn(),
    HostWork(),
    OperatorsOutsidePhases(),
    CompilesInSteps(),
    AnomalyDetection(),
    ManySmallCalls(),
    GrownByCopies(),
    UnexplainedGap(),
    LaunchesInOptimizer(),
    WaitsInOptimizer(),
    ForwardAgain(),
    ZerosOfTables(),
    CommunicationBound(),
    Straggler(),
    RunsAlone(),
    TakingTurns(),
    ExchangedForNothing(),
    BuffersSent(),
    DevicesTakeTurns(),
    Computing(),
    SinglePrecision(),
    PassesInARow(),
    OddProducts(),
    DoubleProducts(),
    WrittenScores(),
    WaveQuantisation(),
    LayoutChanges(),
    LogitsOfAllPlaces(),
    OneHotMultiplied(),
    SpreadToBeAddedUp(),
    MadeOfNumbers(),
    WeightsMerged(),
    PenaltyInTheLoss(),
    FunctionsWrittenOut(),
    MatricesOfDiagonals(),
    MasksDrawn(),
    LayersOverCopies(),
    ProductsMostlyUnread(),
    InversesMultiplied(),
    IndexedBackward(),
    Sorts(),
    SlowTransforms(),
    TinyKernels(),
    KernelVariance(),
    GradientsNotUpdated(),
    GradientsInForward(),
    NodesAgain(),
    NodesOfEarlierSteps(),
)
