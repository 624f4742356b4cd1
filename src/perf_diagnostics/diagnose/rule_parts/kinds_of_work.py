"""What kind of work a phase's time is, beside training: by the libraries that the user's lines were seen to call.

Only what is told by a library's own functions is named: saving goes through a serializer, an evaluation calls a model
or a loader outside of training. Built-in functions (``print``, ``time.sleep``) and the user's own code say nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perf_diagnostics.diagnose.code.code_ways import OURS, Loop, Way, seconds_of
from perf_diagnostics.diagnose.code.phase_looks import PhaseLooks
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Phase

#: The part of ``other`` between a batch and its forward.
PREPARE = "prepare"

#: A kind is named if at least this part of the phase is of it; a line is of the kind that has at least half of it.
LEAST_PART = 0.5
_OF_A_LINE = 0.5


@dataclass(frozen=True)
class KindOfWork:
    """A kind of work: how a summary names it, the names of the functions that do it, and what to try.

    An evaluation calls a model, or loads batches, without training on them.
    """

    name: str
    functions: re.Pattern[str]
    remedy: Remedy

    @property
    def asks_a_model(self) -> bool:
        """Whether what it does is to call a model without training on it."""
        return self is _EVALUATING

    @property
    def computes_metrics(self) -> bool:
        """Whether it may as well be done once a pass, from what each step has added."""
        return self is _METRICS


def _below(*names: str) -> re.Pattern[str]:
    """All functions of these modules, classes and functions, and of those below them."""
    return re.compile(f"(?:{'|'.join(map(re.escape, names))})(?:\\.|$)")


_READING = KindOfWork(
    "reading files",
    re.compile(
        r"numpy\.lib\._?npyio\w*\.(?:NpzFile|load|loadtxt|genfromtxt|fromregex|_read)\b"
        r"|numpy\.lib\._?format\w*\.(?:read_|_read_|open_memmap)|torch\.serialization\.(?:load|_load|_legacy_load)\b"
        r"|zipfile\.(?:ZipExtFile|ZipFile\.(?:open|read))\b|gzip\.(?:GzipFile\.read|_GzipReader)\b|_compression\."
        r"|joblib\.numpy_pickle\.load|h5py\._hl\.dataset\.Dataset\.(?:__getitem__|read_direct)\b"
        r"|pandas\.io\.\w+\.(?:read_|\w+\.read_)|pyarrow\.parquet\.(?:core\.)?read_|PIL\.(?:Image\.open|ImageFile\.ImageFile\.)"
    ),
    Remedy(
        "Read it once, before the loop, and keep what is used: a compressed .npz unpacks a whole array at each access "
        "(images = archive['images'], once); of what does not fit in memory, map an .npy file "
        "(np.load(path, mmap_mode='r')), or read in a DataLoader's workers."
    ),
)
_SAVING = KindOfWork(
    "saving",
    _below(
        *("torch.serialization", "torch.distributed.checkpoint", "safetensors", "pickle", "joblib", "h5py"),
        *("numpy.lib.npyio", "numpy.lib._npyio_impl", "numpy.lib.format", "numpy.lib._format_impl", "shutil"),
        *("transformers.trainer.Trainer._save_checkpoint", "lightning.pytorch.callbacks.model_checkpoint"),
        "pytorch_lightning.callbacks.model_checkpoint",
    ),
    Remedy(
        "Save less often and only what is needed, or in the background: copy the state, and let a thread write it. Of "
        "a tensor that is a part of a larger one torch.save writes the whole: .clone() it first."
    ),
)
_LOGGING = KindOfWork(
    "logging",
    _below(
        *("logging", "loguru", "tqdm", "rich", "torch.utils.tensorboard", "tensorboard", "tensorboardX"),
        *("wandb", "mlflow", "comet_ml", "neptune", "csv", "transformers.trainer.Trainer.log"),
        *("lightning.pytorch.loggers", "pytorch_lightning.loggers"),
        *("lightning.pytorch.core.module.LightningModule.log", "pytorch_lightning.core.module.LightningModule.log"),
        "lightning.pytorch.core.module.LightningModule.log_dict",
        "pytorch_lightning.core.module.LightningModule.log_dict",
    ),
    Remedy(
        "Log every so many steps instead of each, and collect numbers as tensors until then; what has to be written in "
        "between a thread of its own can write."
    ),
)
_METRICS = KindOfWork(
    "computing metrics",
    _below(
        *("sklearn", "torchmetrics", "torcheval", "ignite.metrics", "evaluate", "scipy"),
        *("seqeval", "sacrebleu", "rouge_score", "jiwer", "nltk.translate", "pycocotools"),
    ),
    Remedy(
        "Compute metrics once a pass, or every so many steps, from what is added up step by step: of torchmetrics and "
        "torcheval update() in each step, compute() and reset() at the pass's end. A curve or a ranking (AUROC) goes "
        "through all predictions that it was given, each time it is asked."
    ),
)
_PICTURES = KindOfWork(
    "drawing",
    _below("matplotlib", "seaborn", "plotly", "torchvision.utils", "imageio"),
    Remedy("Draw less often, or from saved numbers in another process."),
)
_IMAGES = KindOfWork(
    "writing images",
    _below(
        *("PIL.Image.Image.save", "PIL.ImageFile._save", "PIL.ImageFile._encode_tile", "PIL.PngImagePlugin._save"),
        *("PIL.JpegImagePlugin._save", "PIL.WebPImagePlugin._save", "torchvision.io.image.write_png"),
        *("torchvision.io.image.write_jpeg", "skimage.io"),
    ),
    Remedy("Write images less often, smaller or compressed less, or hand them to a thread or process that does it."),
)
_COPYING = KindOfWork(
    "copying objects",
    _below("copy"),
    Remedy("Copy less often: what is only read needs no copy, and an average of weights can be updated in place."),
)
_NETWORK = KindOfWork(
    "calling a service or another program",
    _below("requests", "urllib", "urllib3", "http", "httpx", "ssl", "socket", "subprocess", "boto3", "botocore"),
    Remedy("Call it less often, or in a thread of its own."),
)

#: A module's own functions (``state_dict``, ``zero_grad``) are no evaluation; calling it is.
_CALLED = r"torch\.nn\.modules\..*\.(?:forward|_wrapped_call_impl|_call_impl)$"
_EVALUATION_LOOPS = (
    r"torch\.utils\.data\.|transformers\.trainer\.Trainer\.evaluate$"
    r"|(?:lightning\.pytorch|pytorch_lightning)\.loops\.evaluation_loop\."
)
_EVALUATING = KindOfWork(
    "evaluation",
    re.compile(f"{_CALLED}|{_EVALUATION_LOOPS}"),
    Remedy("Evaluate less often, on fewer samples or in larger batches, in inference mode."),
)

_KEEPING = KindOfWork(
    "keeping an evaluation's outputs",
    re.compile(
        r"transformers\.trainer_pt_utils\.(?:EvalLoopContainer\.|nested_|torch_pad_and_concatenate|numpy_pad_and_)"
    ),
    Remedy(
        "Keep less of it: transformers' Trainer puts the outputs of all samples together before compute_metrics sees "
        "them, batch by batch into a larger tensor. Trainer(…, preprocess_logits_for_metrics=lambda logits, labels: "
        "logits.argmax(-1)) keeps what the metrics need (logits may be a tuple), TrainingArguments("
        "prediction_loss_only=True) nothing."
    ),
)

_STATISTICS = KindOfWork(
    "estimating the batch norms' statistics of averaged weights",
    _below("torch.optim.swa_utils.update_bn"),
    Remedy(
        "Estimate them once, before the averaged model is used: update_bn goes through all batches, and each call "
        "starts anew. During the training a few batches do for a look at it, as update_bn(itertools.islice(loader, "
        "10), model); an average with use_buffers=True keeps running statistics of its own."
    ),
)

_TEXT = KindOfWork(
    "turning tensors into text",
    _below("torch._tensor_str", "torch._tensor.Tensor.__repr__", "torch._tensor.Tensor.__format__"),
    Remedy(
        "Make no text of tensors in each step: an f-string is made before the logger is asked whether it writes. Ask "
        "first (if logger.isEnabledFor(logging.DEBUG)), or hand the logger the parts (logger.debug('%s', x)); every so "
        "many steps, and a number in place of a tensor."
    ),
)

_CHECKING = KindOfWork(
    "checking arguments",
    _below(
        *("torch.distributions.constraints", "torch.distributions.distribution.Distribution._validate_sample"),
        *("torch.distributions.distribution.Distribution.__init__", "beartype", "typeguard", "jaxtyping"),
    ),
    Remedy(
        "Leave the checks out once the training is known to be right: of torch.distributions with "
        "torch.distributions.Distribution.set_default_validate_args(False) before the loop (or validate_args=False, or "
        "python -O); checks of types and shapes by a setting of their own. Each looks at all numbers and waits for it."
    ),
)

#: What may be done inside of forward, backward and optimizer, in their order: a logger may be handed metrics, and these
#: copy what they keep. A service and another program are none, which HST012 sees waited for.
INSIDE = (_SAVING, _PICTURES, _IMAGES, _TEXT, _LOGGING, _METRICS, _CHECKING, _COPYING)

#: What metrics do that are computed once a pass: they take in each batch.
_TAKES_IN = re.compile(r"(?:torchmetrics|torcheval|ignite\.metrics)\..*\.update$|evaluate\..*\.add(?:_batch)?$")

#: What no loss is computed with.
_CHORES = (_SAVING, _LOGGING, _PICTURES, _IMAGES, _TEXT)

#: From this part of an evaluation on what it keeps is told. A judgement.
_WORTH_SAYING = 0.2

#: In their order: what an evaluation logs or saves is that first.
KINDS = (
    *(_READING, _SAVING, _LOGGING, _PICTURES, _IMAGES, _METRICS, _NETWORK, _COPYING, _STATISTICS, _KEEPING),
    _EVALUATING,
)


@dataclass(frozen=True)
class Work:
    """The kind of most of a phase's time: the part of it, and the line of the loop with most of that.

    Of an evaluation ``keeping`` is the part of that in which its outputs are kept.
    """

    kind: KindOfWork
    part: float
    line: CodePlace
    keeping: float = 0.0

    @property
    def says(self) -> str:
        """``evaluation``, or ``evaluation, 45 % of it keeping its outputs``."""
        return (
            f"{self.kind.name}{f', {percent(self.keeping)} of it keeping its outputs' if self.against_keeping else ''}"
        )

    @property
    def against_keeping(self) -> tuple[Remedy, ...]:
        """What to try beside what is tried against the kind."""
        return (_KEEPING.remedy,) if self.keeping >= _WORTH_SAYING else ()


def kind_inside(path: CodePath, code: CodeSamples) -> KindOfWork | None:
    """Of a look inside of forward, backward or the optimizer: the work that was seen, if it is no training.

    A metric may be what is trained on (1 - ssim(...)). So it counts only at a line that no loss depends on, by the
    program's text, and not where it only takes in a batch.
    """
    calls = (*path.via, *path.calls)
    kind = next((one for one in INSIDE if any(one.functions.match(call) for call in calls)), None)
    if kind is _METRICS and (not _is_unread(path, code) or _takes_in(path, code)):
        return None
    return kind


def _takes_in(path: CodePath, code: CodeSamples) -> bool:
    """Whether a metric was seen taking in a batch: a library's, or one of the user's that a library's class calls."""
    own = any(code.places[number].function.endswith(".update") for number in path.places)
    return own or any(_TAKES_IN.match(call) for call in (*path.via, *path.calls))


def _is_unread(path: CodePath, code: CodeSamples) -> bool:
    """Whether no loss depends on the line at which somebody was seen; where its text does not tell, its callers do."""
    roles = [code.roles[number] for number in path.places if code.roles[number]] if code.roles else []
    return bool(roles) and roles[-1] == "unread"


def is_chore(path: CodePath) -> bool:
    """Whether a library's function was seen that saves, logs, draws or makes text."""
    calls = (*path.via, *path.calls)
    reads = any(_READING.functions.match(call) for call in calls)
    return not reads and any(kind.functions.match(call) for kind in _CHORES for call in calls)


def calls_a_module(path: CodePath) -> bool:
    """Whether a module was seen being called."""
    return any(re.match(_CALLED, call) for call in (*path.via, *path.calls))


def kind_of_work(
    facts: TrialFacts, phase: str, leaves_out: Callable[[CodePath], bool] = lambda _path: False
) -> Work | None:
    """What most of a phase's time is spent on; None where nobody looked, or no kind has at least half of it.

    Args:
        facts: of the trial.
        phase: by its name.
        leaves_out: looks of which it is known what they are; at least half of the others' time is asked for.
    """
    looks = PhaseLooks.of(facts, phase)
    if looks is None:
        return None
    left_s = looks.seconds(path for path in looks.paths if not leaves_out(path))
    depth = Loop.of(looks.code).depth
    by_line: defaultdict[CodePlace, list[Way]] = defaultdict(list)
    # Where no loader is watched, the training's own batches are loaded outside of the phases; and what calls a module
    # between a batch and its forward prepares that batch.
    kinds = KINDS if facts.table.host_ns(Phase.DATA_WAIT) is not None else KINDS[:-1]
    for path in looks.paths:
        if path.places and path.part != PREPARE and not leaves_out(path):
            way = Way.of(path, looks.code)
            by_line[way.lines[min(depth, len(way.lines)) - 1]].append(way)
    by_kind: defaultdict[str, list[tuple[float, CodePlace]]] = defaultdict(list)
    for line, ways in by_line.items():
        kind = _kind_of(ways, kinds)
        if kind is not None:
            by_kind[kind.name].append((seconds_of(ways), line))
    for kind in kinds:
        found = by_kind.get(kind.name, [])
        seconds = sum(one for one, _ in found)
        if found and seconds >= LEAST_PART * left_s:
            most = max(found, key=lambda one: one[0])[1]
            keeping = _kept_s(by_line, [line for _, line in found]) if kind is _EVALUATING else 0.0
            return Work(kind, seconds / looks.whole_s, most, keeping / seconds)
    return None


def _kept_s(by_line: Mapping[CodePlace, Sequence[Way]], lines: Sequence[CodePlace]) -> float:
    """The time at these lines in which an evaluation's outputs are kept."""
    return seconds_of(way for line in lines for way in by_line[line] if _does(way, _KEEPING))


def _kind_of(ways: Sequence[Way], kinds: Sequence[KindOfWork]) -> KindOfWork | None:
    """The first kind that a line's calls are of, for at least half of its time: an evaluation is one of all it does."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for way in ways:
        for kind in kinds:
            if _does(way, kind):
                seconds[kind.name] += way.seconds
    return next((kind for kind in kinds if seconds[kind.name] >= _OF_A_LINE * seconds_of(ways)), None)


def _does(way: Way, kind: KindOfWork) -> bool:
    return way.calls != OURS and any(kind.functions.match(call) for call in (*way.via, *way.calls))
