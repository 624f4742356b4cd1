"""What the look at one step's operators tells, around the limits of the rules about it; see ``doses.py``."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import Json, Phase, TrialResult
from tests.planted.doses import Dose
from tests.planted.made_up import HEALTHY_S, loop

_STEP_S = sum(HEALTHY_S.values())

_LINE: dict[str, Json] = {
    "file": "model.py",
    "line": 5,
    "function": "Net.forward",
    "text": "d = (a - b).pow(2).sum(-1)",
}

_MORE: dict[str, dict[str, Json]] = {
    "broadcast_blow_ups": {"shape": [512, 512, 64], "left": 0.005, "operators": ["sub", "pow", "sum"]},
    "diagonal_matrices": {"shape": [128, 48, 48], "operators": ["linalg_cholesky_ex"]},
    "earlier_graph": {"nodes": 16},
    "denormal_numbers": {"part": 0.8},
    "drawn_masks": {"numbers": 2_000_000, "left": 0.5},
    "dearer_orders": {
        **{"shape": [32, 512, 512], "shapes": [[32, 512, 32], [32, 32, 512]], "left": 0.1},
        **{"flops": 3_000_000_000, "flops_instead": 200_000_000},
    },
    "more_rows": {"shape": [4096, 256], "rows": 4096, "rows_left": 256, "sums": False, "parts": 1, "copied": {}},
    "fft_lengths": {"shape": [2879], "length": 2879, "instead": 2880},
    "slow_indexing": {"shape": [3000, 64], "form": "index", "rows": 40_000},
    "sorted_for_few": {"shape": [64, 4096], "size": 4096, "count": 10, "instead": "topk"},
    "inverted_matrices": {"shape": [480, 480], "columns": 1},
    "parts_one_by_one": {"shape": [256, 48, 128], "dim": 1, "parts": 48, "single": True},
    "chosen_afterwards": {"shape": [32], "part": 0.9},
    "applied_one_by_one": {"shape": [128, 8000], "together": 24.0, "rows": 16, "weights": 1},
    "derivatives_apart": {"results": 1, "inputs": 2},
    "unread_parts": {"shape": [770_400], "part": 0.04},
    "weight_penalties": {"kind": "squares", "weights": 1_500_000, "tensors": 6, "averaged": False},
    "written_out_functions": {"shape": [64, 1024], "call": "F.gelu(x)", "operators": 5.0, "instead": 0.0},
    "zero_factors": {},
    "smoothed_labels": {"shape": [2048, 7000]},
    "zero_arithmetic": {"shape": [8, 21, 96, 96], "zeros": 0.95},
    "composed_attention": {
        **{"shape": [32, 384, 384], "used": False, "fused": True, "causal": False, "module": "", "dropout": False},
        **{"products": 0.0, "instead": None},
    },
}


def _told(name: str, share: float, seed: int, **more: Json) -> TrialResult:
    """This share of the step is for it, by one look at one step: of forward and of backward alike."""
    forward, backward = (HEALTHY_S[phase] for phase in (Phase.FORWARD, Phase.BACKWARD))
    part = min(1.0, share * _STEP_S / (forward + backward))
    one: dict[str, Json] = {**_LINE, **_MORE[name], "calls": 1, "forward": part, "backward": part, "whole": part}
    facts: dict[str, Json] = {"operator_seconds_forward": forward, "operator_seconds_backward": backward}
    facts |= {"around_operators_seconds_forward": 0.0, "around_operators_seconds_backward": 0.0}
    facts |= {"operator_bytes_forward": 0, "operator_bytes_backward": 0}
    return loop(seed, facts={**facts, name: [{**one, **more}]})


def _prefixes(share: float, seed: int) -> TrialResult:
    """A rollout before forward, of which a cache would save this share of the step."""
    seconds = share * _STEP_S
    told: dict[str, Json] = {**_LINE, "calls": 31, "rows": 16, "longest": 40, "positions": 12896}
    told |= {"positions_again": 12400, "seconds": seconds}
    told |= dict.fromkeys(("seconds_again", "seconds_again_least", "seconds_again_most"), seconds)
    return loop(seed, facts={"prefixes_again": [told]})


def _doses(code: str, name: str) -> tuple[Dose, ...]:
    return tuple(
        Dose(code=code, limit=limit, severity=severity, build=lambda share, seed: _told(name, share, seed))
        for limit, severity in (("info_share", Severity.INFO), ("warn_share", Severity.WARNING))
    )


DOSES: tuple[Dose, ...] = (
    *_doses("CMP009", "composed_attention"),
    *_doses("CMP026", "broadcast_blow_ups"),
    *_doses("CMP031", "zero_arithmetic"),
    *_doses("CMP055", "smoothed_labels"),
    *_doses("CMP034", "dearer_orders"),
    *_doses("CMP036", "weight_penalties"),
    *_doses("CMP037", "zero_factors"),
    *_doses("CMP039", "written_out_functions"),
    *_doses("CMP040", "diagonal_matrices"),
    *_doses("CMP042", "earlier_graph"),
    *_doses("CMP043", "denormal_numbers"),
    *_doses("CMP044", "more_rows"),
    *_doses("CMP045", "unread_parts"),
    *_doses("CMP046", "fft_lengths"),
    *_doses("CMP047", "derivatives_apart"),
    *_doses("CMP048", "chosen_afterwards"),
    *_doses("CMP049", "applied_one_by_one"),
    *_doses("CMP050", "slow_indexing"),
    *_doses("CMP051", "sorted_for_few"),
    *_doses("CMP053", "inverted_matrices"),
    *_doses("CMP052", "parts_one_by_one"),
    Dose(
        code="CMP041",
        limit="info_share",
        severity=Severity.INFO,
        build=lambda share, seed: _told("drawn_masks", 2 * share, seed),
    ),
    Dose(code="CMP035", limit="info_share", severity=Severity.INFO, build=_prefixes),
    Dose(code="CMP035", limit="warn_share", severity=Severity.WARNING, build=_prefixes),
    Dose(
        code="CMP031",
        limit="least_zeros",
        severity=Severity.INFO,
        scale="room",
        build=lambda zeros, seed: _told("zero_arithmetic", 0.5, seed, zeros=zeros),
    ),
)
