"""Which settings can be forced on a script that knows nothing of them."""

from __future__ import annotations

from collections.abc import Mapping

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.about import FORCED
from perf_diagnostics.records import Json, Run, Settings

#: Batches that come again and again, as many as in the ceiling experiment of a sweep
#: (:mod:`perf_diagnostics.trials.steps.perfect_fix`).
KEPT_BATCHES = 16

#: Batches that DataLoader has each of its workers load ahead when nothing is said.
_AHEAD = 2

#: Steps of which some compile: the first one, one with another shape or another mode, and those that make sure.
_COMPILING_STEPS = 5

#: What settings do to what a training computes, beside its speed.
_CHANGES_NUMBERS: Mapping[str, str] = {
    "precision": "Its products are rounded more coarsely than the script's own.",
    "compile_mode": "What is compiled rounds in another order, and draws other random numbers (dropout's).",
    "masks_from_bits": "Its dropout drew other random numbers, by probabilities rounded to 1/65,536.",
    "flush_denormals": "Its numbers below 1.2e-38 (float32) counted as 0.",
    "channels_last": "Its convolutions add up in another order.",
    "ceiling": "It saw only some of the script's batches.",
}

#: As short as a table's cell has room for. A scaler put around ``backward`` and ``step`` from outside would leave the
#: loss that the script reads, and the gradients that it clips, multiplied.
_FLOAT16 = (
    "float16 needs a GradScaler, or small gradients become 0: in your loop write scaler.scale(loss).backward(), "
    "scaler.step(optimizer) and scaler.update() under torch.autocast, and compare the two runs"
)

_PRECISIONS = ("tf32", "bfloat16")

#: Settings that can be forced on a script, and what they change there.
FORCIBLE: Mapping[str, str] = {
    "num_workers": "worker processes of each DataLoader over a map-style dataset",
    "prefetch_factor": "batches ahead of each DataLoader with workers",
    "persistent_workers": "whether the workers of each DataLoader live on from pass to pass",
    "pin_memory": "whether each DataLoader pins its batches",
    "threads": "threads of an operator on the CPU",
    "optimizer_implementation": "single, foreach or fused, of each optimizer of torch.optim",
    "freeze_gc": "collect, gc.freeze() and gc.disable() after the second step",
    "channels_last": "filters of the trained models, and the images that they are called with, channels last",
    "keep_freed_memory": "freed memory stays with the process (glibc's mallopt)",
    "masks_from_bits": "masks that are drawn on the CPU (dropout's) come from whole random words, 16 bits a number",
    "flush_denormals": "numbers below 1.2e-38 (float32; 2.2e-308 in float64) count as 0",
    "precision": "tf32, or bfloat16 by an autocast region around the calls of the trained models",
    "compile_mode": "compiles the trained models in place",
    "ceiling": "cached_batches only: the first 16 batches of the training's DataLoader, again and again",
}


def why_not_forced(change: Mapping[str, Json]) -> str:
    """Why a change of settings cannot be forced on a script; empty where it can."""
    for name, value in change.items():
        if name == "precision" and value == "float16":
            return _FLOAT16
        if name not in FORCIBLE or (name == "precision" and value not in _PRECISIONS):
            return f"{name} is your script's own to choose: change it there, measure again, and compare the two runs"
        if name == "ceiling" and value != "cached_batches":
            return f"{value} cannot be left out of a script from outside"
    return ""


def check_forced(settings: Mapping[str, Json]) -> None:
    """Make sure that these settings can be forced on a script.

    Raises:
        InvalidSettings: one that does not exist, cannot be forced, or has an impossible value.
    """
    for name, value in settings.items():
        why = why_not_forced({name: value})
        if value is None or why:
            known = "; ".join(f"{known}: {what}" for known, what in FORCIBLE.items())
            because = f": {why}" if name in FORCIBLE and why else ""
            raise InvalidSettings(f"{name}={value} cannot be forced on a script{because}. What can: {known}.")
    Settings(batch_size=1).replace(**settings)


def forced_on(run: Run) -> dict[str, Json]:
    """The settings that were put into the script when this run was made; it does not have them by itself."""
    told = run.results[0].facts.get(FORCED) if run.results else None
    return dict(told) if isinstance(told, Mapping) else {}


def note_of(settings: Mapping[str, Json]) -> str:
    """What a run says that was made with these settings, and what they do to its numbers."""
    named = ", ".join(f"{name}={value}" for name, value in settings.items())
    changed = [what for name, what in _CHANGES_NUMBERS.items() if settings.get(name) is not None]
    return " ".join([f"The script ran with {named} in place of its own.", *changed])


def steps_until_effect(settings: Mapping[str, Json]) -> int:
    """Steps before which what is forced is not in full effect.

    That is until what workers have loaded ahead is used up, and until nothing is compiled any more, as far as is known
    beforehand.
    """
    workers, ahead = (settings.get(name) for name in ("num_workers", "prefetch_factor"))
    loaded = (workers if isinstance(workers, int) else 0) * (ahead if isinstance(ahead, int) else _AHEAD)
    kept = KEPT_BATCHES if settings.get("ceiling") == "cached_batches" else 0
    return max(loaded, kept, 0 if settings.get("compile_mode") is None else _COMPILING_STEPS)
