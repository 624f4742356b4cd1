"""Everybody who looks for something in the one step that is looked through."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from perf_diagnostics.measure.host.processor_units import bfloat16_units
from perf_diagnostics.measure.one_step.applied_one_by_one import AppliedOneByOne
from perf_diagnostics.measure.one_step.broadcast_blow_ups import BlowUps
from perf_diagnostics.measure.one_step.chosen_afterwards import ChosenAfterwards
from perf_diagnostics.measure.one_step.composed_attention import ComposedAttention
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.dataflow_storages import Storages
from perf_diagnostics.measure.one_step.denormal_numbers import DenormalNumbers
from perf_diagnostics.measure.one_step.derivatives_apart import DerivativesApart
from perf_diagnostics.measure.one_step.diagonal_matrices import DiagonalMatrices
from perf_diagnostics.measure.one_step.drawn_masks import DrawnMasks
from perf_diagnostics.measure.one_step.earlier_graph import EarlierGraph
from perf_diagnostics.measure.one_step.fft_lengths import FftLengths
from perf_diagnostics.measure.one_step.fixed_work import FixedWork
from perf_diagnostics.measure.one_step.half_precision import HalfPrecision
from perf_diagnostics.measure.one_step.inverted_matrices import InvertedMatrices
from perf_diagnostics.measure.one_step.more_rows import MoreRows
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.outside_of_torch import OutsideOfTorch
from perf_diagnostics.measure.one_step.partly_sorted import PartlySorted
from perf_diagnostics.measure.one_step.parts_one_by_one import PartsOneByOne
from perf_diagnostics.measure.one_step.product_orders import ProductOrders
from perf_diagnostics.measure.one_step.recurrent_again import RecurrentAgain
from perf_diagnostics.measure.one_step.single_precision import SinglePrecision
from perf_diagnostics.measure.one_step.slow_indexing import SlowIndexing
from perf_diagnostics.measure.one_step.smoothed_labels import SmoothedLabels
from perf_diagnostics.measure.one_step.step_totals import StepTotals
from perf_diagnostics.measure.one_step.unread_parts import UnreadParts
from perf_diagnostics.measure.one_step.watcher import Watcher, memory
from perf_diagnostics.measure.one_step.weight_penalties import WeightPenalties
from perf_diagnostics.measure.one_step.written_out import WrittenOut
from perf_diagnostics.measure.one_step.zero_arithmetic import ZeroArithmetic
from perf_diagnostics.measure.one_step.zero_factors import ZeroFactors
from perf_diagnostics.measure.one_step.zero_products import ZeroProducts


def watchers_of(parameters: Iterable[torch.Tensor]) -> list[Watcher]:
    """Those for a step of a model with these parameters, in the order in which they are shown its operators."""
    parameters = [*parameters]
    lines, at = OperatorLines(), [memory(one) for one in parameters]
    trained = [one for one in parameters if one.requires_grad]
    graph = OperatorGraph()
    outside, unread, more_rows = OutsideOfTorch(at, lines), UnreadParts(graph, lines), MoreRows(graph, lines)
    one_by_one, partly_sorted = AppliedOneByOne(graph, lines), PartlySorted(graph, lines)
    inverted = InvertedMatrices(graph, lines)
    return [
        StepTotals(),
        FixedWork(trained),
        ZeroProducts(at, lines),
        graph,
        BlowUps(graph, lines),
        ZeroArithmetic(graph, at, lines),
        SmoothedLabels(graph, lines),
        ZeroFactors(graph, lines),
        ComposedAttention(graph, lines),
        ProductOrders(graph, at, lines),
        more_rows,
        WrittenOut(graph, lines),
        DiagonalMatrices(graph, lines),
        DrawnMasks(graph, lines),
        FftLengths(graph, lines),
        SlowIndexing(graph, lines),
        partly_sorted,
        inverted,
        PartsOneByOne(graph, lines),
        DerivativesApart(graph, lines),
        ChosenAfterwards(graph, lines),
        one_by_one,
        EarlierGraph(lines),
        DenormalNumbers(lines),
        WeightPenalties(graph, trained, lines),
        outside,
        unread,
        StepDataflow(
            Storages(at, map(memory, trained)), outside, (unread, more_rows, one_by_one, partly_sorted, inverted)
        ),
        SinglePrecision(lines),
        *([HalfPrecision()] if bfloat16_units() else []),
        RecurrentAgain(),
    ]
