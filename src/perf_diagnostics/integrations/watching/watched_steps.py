"""The steps of a watched loop: what they hold, how they end, and what is looked for between them."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.counts import Counts
from perf_diagnostics.integrations.frameworks import driving_framework
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.model.backward_looks import BackwardLooks
from perf_diagnostics.integrations.model.called_masks import Call, Copies, MaskReader, count_call
from perf_diagnostics.integrations.model.known_evaluations import KnownEvaluations
from perf_diagnostics.integrations.model.losses import Losses, scales_losses
from perf_diagnostics.integrations.model.trained import DEEPEST_SEARCH, Trained
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.integrations.steps.cycle import IN_BACKWARD, Cycle
from perf_diagnostics.integrations.steps.hindsight import Held, HindsightProbe
from perf_diagnostics.integrations.steps.loop_memory import LoopMemory
from perf_diagnostics.integrations.steps.step_state import BEGUN, BEGUN_ALONE, UNSURE
from perf_diagnostics.measure.gradients.gradients import ALONE
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.device_clock import captures, event_source
from perf_diagnostics.records import Phase
from perf_diagnostics.workloads.workload import BatchCount

#: In a step that goes on without end more batches than this are added up, and of more calls of a model that nobody
#: trains on one and the same batch it is forgotten where they lie on the tape.
_MOST_BATCHES = _MOST_BESIDE = 4096


#: Steps that are ended in full of which it is looked whether they train on slices of their batches.
_LOOKED_FOR_SLICES = 4

#: A call on a smaller part of the largest call's rows than one in so many is not for training.
_OF_THE_LARGEST = 4


def _nothing() -> None:
    """Nothing is to be done."""


class WatchedSteps:
    """What the step that is under way holds, and what has to be done at the end of one that is not plain.

    Args:
        probe: where the loop is marked.
        recording: takes the steps.
        trained: what is trained, as far as it is known.
        about: what is known about the training.
        observations: where what cannot be read is noted.
        cycle: the optimizers that take turns.
    """

    def __init__(
        self,
        probe: HindsightProbe,
        recording: Recording,
        trained: Trained,
        about: About,
        observations: Observations,
        *,
        cycle: Cycle,
    ) -> None:
        self.probe = probe
        self.state = probe.state
        self.recording = recording
        self.trained = trained
        self._about = about
        self._observations = observations
        self._cycle = cycle
        self.losses = Losses()
        #: What the models are asked in evaluation mode.
        self.evaluations = KnownEvaluations()
        #: What the backwards of the first steps compute for nothing.
        self.looks = BackwardLooks(self.state, trained.all_optimizers)
        #: What the batches of the step hold, and the optimizers that are in their steps, by identity, outermost first.
        self.batches: list[int | BatchCount | None] = []
        self.stepping: list[int] = []
        #: Whether an optimizer has stepped that may train another model than those that are known.
        self.stranger = False
        #: Whether the step under way is to be lost, for not all of it was seen.
        self.unseen = False
        #: Called once, where the training turns out not to run on the CPU.
        self.when_on_device: Callable[[], None] = _nothing
        #: Called at the end of each step that is told of in full.
        self.when_ended: Callable[[], None] = _nothing
        #: Called where the last batch went into an evaluation.
        self.when_given_back: Callable[[], None] = _nothing
        #: Whether it is known what is trained, and where.
        self.settled = False
        self._known = False
        #: Whether calls of what is trained were seen since an optimizer was met that may train something else.
        self._calls_seen = self._told_of_new_models = False
        #: Where no batch is seen: the rows given to models in the step, in how many calls, and in the largest of them.
        self._rows = self._row_calls = self._most_rows = 0
        #: How often each model was called with so many rows.
        self._called_with: Counter[tuple[int, int]] = Counter()
        #: Whether the rows of calls beyond one a batch are counted, to tell whether batches are trained on in slices.
        self.rows_wanted = True
        #: What the calls of the step hold by their masks, where no batch was seen.
        self._masked: int | BatchCount | None = 0
        #: The copies on a device of what a model may be called with as a mask.
        self.copies = Copies()
        #: Where on the tape calls begin of models that nobody trains, on a batch that was not trained on yet.
        self.beside: list[int] = []
        #: So many more batches the step has had than :attr:`batches` has.
        self.folded_batches = 0
        #: Batches of the step that was last ended in full, to which the plain ones after it are alike.
        self._micro_steps = 1
        recording.before_take = self._read_losses

    def count_rows(self, model: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """No loader: the samples are the rows given to the model, those of a closure or of several models once."""
        self._count(id(model), describe.count_call(args, kwargs) or 0)
        given = args[0] if args else None
        self.state.shape = given.shape if type(given) is torch.Tensor else None
        self.state.same = None  # with what the call was given, the step is told of in full

    def _count(self, model: int, rows: int) -> None:
        self._most_rows = max(self._most_rows, rows)
        if self.stepping:
            self._rows, self._row_calls = max(self._rows, rows), 1
        else:
            self._rows, self._row_calls = self._rows + rows, self._row_calls + 1
            self._called_with[model, rows] += 1

    @property
    def rows(self) -> tuple[int, int]:
        """Where no batch is seen: the rows given to models since the step began, and in how many calls."""
        return self._rows, self._row_calls

    def rows_of(self, rows: int) -> int:
        """Of so many rows given to models in a step those that are samples.

        Of several optimizers, whose models are called in turn on the same samples, the largest call's: that is known
        only when the step is over, for its first turns may have been taken for steps of the first optimizer alone.
        """
        if len(self._cycle) > 1:
            return min(rows, self._most_rows)
        return self._trained_rows[0] if rows == self._rows else rows

    @property
    def _trained_rows(self) -> tuple[int, int]:
        """Of the rows given to models in the step those that are samples, and in how many calls they were given.

        Several models (an actor and a critic) are called on the same samples. Calls on less than a quarter of the
        largest one's rows ask for something else: what to do next, in an environment.
        """
        called = self._called_with
        if called.total() != self._row_calls:
            return self._rows, self._row_calls
        largest: dict[int, int] = {}
        for model, rows in called:
            largest[model] = max(largest.get(model, 0), rows)
        found = {model: [0, 0] for model in largest}
        for (model, rows), calls in called.items():
            if rows * _OF_THE_LARGEST >= largest[model]:
                found[model][0] += rows * calls
                found[model][1] += calls
        rows, calls = max(found.values(), default=(0, 0))
        return rows, calls

    def rows_ended(self, rows: int, calls: int) -> None:
        """Of the rows given to models so many belong to steps that have ended, in so many calls."""
        self._rows, self._row_calls = max(0, self._rows - rows), max(0, self._row_calls - calls)
        self._called_with.clear()

    def may_be_masked(self) -> None:
        """A model is watched that may be called with a mask."""
        self.copies.wanted = True

    def count_masked(self, reader: MaskReader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is called that may be called with a mask: what that tells of the batch that came last."""
        if not self.batches:
            self.count_rows(reader, args, kwargs)
        once = bool(self.stepping) or len(self._cycle) > 1
        call = Call(reader, args, kwargs, self.copies.source_of)
        self._masked = count_call(self.batches, self._masked, call, once=once)

    def called_beside(self) -> None:
        """A model that nobody trains is called on a batch that was not trained on yet; that was the last mark."""
        self.beside.append(self.probe.last_mark)
        if len(self.probe.marks) >= self.state.full_at:
            self.state.full()

    def fold(self) -> None:
        """Many marks have come: those of a step that goes on without end are added up, and so are its batches."""
        beside, batches = self.beside, self.batches
        if len(beside) > _MOST_BESIDE:
            beside.clear()  # what asks its teacher so often about one batch evaluates
        shorter = self.probe.fold(until=beside[0] if beside else None)
        beside[:] = [place - shorter for place in beside]
        if len(batches) > _MOST_BATCHES:
            samples, tokens, padding = self.add_up(batches[:-1])
            self.folded_batches += len(batches) - 2
            batches[:-1] = [None if samples is None else BatchCount(samples, tokens, padding)]

    def trained_on(self) -> None:
        """The batch that models were called on that nobody trains is trained on after all.

        What a teacher says about a batch before the student sees it is a part of the loss, as it is where the student
        is asked first: forward.
        """
        self.probe.turn_into_forward(self.beside)
        self.beside.clear()

    def look_at_gradients(self, optimizer: int) -> None:
        """In the first steps: an optimizer's turn has ended, by identity, and its gradients are still there."""
        if self.probe.warmup and not self.recording.profiling and optimizer != IN_BACKWARD:
            with self._observations.guard("gradients"):
                self.trained.look_at_gradients(ALONE if self._cycle.alone == optimizer else optimizer)

    def end(self, optimizer: int = IN_BACKWARD) -> None:  # noqa: PLR0915 - it is called once a step
        """The loop's step ends with what its last optimizer has just done, given by identity if it has a turn."""
        state, batches = self.state, self.batches
        if state.evaluated:
            self.give_back_batch()
        self._catch_up()
        if state.given_to:
            self._count(state.given_to, state.rows)
        alone = self._is_alone
        state.rows, state.given_to = self._rows if alone else 0, 0
        samples, tokens, padding = self.add_up(batches)
        calls = 1 if len(self._cycle) > 1 else self._trained_rows[1]
        self._look_for_slices(samples)
        self._rows = self._most_rows = self._masked = 0
        self._called_with.clear()
        self.copies.forget()
        had = len(batches) + self.folded_batches
        # Of two loaders one call uses both.
        micro_steps = min(had, state.forwards or had) if had else self._passes()
        if self.losses.wanted:
            self.losses.step_ends(self.probe.steps_on_tape)
        else:
            self.losses.look()
        self.trained.micro_steps[micro_steps] += 1
        self._micro_steps = micro_steps
        state.same = batches.copy() if batches or alone else None  # what begins a block of steps takes it back
        self._calls_seen = self._calls_seen or state.forwards > 0
        self._count_batch(samples, micro_steps or calls)  # with its end the warm-up may be written
        if self.unseen:
            self.unseen = False
            self.recording.lose_step(self.describe)
        elif self._looks_for_models:
            self.recording.lose_step(self._look_for_models)
        else:
            self.look_at_gradients(optimizer)
            self.recording.end_step(samples, tokens, padding)
        if not self._known:
            self.learn(samples, micro_steps or calls)
        self._row_calls = 0
        self.when_ended()
        state.ended_ns = self.recording.clock()
        if state.ended_ns >= self.trained.beside.due_ns and not (self.probe.capturing or self.recording.profiling):
            self.recording.aside(self.trained.look_beside)
            state.ended_ns = self.recording.clock()
        self.looks.wanted = self.probe.warmup and not self.recording.profiling
        may_be_plain = self.probe.plain and not self.losses.wanted
        # However alike the steps are, when a loss and the memory are both due one is ended in full, and the next one.
        beside_ns = max(self.losses.due_ns, self.probe.memory_due_ns)
        state.due_ns = min(self.recording.quiet_until_ns, beside_ns) if may_be_plain else 0
        state.expect = UNSURE
        if state.same is not None and state.due_ns and self._cycle.alone == optimizer:
            state.expect = BEGUN_ALONE if alone else BEGUN
        state.forwards = 0
        state.unused_wait = False
        batches.clear()
        self.folded_batches = 0

    @property
    def _is_alone(self) -> bool:
        """Whether no batch was seen in the step that ends, and one call of a model tells the rows that it held."""
        had = self.batches or self.folded_batches or self._masked or len(self._cycle) != 1
        return (
            not had and self.state.forwards == self._row_calls == 1 and self._rows > 0 and self.state.shape is not None
        )

    def _look_for_slices(self, samples: int | None) -> None:
        """Whether the calls of the step that ends were on slices of its batches, and how many of one batch.

        The rows of the first calls, as many as there were batches, were not counted: slices together have those of the
        batches, and the first ones are about as large as the others.
        """
        had, forwards = len(self.batches), self.state.forwards
        if not self.rows_wanted or not had or not samples or self.folded_batches or not forwards:
            return
        rows, calls, first = self._rows, self._row_calls, samples - self._rows
        if calls != max(0, forwards - had):  # some were counted in plain steps before
            return
        alike = calls > 0 and 0 < calls * first <= 2 * had * rows
        slices = round(forwards / had) if alike and len(self._cycle) == 1 else 1
        self.trained.slices[slices] += 1
        self.rows_wanted = len(self._cycle) == 1 and self.trained.slices.total() < _LOOKED_FOR_SLICES

    def _passes(self) -> int:
        """No loader: the micro-batches are the calls, where each had a backward of its own; 0 without any."""
        backwards = self.losses.backwards
        if backwards is None:  # as in the last step in which they were counted
            return self._micro_steps if self._row_calls == self._micro_steps else 0
        return backwards if backwards == self._row_calls == self.state.forwards else 0

    def _catch_up(self) -> None:
        """Count the steps that ended without being told of."""
        steps, self.state.plain_steps = self.state.plain_steps, 0
        if steps:
            self.probe.ended(steps)
            self.recording.ended(steps, self.state.ended_ns)
            self.trained.micro_steps[self._micro_steps] += steps

    def give_back_batch(self) -> None:
        """The last batch went into an evaluation: neither it nor the wait for it belongs to the training."""
        self.state.evaluated = self.state.unused_wait = False
        self.beside.clear()
        self.probe.give_back_wait()
        if self.batches:
            self.batches.pop()
        self.when_given_back()

    def add_up(self, batches: Sequence[int | BatchCount | None]) -> Held:
        """Samples, tokens and padding of a step of several batches, or of none that was seen."""
        if not batches:
            masked = self._masked
            held = (masked.tokens, masked.padding_tokens) if isinstance(masked, BatchCount) else (None, None)
            return self.rows_of(self._rows) or None, *held
        with contextlib.suppress(TypeError):  # the usual ones are plain numbers
            return sum(cast("Sequence[int]", batches)), None, None
        counts = Counts.of(batches)
        return counts.samples, counts.tokens, counts.padding_tokens

    def learn(self, samples: int | None, micro_steps: int) -> None:
        """After the first step, which held so much, and as long as no step had any samples."""
        if not self.settled:
            if captures(self.trained.device):  # it comes again with the next step
                return
            self._settle()
        self._count_batch(samples, micro_steps)
        self._known = self.trained.batch_samples is not None or self.recording.steps > DEEPEST_SEARCH

    def _count_batch(self, samples: int | None, micro_steps: int) -> None:
        """A step held so much; one batch of the training's first one with any tells how large they are."""
        if self.trained.batch_samples is None and samples:
            self.trained.batch_samples = max(1, samples // (micro_steps or 1))

    @property
    def _looks_for_models(self) -> bool:
        """Whether it is not known what was called in the step that ends: such a step is no measurement."""
        trained = self.trained
        seen = self._calls_seen and self.state.forwards
        unseen = self.stranger or (not seen and trained.searches <= DEEPEST_SEARCH)
        if not unseen or trained.may_search:
            return unseen
        self.stranger = False
        if not self._told_of_new_models:
            self._told_of_new_models = True
            self._observations.note(
                "new_models",
                "models that are made anew again and again are not looked for each time: such a model's calls are not "
                "seen, and their time is in other",
            )
        return False

    def _look_for_models(self) -> None:
        if not self.search() and not self.state.forwards:
            self.search()  # the outermost ones were known, and are not called
        self.describe()  # a script's function may take the model with it when it ends

    def search(self) -> bool:
        """Look for the models that are trained; true if calls are timed now that were not before."""
        if self.stranger:
            self.stranger = self._calls_seen = False
        found = self.trained.search()
        self.find_main()
        return found

    def look_ahead(self) -> bool:
        """Look what will be trained, before anything has stepped; true if something was found."""
        found = self.trained.look_ahead()
        self.find_main()
        return found

    def _settle(self) -> None:
        """The first step is over: by now it is known what is trained, and where."""
        self.settled = True
        self.evaluations.training_begins()
        with self._observations.guard("facts"):
            self.trained.framework_facts = driving_framework(sys._getframe())
        if self.trained.searches:
            self.recording.aside(self.describe)  # a script's function may take the model with it when it ends
        device = self.trained.device
        events = event_source(device, self.recording.clock)
        self._about.device = describe.device_name(device)
        if events is not None:
            self.recording.use_events(events)
        if device.type == "cpu":
            self._about.why_unseen[str(Phase.TRANSFER)] = "the training runs on the CPU, where no copies are looked for"
        else:
            self.probe.read_memory(LoopMemory(self._observations, device))
            self.when_on_device()
        if device.type != "cpu" or self.trained.autocast is torch.float16:
            self.recording.aside(self._look_for_a_scaler)

    def _look_for_a_scaler(self) -> None:
        if scales_losses(gc.get_objects()):
            self.losses.refuse("a GradScaler multiplies the loss before backward() is called on it")

    def _read_losses(self) -> None:
        self._catch_up()
        self.probe.keep_losses(self.losses.take())

    def describe(self) -> None:
        with self._observations.guard("facts"):
            self.trained.tell(self._about, turns=self._cycle.turns)
            self._about.facts |= self.looks.facts() | self.evaluations.facts()

    def find_main(self) -> None:
        """The first of the models is the one that is looked at at each fetch."""
        if self.trained.main is not None:
            self.state.main = self.trained.main
