"""How a measured number is said in a sentence: ``padding takes 60.6 % of the step``.

Most names of evidence are nouns (``overlap with computation``), of which a sentence makes itself. The others are made
for a table's row, where the rows above say what they are part of (``of the step on padding``); these have their
sentences here, as do shares whose name does not say of what.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

#: What takes a share of the step, by the evidence's name; with a verb in the singular …
_TAKES = {
    "added by measuring": "measuring",
    "beginning passes over the data": "beginning passes over the data",
    "backward": "the backward pass",
    "between a batch and its forward": "what lies between a batch and its forward pass",
    "between backward and the update": "what lies between backward and the update",
    "calling operators": "calling operators",
    "communication, exposed or not": "communication, exposed or not,",
    "computing": "computing",
    "computing again": "computing activations again",
    "computing earlier positions again": "computing earlier positions again",
    "computing the same again": "computing the same again",
    "computing what never changes": "computing what never changes",
    "drawing masks, beyond what it has to take": "drawing masks, beyond what it has to take,",
    "exposed communication": "communication that nothing hides",
    "exposed communication, the copy included": "communication that nothing hides, its copy included,",
    "exposed data wait": "waiting for data",
    "exposed, and backward could hide it": "communication that backward could hide",
    "exposed, and computing could hide it": "communication that computing could hide",
    "fixed cost paid again": "paying the fixed cost again",
    "forward": "the forward pass",
    "getting memory from the kernel": "getting memory from the kernel",
    "inside the loader, exposed or not": "the loader, exposed or not,",
    "linear algebra on diagonal matrices": "linear algebra on diagonal matrices",
    "making constants": "making constants",
    "mean wait for the last rank": "waiting for the last rank",
    "multiplying parameters first": "multiplying parameters with each other",
    "of the step on padding": "padding",
    "optimizer": "the optimizer",
    "other host work": "other work of the host",
    "outside of all phases": "what lies outside of all phases",
    "step on its scores, beside the products": "what attention does with its scores, beside the products,",
    "taking over batches": "taking over batches from workers",
    "update": "the update",
    "update of untouched rows": "updating rows that the step did not touch",
}

#: … and in the plural.
_TAKE = {
    "calls in evaluation mode on batches trained on": "calls in evaluation mode on batches that were trained on",
    "cells and what backward calls as often": "recurrent cells, and what backward calls as often,",
    "copies between host and device": "copies between host and device",
    "copies to the device": "copies to the device",
    "copies, exposed or not": "copies, exposed or not,",
    "cost of small copies": "small copies",
    "exposed copies": "copies that nothing hides",
    "forward and backward": "forward and backward",
    "forward, backward and optimizer": "forward, backward and optimizer",
    "functions written out, beyond calling them": "functions that are written out",
    "gradients inside of forward, and of them": "gradients inside of forward, and those of them,",
    "gradients that nobody uses": "gradients that nobody uses",
    "needless calls in training mode": "needless calls of the model in training mode",
    "needless exchanges": "needless exchanges",
    "pauses between operators": "pauses between operators",
    "penalties on the weights": "penalties on the weights",
    "products in a dearer order": "products in a dearer order",
    "repeated backwards": "repeated backwards",
    "results beside the loss": "results beside the loss",
    "results that nothing uses": "results that nothing uses",
    "small operators called in a loop": "small operators called in a loop",
    "terms multiplied by 0": "terms multiplied by 0",
    "the lines of these products": "the lines of these products",
    "unexplained device gap": "gaps on the device that nothing explains",
}

#: Sentences of their own, with a place for the number and its unit.
_SENTENCES = {
    "R² of step time against tokens": "the R² of step time against tokens is {}",
    "a batch takes one worker": "a batch takes one worker {}",
    "a device computes, the busiest one does not": "for {} of the step a device computes and the busiest one does not",
    "above that, of the step": "{} of the step is more than the update has to take",
    "allocation calls a step": "a step makes {} allocation calls",
    "backward for unused gradients alone": "{} of the backward pass leads to unused gradients alone",
    "backwards a step": "a step calls backward {} times",
    "backwards a step through a kept graph": "a step calls backward {} times through a graph that the one before kept",
    "computing of several devices at once, of all": "{} of all computing goes on on several devices at once",
    "the same for any batch": "{} of the step takes no longer for a larger batch",
    "of the step paid again, by its operators": "micro-batches pay {} of the step again, by their operators",
    "later batches come by the end of a wait": "{} later batches have come by the end of a wait",
    "blocked in forward, backward and optimizer, surely": "the loop's thread is surely blocked for {} of the step",
    "calls on diagonal matrices": "a step makes {} calls on diagonal matrices",
    "the same at 0.25 µs a page": "at 0.25 µs a page it would be {} of the step",
    "masks drawn a step": "a step draws {} masks",
    "numbers of masks a step": "its masks have {} numbers",
    "operators that write it out": "{} operators write it out",
    "times that it is written out": "it is written out {} times",
    "saved in bfloat16": "bfloat16 would save {} of the step",
    "its products in bfloat16, times as fast": "its products are {} times as fast in bfloat16",
    "time with a kernel on the device": "a kernel is on the device for {} of the time",
    "device idle in these phases": "the device has nothing to do for {} of the step in these phases",
    "borders with an empty queue": "the device's queue is empty at {} of the phases' borders",
    "calls of the model to be trained a step": "a step calls the model {} times to be trained",
    "calls that wait for the device, a step": "a step makes {} calls that wait for the device",
    "change from step to step": "from one step to the next the step time changes by {}",
    "change over the trial": "the step time changes by {} over the trial",
    "clock below the highest seen": "the clock lies {} below the highest that was seen",
    "collector's pauses": "the collector's pauses take {} of all time",
    "computing thread not running": "the computing thread is not running for {} of the step",
    "computing within the time of loading": "computing takes {} of the time of loading",
    "computing within the wait": "computing takes {} of the wait for data",
    "computing within the workers": "the workers compute for {} of their time",
    "copies a step": "copies take {} a step",
    "cores used by others": "others use {} of the cores",
    "device behind the host": "the device is behind the host by {} of a step",
    "device idle": "the device is idle for {} of the step",
    "device over host time of the phases": "the device's time in the phases is {} times the host's",
    "energy saved": "{} of the energy would be saved",
    "energy while idle": "{} of the energy is drawn while nothing is computed",
    "exchanges a step": "a step makes {} exchanges",
    "extra wait for first batches": "the longer waits for the first batch of each pass take {} of all time",
    "f20 (starts within 20 µs of the launch)": "{} of the kernels start within 20 µs of their launch",
    "fewest ranks": "the fewest ranks are {}",
    "find_unused_parameters": "find_unused_parameters is {}",
    "fixed cost of the largest batch's step": "fixed cost is {} of the largest batch's step",
    "forward and backward a micro-batch": "forward and backward of a micro-batch take {}",
    "forward and backward a trained tensor": "forward and backward take {} for each trained tensor",
    "above the level of the first steps": "{} of the time lies above the level of the first steps",
    "grown, of the last steps": "what has grown takes {} of the last steps",
    "half-width of the mean step time": "the mean step time is known to within {}",
    "gathering sample by sample within the wait": "fetching and stacking samples takes {} of the wait for data",
    "held in split blocks": "{} of the memory that is held lies idle in split blocks",
    "held over used memory": "the memory that is held is {} times what is used",
    "host in the optimizer": "the host spends {} of the step in the optimizer",
    "idle samples": "the board was idle in {} of the samples",
    "inside of hooks": "{} of the step lies inside of hooks",
    "last third over first": "a step of the last third takes {} times as long as one of the first",
    "launch to start, weighted by duration": "from launch to start it takes {}, weighted by duration",
    "least an update can take": "an update takes at least {}",
    "least that one clipping takes": "clipping once takes at least {}",
    "longest pauses of a step over the median step": "the longest pauses of one step last {} times the median step",
    "loss scale after them": "the loss scale after the steady steps is {}",
    "memory a sample": "a sample takes {} of memory",
    "memory at peak, largest batch": "the largest batch uses {} of the memory at its peak",
    "memory in use": "{} of the memory is in use",
    "memory whatever the batch": "whatever the batch, {} of memory is taken",
    "moved a step": "a step moves {}",
    "not running in forward, backward and optimizer": "the loop's thread is in its work and does not run for {}",
    "pages from the kernel a step": "a step takes {} pages of memory from the kernel",
    "of the best throughput": "the throughput is {} of the best",
    "of the device's work lost to it": "{} of the device's work is lost to it",
    "of the fastest copy": "the step moves bytes at {} of the rate of the fastest copy",
    "of the fastest product": "the step computes at {} of the rate of the fastest product",
    "of them allocation": "allocation takes {} of that",
    "of them freeing, which waits for all streams": "{} of them free memory, which waits for all streams",
    "of what is lost on this beat": "{} of what is lost lies on this beat",
    "of what the link can carry": "copies reach {} of what the link can carry",
    "needless calls in training mode a step": "a step needlessly calls the model {} times in training mode",
    "operators for unused gradients alone": "{} of the backward's operators lead to unused gradients alone",
    "operations done again": "{} of the operations are done again",
    "penalised weights": "the loss has a penalty on {} weights",
    "optimizer a step": "the optimizer takes {} a step",
    "other calls of the model a step": "a step calls the model {} times otherwise",
    "other threads of its process at work": "other threads of its process run, or could, for {} of the time",
    "outside of all phases a step": "what lies outside of all phases takes {} a step",
    "paced by the host": "the host sets the pace for {} of the step",
    "padding among the tokens": "{} of the tokens are padding",
    "part of the device that is held": "{} of the device's memory is held",
    "period": "it returns every {}",
    "products with an operand of zeros, of all operations": "{} of all operations multiply an operand of zeros",
    "products, of all operations": "{} of all operations are products",
    "profiled step over undisturbed step": "a profiled step takes {} as long as an undisturbed one",
    "quota periods held back": "the trial was held back in {} of the quota's periods",
    "read from storage a step": "a step reads {} from storage",
    "read from storage a step of later ones": "a step of later passes reads {} from storage",
    "read from storage a step of the first pass": "a step of the first pass reads {} from storage",
    "ready and without a core": "the loop's thread is ready to run and has no core for {} of the time",
    "repeats differ by": "repeats differ by {}",
    "rows that a step did not touch": "a step did not touch {} of the rows",
    "samples on another node than the device's": "the thread ran off the device's node in {} of the samples",
    "samples of a micro-batch": "a micro-batch has {} samples",
    "samples at the power limit": "the board ran at its power limit in {} of the samples",
    "samples with lowered clocks": "clocks were lowered in {} of the samples",
    "saved by pausing together": "{} of the time would be saved by pausing together",
    "set-up and first step": "set-up and first step take {}",
    "set-up calls": "set-up calls take {} of the recorded time",
    "shared memory in use": "{} of the shared memory is in use",
    "shared memory in use before the training": "{} of the shared memory was in use before the training",
    "skipped updates at least": "at least {} of the updates were skipped",
    "small copies a step": "a step makes {} small copies",
    "step of the first pass over later ones": "a step of the first pass takes {} times as long as a later one",
    "zeros in the operand": "{} of the operand are zeros",
    "steps against the clock around them": "the steps miss the clock around them by {}",
    "steps needed for 2 %": "it would take {} steps to know the mean to within 2 %",
    "steps that allocate": "{} of the steps allocate",
    "the same a micro-batch and trained tensor": "that is {} for each trained tensor",
    "the same a sample": "that is {} a sample",
    "the same a step": "that is {} a step",
    "the same parameters unused in all steps so far": "that the same parameters are unused in all steps so far is {}",
    "the same on the host a step": "on the host that is {} a step",
    "the table, of what the optimizer updates": "the table is {} of what the optimizer updates",
    "these tables, of what the optimizer updates": "these tables are {} of what the optimizer updates",
    "throughput at the largest batch, of the best": "the throughput at the largest batch is {} of the best",
    "throughput at twice the batch, checkpointed": "twice the batch, checkpointed, would have {} more throughput",
    "throughput given up": "{} of the throughput would be given up",
    "time at the power limit": "the board ran at its power limit for {} of the time",
    "time for which heat lowered the clock": "heat lowered the clock for {} of the time",
    "time idle, at least": "the board is idle for at least {} of the time",
    "time lost in long steps without a cause": "{} of the time is lost in long steps without a cause",
    "time with something waiting for a processor": "something waits for a processor for {} of the time",
    "tokens a sample, against the best batch": "a sample has {} of the tokens that it has at the best batch",
    "tokens attended to, at most": "at most {} tokens are attended to",
    "tokens/s at the largest batch, of the best": "the tokens a second at the largest batch are {} of the best",
    "undisturbed, for each operator": "an undisturbed step has {} for each operator",
    "wait for data a step": "waiting for data takes {} a step",
    "waiting for one turn of the workers": "waiting for one of the workers takes {} of all time",
    "waiting calls in the optimizer a step": "a step makes {} waiting calls in the optimizer",
    "warm-up over": "that the warm-up was over is {}",
    "without a core within it": "no core was free for {} of the time of loading",
    "workers that would keep up": "it would take {} of the loader's workers to keep up",
    "workers' CPU time a step": "the workers compute {} for a step",
    "zeroing a step": "zeroing gradients takes {} a step",
    "… of the device's memory": "that is {} of the device's memory",
}

#: The same for names that hold a number or a name of their own.
_PATTERNS = tuple(
    (re.compile(pattern), says)
    for pattern, says in (
        (r"a million samples at batch (.*)", r"a million samples at batch \1 cost {}"),
        (r"change of the sentinel's step time, (.*)", r"the sentinel's step time changes by {} on \1"),
        (
            r"computing thread without a core for (.*)",
            r"the computing thread has no core for {} of the time, because of \1",
        ),
        (r"cost of a (.*)", r"a \1 costs {}"),
        (r"device's work in (.*)", r"{} of the device's work lies in \1"),
        (r"energy a sample at batch (.*)", r"a sample at batch \1 takes {}"),
        (r"excess over the other ranks' median", "the last rank takes {} of a step longer than the others' median"),
        (r"exposed under (.*) a message", r"messages under \1 that nothing hides take {} of the step"),
        (r"idle (after|for|in) (.*)", r"the device is idle \1 \2 for {} of the step"),
        (r"largest over mean (.*)", r"the largest \1 lies {} above the mean"),
        (r"loader worker without a core for (.*)", r"a loader worker has no core for {} of the time, because of \1"),
        (r"lost in (.*)", r"{} of the time is lost in \1"),
        (r"memory of rank (\d+), of the (.*)'s", r"rank \1 uses {} of the \2's memory"),
        (r"of a training of (.*) steps", r"set-up takes {} of a training of \1 steps"),
        (r"of it (in .*)", r"{} of it lies \1"),
        (r"of what is lost, (.*)", r"{} of what is lost lies \1"),
        (r"part of the growth at (.*)", r"{} of the growth was seen at \1"),
        (r"of it (.*)", r"{} of it is \1"),
        (r"overhead at batch (.*)", r"overhead takes {} of a step at batch \1"),
        (r"parameters in (.*)", r"{} of the parameters lie in \1"),
        (r"parameters that got no gradient(.*)", r"{} of the parameters got no gradient\1"),
        (r"rate of copies, of that from (.*)", r"copies reach {} of the rate of those from \1"),
        (r"rise of (.*) memory over the steps", r"\1 memory rises by {} over the steps"),
        (r"step time beyond the expected, batch (.*)", r"at batch \1 a step takes {} longer than expected"),
        (r"steps in which (.*)", r"in {} of the steps \1"),
        (r"(.*) at the (first|last) step", r"the \2 step has {} \1"),
        (r"(.*), more from step to step", r"each step has {} more \1 than the one before"),
        (r"(.*) memory at peak", r"{} of the \1 memory is in use at the peak"),
        (r"(.*), of the device's work", r"{} of the device's work is \1"),
        (r"(.*) over (.*), batch (.*)", r"at batch \3 \1 is {} times as fast as \2"),
        (r"(.*), times as fast", r"\1 would be {} times as fast"),
    )
)

SENTENCES: Mapping[str, str] = MappingProxyType(
    {name: f"{subject} takes {{}} of the step" for name, subject in _TAKES.items()}
    | {name: f"{subject} take {{}} of the step" for name, subject in _TAKE.items()}
    | _SENTENCES
)

#: What a unit is called in a sentence; others stay as they are.
_UNITS = {
    "1": "",
    "1/s": "a second",
    "1/s of CPU time": "for each second of CPU time",
    "×": "times",
}

#: Where a name goes on after the noun that the verb goes with.
_AFTER_NOUN = re.compile(
    r",| (?:a|accumulated|at|back|before|beside|between|beyond|by|compiled|ended|for|from|in|left|marked|of|on|over"
    r"|read|retried|that|there|to|until|with)\b"
)
_NO_PLURAL = re.compile(r"(?:ss|us|is|'s|ness)$")


def unit_words(unit: str) -> str:
    """What comes after a number: ``%`` with its space, ``a second`` for ``1/s``, nothing for a count."""
    words = _UNITS.get(unit, unit)
    return f" {words}" if words else ""


def sentence(metric: str, amount: str, unit: str = "") -> str:
    """A clause that says what was measured, beginning in lower case and without a full stop.

    >>> sentence("of the step on padding", "60.6", "%"), sentence("overlap with computation", "31", "%")
    ('padding takes 60.6 % of the step', 'the overlap with computation is 31 %')
    >>> sentence("threads at work", "16"), sentence("involuntary switches", "5,000", "1/s")
    ('the number of threads at work is 16', 'there are 5,000 involuntary switches a second')

    Args:
        metric: the evidence's name.
        amount: its value as it is to be read.
        unit: the value's unit.
    """
    number = f"{amount}{unit_words(unit)}"
    if metric in SENTENCES:
        return SENTENCES[metric].replace("{}", number)
    for pattern, says in _PATTERNS:
        found = pattern.fullmatch(metric)
        if found is not None:
            return found.expand(says).replace("{}", number)
    if amount == "on":  # a switch, by what is switched on
        return f"{metric} is on"
    if not _is_plural(metric):
        return f"the {metric} is {number}"
    if unit.startswith("1/"):
        return f"there are {amount} {metric}{unit_words(unit)}"
    if unit in ("", "1") and amount[:1].isdigit():
        return f"the number of {metric} is {number}"
    return f"the share of {metric} is {number}" if unit == "%" else f"the {metric} are {number}"


def _is_plural(metric: str) -> bool:
    """Whether the noun that the verb goes with is a plural: the last word before what says of what it is."""
    head = _AFTER_NOUN.split(metric, maxsplit=1)[0].split(" ")[-1]
    return head.endswith("s") and not _NO_PLURAL.search(head)
