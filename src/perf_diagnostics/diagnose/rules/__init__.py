"""Every rule, in reading order: first whether the experiment can be trusted, then where its time goes."""

from __future__ import annotations

from perf_diagnostics.diagnose.rule import Rule
from perf_diagnostics.diagnose.rules.cmp001_poor_speedup import PoorSpeedup
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.diagnose.rules.cmp003_single_precision import SinglePrecision
from perf_diagnostics.diagnose.rules.cmp004_padding_waste import PaddingWaste
from perf_diagnostics.diagnose.rules.cmp005_low_mfu import LowMfu
from perf_diagnostics.diagnose.rules.cmp006_memory_bandwidth_bound import MemoryBandwidthBound
from perf_diagnostics.diagnose.rules.cmp007_tf32_off import Tf32Off
from perf_diagnostics.diagnose.rules.cmp008_misaligned_dimensions import MisalignedDimensions
from perf_diagnostics.diagnose.rules.cmp009_unfused_attention import UnfusedAttention
from perf_diagnostics.diagnose.rules.cmp011_conv_layout import ConvLayout
from perf_diagnostics.diagnose.rules.cmp012_conv_bias_before_norm import ConvBiasBeforeNorm
from perf_diagnostics.diagnose.rules.cmp013_low_gpu_utilisation import LowGpuUtilisation
from perf_diagnostics.diagnose.rules.cmp016_double_precision import DoublePrecision
from perf_diagnostics.diagnose.rules.cmp017_unused_gradients import UnusedGradients
from perf_diagnostics.diagnose.rules.cmp018_parameters_without_gradient import ParametersWithoutGradient
from perf_diagnostics.diagnose.rules.cmp020_repeated_backward import RepeatedBackward
from perf_diagnostics.diagnose.rules.cmp021_batch_asked_again import BatchAskedAgain
from perf_diagnostics.diagnose.rules.cmp022_tiny_micro_batches import TinyMicroBatches
from perf_diagnostics.diagnose.rules.cmp023_products_with_zeros import ProductsWithZeros
from perf_diagnostics.diagnose.rules.cmp024_costly_hooks import CostlyHooks
from perf_diagnostics.diagnose.rules.cmp025_rows_without_gradient import RowsWithoutGradient
from perf_diagnostics.diagnose.rules.cmp026_broadcast_blow_up import BroadcastBlowUp
from perf_diagnostics.diagnose.rules.cmp027_constants_made_anew import ConstantsMadeAnew
from perf_diagnostics.diagnose.rules.cmp028_parameters_multiplied_first import ParametersMultipliedFirst
from perf_diagnostics.diagnose.rules.cmp029_results_never_used import ResultsNeverUsed
from perf_diagnostics.diagnose.rules.cmp030_computed_again import ComputedAgain
from perf_diagnostics.diagnose.rules.cmp031_arithmetic_with_zeros import ArithmeticWithZeros
from perf_diagnostics.diagnose.rules.cmp032_computed_each_step import ComputedEachStep
from perf_diagnostics.diagnose.rules.cmp033_known_answers import KnownAnswers
from perf_diagnostics.diagnose.rules.cmp034_dearer_order import DearerOrder
from perf_diagnostics.diagnose.rules.cmp035_prefix_computed_again import PrefixComputedAgain
from perf_diagnostics.diagnose.rules.cmp036_penalty_by_gradients import PenaltyByGradients
from perf_diagnostics.diagnose.rules.cmp037_terms_times_zero import TermsTimesZero
from perf_diagnostics.diagnose.rules.cmp038_beside_the_loss import BesideTheLoss
from perf_diagnostics.diagnose.rules.cmp039_written_out import WrittenOut
from perf_diagnostics.diagnose.rules.cmp040_diagonal_matrices import DiagonalMatrices
from perf_diagnostics.diagnose.rules.cmp041_dropout_masks import DropoutMasks
from perf_diagnostics.diagnose.rules.cmp042_graph_of_earlier_steps import GraphOfEarlierSteps
from perf_diagnostics.diagnose.rules.cmp043_denormal_numbers import DenormalNumbers
from perf_diagnostics.diagnose.rules.cmp044_more_rows_than_needed import MoreRowsThanNeeded
from perf_diagnostics.diagnose.rules.cmp045_mostly_unread import MostlyUnread
from perf_diagnostics.diagnose.rules.cmp046_fft_length import FftLength
from perf_diagnostics.diagnose.rules.cmp047_derivatives_apart import DerivativesApart
from perf_diagnostics.diagnose.rules.cmp048_chosen_afterwards import ChosenAfterwards
from perf_diagnostics.diagnose.rules.cmp049_applied_one_by_one import AppliedOneByOne
from perf_diagnostics.diagnose.rules.cmp050_slow_indexing import SlowIndexing
from perf_diagnostics.diagnose.rules.cmp051_sorted_for_few import SortedForFew
from perf_diagnostics.diagnose.rules.cmp052_parts_one_by_one import PartsOneByOne
from perf_diagnostics.diagnose.rules.cmp053_inverse_for_products import InverseForProducts
from perf_diagnostics.diagnose.rules.cmp054_evaluated_again import EvaluatedAgain
from perf_diagnostics.diagnose.rules.cmp055_smoothed_labels import SmoothedLabels
from perf_diagnostics.diagnose.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.rules.com003_little_overlap import LittleOverlap
from perf_diagnostics.diagnose.rules.com004_rank_imbalance import RankImbalance
from perf_diagnostics.diagnose.rules.com005_scaling_efficiency import ScalingEfficiency
from perf_diagnostics.diagnose.rules.com006_data_parallel import DataParallel
from perf_diagnostics.diagnose.rules.com007_backend import Backend
from perf_diagnostics.diagnose.rules.com008_ddp_options import DdpOptions
from perf_diagnostics.diagnose.rules.com009_exchange_each_micro_batch import ExchangeEachMicroBatch
from perf_diagnostics.diagnose.rules.com010_pauses_out_of_step import PausesOutOfStep
from perf_diagnostics.diagnose.rules.com011_gradients_beside_buckets import GradientsBesideBuckets
from perf_diagnostics.diagnose.rules.com012_collectives_in_the_loop import CollectivesInTheLoop
from perf_diagnostics.diagnose.rules.com013_more_ranks_than_cores import MoreRanksThanCores
from perf_diagnostics.diagnose.rules.com014_uneven_passes import UnevenPassesOfRanks
from perf_diagnostics.diagnose.rules.cpu001_oversubscribed_threads import OversubscribedThreads
from perf_diagnostics.diagnose.rules.cpu002_far_from_the_device import FarFromTheDevice
from perf_diagnostics.diagnose.rules.cpu003_cpu_quota_throttled import CpuQuotaThrottled
from perf_diagnostics.diagnose.rules.cpu004_idle_cores import IdleCores
from perf_diagnostics.diagnose.rules.cpu005_started_processes import StartedProcesses
from perf_diagnostics.diagnose.rules.exp001_too_few_steps import TooFewSteps
from perf_diagnostics.diagnose.rules.exp002_failed_trials import FailedTrials
from perf_diagnostics.diagnose.rules.exp003_phases_do_not_close import PhasesDoNotClose
from perf_diagnostics.diagnose.rules.exp004_unsteady import Unsteady
from perf_diagnostics.diagnose.rules.exp005_non_finite_loss import NonFiniteLoss
from perf_diagnostics.diagnose.rules.exp007_noisy_steps import NoisySteps
from perf_diagnostics.diagnose.rules.exp008_machine_drift import MachineDrift
from perf_diagnostics.diagnose.rules.exp009_observer_effect import ObserverEffect
from perf_diagnostics.diagnose.rules.exp010_outside_contention import OutsideContention
from perf_diagnostics.diagnose.rules.exp011_scaler_skips import ScalerSkips
from perf_diagnostics.diagnose.rules.exp012_shared_device import SharedDevice
from perf_diagnostics.diagnose.rules.hst001_launch_bound import LaunchBound
from perf_diagnostics.diagnose.rules.hst002_synchronisation_tax import SynchronisationTax
from perf_diagnostics.diagnose.rules.hst003_allocation_churn import AllocationChurn
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.rules.hst008_debug_settings import DebugSettings
from perf_diagnostics.diagnose.rules.hst010_tiny_operations import TinyOperations
from perf_diagnostics.diagnose.rules.hst012_waits_inside_work import WaitsInsideWork
from perf_diagnostics.diagnose.rules.hst013_chores_inside_work import ChoresInsideWork
from perf_diagnostics.diagnose.rules.hst014_small_calls_in_a_loop import SmallCallsInALoop
from perf_diagnostics.diagnose.rules.hst015_page_faults import PageFaults
from perf_diagnostics.diagnose.rules.hst016_work_outside_of_torch import WorkOutsideOfTorch
from perf_diagnostics.diagnose.rules.hst017_graph_breaks import GraphBreaks
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.inp002_slow_batches import SlowBatches
from perf_diagnostics.diagnose.rules.inp003_too_few_workers import TooFewWorkers
from perf_diagnostics.diagnose.rules.inp004_bursty_loader import BurstyLoader
from perf_diagnostics.diagnose.rules.inp005_epoch_restart import EpochRestart
from perf_diagnostics.diagnose.rules.inp006_cold_cache import ColdCache
from perf_diagnostics.diagnose.rules.inp007_preprocessing_in_the_loop import PreprocessingInTheLoop
from perf_diagnostics.diagnose.rules.inp008_worker_hand_over import WorkerHandOver
from perf_diagnostics.diagnose.rules.inp009_skipped_samples import SkippedSamples
from perf_diagnostics.diagnose.rules.inp010_busy_workers import BusyWorkers
from perf_diagnostics.diagnose.rules.mem001_memory_pressure import MemoryPressure
from perf_diagnostics.diagnose.rules.mem002_fragmentation import Fragmentation
from perf_diagnostics.diagnose.rules.mem003_allocator_retries import AllocatorRetries
from perf_diagnostics.diagnose.rules.mem004_memory_growth import MemoryGrowth
from perf_diagnostics.diagnose.rules.mem005_memory_headroom import MemoryHeadroom
from perf_diagnostics.diagnose.rules.mem006_swapping import Swapping
from perf_diagnostics.diagnose.rules.mem007_checkpointing import Checkpointing
from perf_diagnostics.diagnose.rules.mem008_uneven_rank_memory import UnevenRankMemory
from perf_diagnostics.diagnose.rules.mem009_memory_model import MemoryModel
from perf_diagnostics.diagnose.rules.mem010_shared_memory_full import SharedMemoryFull
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import OptimizerHeavy
from perf_diagnostics.diagnose.rules.opt002_zero_grad_memset import ZeroGradMemset
from perf_diagnostics.diagnose.rules.opt003_optimizer_synchronises import OptimizerSynchronises
from perf_diagnostics.diagnose.rules.opt004_small_micro_batches import SmallMicroBatches
from perf_diagnostics.diagnose.rules.opt005_recomputation import Recomputation
from perf_diagnostics.diagnose.rules.opt006_work_before_the_update import WorkBeforeTheUpdate
from perf_diagnostics.diagnose.rules.opt007_dense_embedding_gradients import DenseEmbeddingGradients
from perf_diagnostics.diagnose.rules.opt008_groups_alike import GroupsAlike
from perf_diagnostics.diagnose.rules.pwr001_thermal_throttling import ThermalThrottling
from perf_diagnostics.diagnose.rules.pwr002_power_capped import PowerCapped
from perf_diagnostics.diagnose.rules.pwr003_low_clock import LowClock
from perf_diagnostics.diagnose.rules.pwr004_energy_optimum import EnergyOptimum
from perf_diagnostics.diagnose.rules.pwr005_idle_energy import IdleEnergy
from perf_diagnostics.diagnose.rules.pwr006_cost import Cost
from perf_diagnostics.diagnose.rules.stb001_variable_shape import VariableShape
from perf_diagnostics.diagnose.rules.stb002_stalls import LongSteps
from perf_diagnostics.diagnose.rules.stb003_jitter import Jitter
from perf_diagnostics.diagnose.rules.stb004_periodic_work import PeriodicWork
from perf_diagnostics.diagnose.rules.stb005_one_off_costs import OneOffCosts
from perf_diagnostics.diagnose.rules.stb006_growing_steps import GrowingSteps
from perf_diagnostics.diagnose.rules.swp001_overhead_bound import OverheadBound
from perf_diagnostics.diagnose.rules.swp002_throughput_knee import ThroughputKnee
from perf_diagnostics.diagnose.rules.swp003_past_the_peak import PastThePeak
from perf_diagnostics.diagnose.rules.swp004_odd_batch_size import OddBatchSize
from perf_diagnostics.diagnose.rules.swp005_precision_without_effect import PrecisionWithoutEffect
from perf_diagnostics.diagnose.rules.xfr001_transfer_bound import TransferBound
from perf_diagnostics.diagnose.rules.xfr002_pageable_copies import PageableCopies
from perf_diagnostics.diagnose.rules.xfr003_many_small_copies import ManySmallCopies
from perf_diagnostics.diagnose.rules.xfr004_link_saturated import LinkSaturated
from perf_diagnostics.diagnose.rules.xfr005_reads_back import ReadsBack

RULES: tuple[Rule, ...] = (
    TooFewSteps(),
    FailedTrials(),
    PhasesDoNotClose(),
    Unsteady(),
    NonFiniteLoss(),
    ScalerSkips(),
    NoisySteps(),
    MachineDrift(),
    ObserverEffect(),
    OutsideContention(),
    SharedDevice(),
    InputBound(),
    SlowBatches(),
    TooFewWorkers(),
    BurstyLoader(),
    EpochRestart(),
    ColdCache(),
    PreprocessingInTheLoop(),
    WorkerHandOver(),
    SkippedSamples(),
    BusyWorkers(),
    TransferBound(),
    PageableCopies(),
    ManySmallCopies(),
    LinkSaturated(),
    ReadsBack(),
    LaunchBound(),
    SynchronisationTax(),
    AllocationChurn(),
    CollectorPauses(),
    TimeOutsidePhases(),
    Recompiles(),
    DebugSettings(),
    TinyOperations(),
    WaitsInsideWork(),
    ChoresInsideWork(),
    SmallCallsInALoop(),
    WorkOutsideOfTorch(),
    GraphBreaks(),
    PageFaults(),
    OptimizerHeavy(),
    ZeroGradMemset(),
    OptimizerSynchronises(),
    SmallMicroBatches(),
    Recomputation(),
    WorkBeforeTheUpdate(),
    DenseEmbeddingGradients(),
    GroupsAlike(),
    OverheadBound(),
    ThroughputKnee(),
    PastThePeak(),
    OddBatchSize(),
    PrecisionWithoutEffect(),
    PoorSpeedup(),
    ComputeBound(),
    PaddingWaste(),
    SinglePrecision(),
    LowMfu(),
    MemoryBandwidthBound(),
    Tf32Off(),
    MisalignedDimensions(),
    UnfusedAttention(),
    ConvLayout(),
    ConvBiasBeforeNorm(),
    LowGpuUtilisation(),
    DoublePrecision(),
    UnusedGradients(),
    ParametersWithoutGradient(),
    RepeatedBackward(),
    BatchAskedAgain(),
    TinyMicroBatches(),
    ProductsWithZeros(),
    CostlyHooks(),
    RowsWithoutGradient(),
    BroadcastBlowUp(),
    ConstantsMadeAnew(),
    ParametersMultipliedFirst(),
    ResultsNeverUsed(),
    ComputedAgain(),
    ArithmeticWithZeros(),
    ComputedEachStep(),
    KnownAnswers(),
    DearerOrder(),
    PrefixComputedAgain(),
    PenaltyByGradients(),
    TermsTimesZero(),
    BesideTheLoss(),
    WrittenOut(),
    DiagonalMatrices(),
    DropoutMasks(),
    GraphOfEarlierSteps(),
    DenormalNumbers(),
    MoreRowsThanNeeded(),
    MostlyUnread(),
    FftLength(),
    DerivativesApart(),
    ChosenAfterwards(),
    AppliedOneByOne(),
    SlowIndexing(),
    SortedForFew(),
    PartsOneByOne(),
    InverseForProducts(),
    EvaluatedAgain(),
    SmoothedLabels(),
    MemoryPressure(),
    Fragmentation(),
    AllocatorRetries(),
    MemoryGrowth(),
    MemoryHeadroom(),
    Swapping(),
    Checkpointing(),
    UnevenRankMemory(),
    MemoryModel(),
    SharedMemoryFull(),
    VariableShape(),
    LongSteps(),
    Jitter(),
    PeriodicWork(),
    OneOffCosts(),
    GrowingSteps(),
    ThermalThrottling(),
    PowerCapped(),
    LowClock(),
    EnergyOptimum(),
    IdleEnergy(),
    Cost(),
    OversubscribedThreads(),
    FarFromTheDevice(),
    CpuQuotaThrottled(),
    IdleCores(),
    StartedProcesses(),
    CommunicationBound(),
    Straggler(),
    LittleOverlap(),
    RankImbalance(),
    ScalingEfficiency(),
    DataParallel(),
    Backend(),
    DdpOptions(),
    ExchangeEachMicroBatch(),
    PausesOutOfStep(),
    GradientsBesideBuckets(),
    CollectivesInTheLoop(),
    MoreRanksThanCores(),
    UnevenPassesOfRanks(),
)
