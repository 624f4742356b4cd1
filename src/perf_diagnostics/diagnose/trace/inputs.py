"""What a trace says about the inputs of products, attention, losses and tables, and of collectives' messages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

#: Matrix products by the place of the first factor among their inputs; the second follows it (aten/native_functions).
PRODUCTS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("aten::mm", "aten::bmm", "aten::_int_mm", "aten::_scaled_mm"), 0),
        **dict.fromkeys(("aten::addmm", "aten::baddbmm"), 1),
    }
)

SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data")

#: Looking rows up in a table, which comes first, by numbers, which come second.
LOOK_UPS = ("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag")

#: Layers by their input, which comes first, and the weight: products whatever the number of the input's dimensions.
LAYERS = ("aten::linear", "aten::matmul")

#: What a loss of classes calls, forward and backward.
CROSS_ENTROPY = (
    *("aten::_log_softmax", "aten::_log_softmax_backward_data"),
    *("aten::nll_loss_forward", "aten::nll_loss_backward"),
    *("aten::nll_loss2d_forward", "aten::nll_loss2d_backward"),
)

#: Losses, and what stands before some: the rows that they are given tell how many of a product's were taken.
LOSSES = tuple(
    f"aten::{name}"
    for name in (
        *("cross_entropy_loss", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"),
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "log_softmax", "sigmoid"),
    )
)

#: What a weight goes through that is made of others, number by number, and what normalises it.
BY_NUMBER = ("aten::mul", "aten::add")
NORMS = ("aten::linalg_vector_norm", "aten::norm")

#: What squares, and other powers; what numbers go through whose absolute values or distances are asked for; and what
#: adds all of them up.
POWER = "aten::pow"
_NUMBERS = ("aten::square", "aten::abs", "aten::sub")
TOTALS = ("aten::sum", "aten::mean")

#: What else functions such as a layer's norm are written out with: reductions, which tell along what, and another one.
_REDUCTIONS = ("aten::var", "aten::std", "aten::amax", "aten::max")
_FUNCTIONS = ("aten::erf",)

#: Convolutions by their input, which comes first, and the weight: all call this one.
CONVOLUTION = "aten::convolution"
CONVOLUTIONS = ("aten::conv1d", "aten::conv2d", "aten::conv3d")

#: Attention by its query, key and value, a mask, the part to drop, and whether it is causal.
ATTENTION = "aten::scaled_dot_product_attention"

#: Fourier transforms by their input and the dimensions; the way back to real numbers has the length last.
TRANSFORMS = ("aten::_fft_r2c", "aten::_fft_c2c", "aten::_fft_c2r")

#: What puts numbers in order (``argsort``, ``msort`` and ``quantile`` call it), and what takes some of a dimension's.
SORT, _SLICE = "aten::sort", "aten::slice"
CUTS = (_SLICE, "aten::select")
_ALONG = frozenset((SORT, *CUTS))

#: What makes tensors of numbers alone: grids of their arguments, and filled ones of the sizes that come first.
GRIDS = ("aten::arange", "aten::linspace", "aten::logspace", "aten::eye")
FILLED = ("aten::ones", "aten::zeros", "aten::full")
TRIANGLES = ("aten::tril", "aten::triu")

#: What computes each number by itself, or arranges numbers otherwise; the last ones of lists of tensors.
OF_LISTS = ("aten::cat", "aten::stack", "aten::meshgrid")
EACH_NUMBER = frozenset(
    (
        *(f"aten::{name}" for name in (
            *("abs", "neg", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "pow", "square", "sign"),
            *("floor", "ceil", "round", "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "logical_not"),
            *("add", "sub", "rsub", "mul", "div", "floor_divide", "remainder", "lt", "le", "gt", "ge", "eq", "ne"),
            *("add_", "sub_", "mul_", "div_", "exp_", "neg_", "copy_", "fill_", "masked_fill", "masked_fill_", "where"),
            *("bitwise_not", "bitwise_and", "bitwise_or", "logical_and", "logical_or", "cumsum", "outer", "to"),
            *("clone", "contiguous", "view", "reshape", "expand", "expand_as", "unsqueeze", "squeeze", "transpose"),
            *("t", "permute", "flatten", "slice", "select", "repeat", "flip", "unbind", "detach", "alias"),
        )),
        *(*TRIANGLES, *OF_LISTS),
    )
)  # fmt: skip

#: What inverts matrices.
INVERSES = ("aten::inverse", "aten::linalg_inv")

#: What makes matrices of their diagonals, and what factorises matrices, inverts them, or solves with them.
DIAG_EMBED = "aten::diag_embed"
LINEAR_ALGEBRA = (
    *INVERSES,
    *(
        f"aten::linalg_{name}"
        for name in (
            "cholesky",
            "cholesky_ex",
            "solve_triangular",
            "solve",
            "det",
            "slogdet",
            "eigh",
            "svd",
            "qr",
            "lu",
        )
    ),
    *(f"aten::{name}" for name in ("triangular_solve", "cholesky_solve", "logdet", "slogdet")),
)

#: What makes rows with a single one in each, and rows that are copies of those that come first.
ONE_HOT = "aten::one_hot"
COPIES = ("aten::index", "aten::index_select", "aten::repeat", "aten::repeat_interleave", "aten::expand")

#: How alike two tensors are along a dimension, and how far from each other along the last: both spread them.
COSINE, DISTANCE = "aten::cosine_similarity", "aten::pairwise_distance"

#: What makes images, or what is like them, larger.
INTERPOLATIONS = tuple(
    f"aten::upsample_{name}"
    for name in ("linear1d", "nearest1d", "nearest2d", "bilinear2d", "bicubic2d", "nearest3d", "trilinear3d")
)

#: What joins a list of tensors, of which the first ones are kept.
JOINS = ("aten::cat", "aten::concat", "aten::concatenate")

#: What reads a matrix' diagonal.
DIAGONALS = ("aten::diagonal", "aten::diag", "aten::trace")

#: Collectives as torch.distributed notes them on the host, where their kernels do not say it themselves.
COMMUNICATION = "record_param_comms"

#: The operators whose arguments are kept; those of the others would fill the memory and answer nothing.
SHAPED = frozenset(
    (
        *(*PRODUCTS, *SOFTMAX, *LOOK_UPS, *LAYERS, *CROSS_ENTROPY, *TRANSFORMS, *BY_NUMBER, *NORMS, *_NUMBERS, *TOTALS),
        *(*CUTS, *DIAGONALS, *LOSSES, *GRIDS, *FILLED, *EACH_NUMBER, *_REDUCTIONS, *_FUNCTIONS),
        *(
            *COPIES,
            *LINEAR_ALGEBRA,
            *CONVOLUTIONS,
            *INTERPOLATIONS,
            COSINE,
            DIAG_EMBED,
            "aten::isclose",
            DISTANCE,
            ONE_HOT,
            "aten::type_as",
            POWER,
            SORT,
            CONVOLUTION,
            ATTENTION,
            COMMUNICATION,
        ),
    )
)

#: … and of which the arguments that are no tensors are kept as well.
_WITH_NUMBERS = frozenset((*TRANSFORMS, *NORMS, *TOTALS, *_REDUCTIONS, *GRIDS, *FILLED, POWER, ATTENTION, COSINE))

#: Numbers of 64 bits, and pairs of them, as torch writes their types in traces; a number of Python's is a ``Scalar``.
DOUBLES = ("double", "c10::complex<double>")

#: How the names of operators begin that take lists of tensors: an optimizer's, for all of its parameters at once.
LISTED = ("aten::_foreach_", "aten::_fused_")

#: Bytes of an element, by the names that torch gives its types in traces.
_ELEMENT_BYTES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("Byte", "Char", "Bool"), 1),
        **dict.fromkeys(("Float8_e4m3fn", "Float8_e5m2", "Float8_e4m3fnuz", "Float8_e5m2fnuz"), 1),
        **dict.fromkeys(("Half", "BFloat16", "Short"), 2),
        **dict.fromkeys(("Float", "Int"), 4),
        **dict.fromkeys(("Double", "Long", "ComplexFloat"), 8),
    }
)

#: … and by those of C++, as the inputs of operators have them.
_CPP_BYTES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("unsigned char", "signed char", "bool"), 1),
        **dict.fromkeys(("c10::Half", "c10::BFloat16", "short int"), 2),
        **dict.fromkeys(("float", "int"), 4),
        **dict.fromkeys(("double", "long int"), 8),
    }
)

#: So many inputs hold what is asked of the operators here: a bias and two factors; attention's three and its mask.
_INPUTS, _OF_ATTENTION = 3, 4

#: Of arguments that are no tensors so many hold what is asked, and each is a short text.
_ARGUMENTS, _LONGEST = 8, 40

#: More kinds of inputs, or of messages, than this are not kept: lengths that vary make some hundreds.
MOST_KINDS = 100_000

#: No tensor has more dimensions, and no dimension, message or job more elements; more is a broken number.
_MOST_DIMENSIONS, _LARGEST = 8, 2**48

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Inputs:
    """An operator's inputs: sizes, element types as torch writes them, and strides (empty: not recorded).

    ``numbers`` are the arguments as torch writes those that are no tensors ("" in a tensor's place), of attention,
    transforms, norms, sums, powers and of what makes tensors of numbers alone; of sorts, and of what takes some of a
    dimension's places, the dimension and how many.
    """

    sizes: tuple[Sizes, ...]
    types: tuple[str, ...]
    strides: tuple[Sizes, ...] = ()
    numbers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Message:
    """What a collective moves: its kind, and the bytes of the larger of what goes in and out."""

    collective: str
    bytes: int


class SeenInputs:
    """The inputs of operators, each kind once: a trace has a few hundred kinds, however many operators."""

    def __init__(self) -> None:
        self.kept: list[Inputs] = []
        self._numbers: dict[Any, int] = {}
        self._of_doubles = -1

    def number_of_doubles(self, about: Mapping[str, Any]) -> int:
        """The place in :attr:`kept` of what stands for all tensors of 64 bits of operators whose sizes are not kept; -1
        where none is among the inputs.
        """
        types, sizes = about.get("Input type"), about.get("Input Dims")
        if types.__class__ is not list or sizes.__class__ is not list:
            return -1
        if DOUBLES[0] not in types and DOUBLES[1] not in types:  # next to all: asked without a generator
            return -1
        # Of one number the sizes are empty: it makes nothing else one of 64 bits.
        if not any(kind in DOUBLES and size for kind, size in zip(types, sizes, strict=False)):
            return -1
        if self._of_doubles < 0:
            self._of_doubles = len(self.kept)
            self.kept.append(Inputs((), DOUBLES[:1]))
        return self._of_doubles

    def number(self, name: str, about: Mapping[str, Any]) -> int:
        """The place in :attr:`kept` of what an operator's arguments tell; -1 where they do not (``record_shapes``)."""
        if name in JOINS:
            about = _of_the_list(about)
        try:
            key = (
                *_key(about, _OF_ATTENTION if name == ATTENTION else _INPUTS),
                _numbers(about) if name in _WITH_NUMBERS else _along(name, about) if name in _ALONG else (),
            )
            found = self._numbers.get(key)
        except (KeyError, TypeError):  # no list of lists
            return -1
        if found is None:
            found = -1
            if len(self._numbers) >= MOST_KINDS:
                return found
            if _sound(key[:3]):
                found = len(self.kept)
                self.kept.append(Inputs(*key))
            self._numbers[key] = found
        return found


def _of_the_list(about: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first tensors of a list that an operator is given, as if each were an argument."""
    sizes = about.get("Input Dims")
    listed = sizes[0] if isinstance(sizes, list) and sizes else None
    if not isinstance(listed, list):
        return {}
    return {"Input Dims": listed[:_INPUTS], "Input type": [""] * min(len(listed), _INPUTS)}


def _key(about: Mapping[str, Any], most: int) -> tuple[Any, Any, Any]:
    """Sizes, types and strides of the first inputs, hashable; raises TypeError where they are no lists."""
    sizes, types = about["Input Dims"], about["Input type"]
    strides = about.get("Input Strides") or ()
    return (
        tuple(map(tuple, sizes[:most])),
        tuple(types[:most]),
        tuple(map(tuple, strides[:most])),
    )


def _numbers(about: Mapping[str, Any]) -> tuple[str, ...]:
    """The arguments that are no tensors; none where they are not told as they should."""
    told = about.get("Concrete Inputs")
    if not isinstance(told, list):
        return ()
    kept = tuple(told[:_ARGUMENTS])
    return kept if all(type(one) is str and len(one) <= _LONGEST for one in kept) else ()


def _along(name: str, about: Mapping[str, Any]) -> tuple[str, ...]:
    """Along which dimension it sorts or takes places, and how many ("", dimension, count); where these lie would make
    each slice of a loop a kind of its own. None where that is not told.
    """
    numbers = _numbers(about)
    try:
        sizes = about["Input Dims"][0]
        dimension = int(numbers[-2 if name == SORT else 1]) % len(sizes)
        count = sizes[dimension] if name == SORT else 1
        if name == _SLICE:
            start, end = (int(one) if one else None for one in numbers[2:4])
            count = len(range(*slice(start, end, int(numbers[4])).indices(sizes[dimension])))
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        return ()
    return ("", str(dimension), str(count))


def _sound(key: tuple[Any, Any, Any]) -> bool:
    sizes, types, strides = key
    return all(type(one) is str for one in types) and all(
        len(one) <= _MOST_DIMENSIONS and all(type(n) is int and 0 <= n < _LARGEST for n in one)
        for one in (*sizes, *strides)
    )


def tensors_listed(about: Mapping[str, Any]) -> int:
    """How many tensors the first list holds that an operator takes; -1 where its arguments do not tell."""
    sizes = about.get("Input Dims")
    first = sizes[0] if isinstance(sizes, list) and sizes else None
    # Of a list of tensors the sizes of each are told, as a list.
    return len(first) if isinstance(first, list) and first and all(isinstance(one, list) for one in first) else -1


def message_of(about: Mapping[str, Any]) -> Message | None:
    """The message that a collective's arguments tell, or None where they do not."""
    each = _ELEMENT_BYTES.get(str(about.get("dtype")))
    counts = [n for key in ("In msg nelems", "Out msg nelems") if (n := _count(about.get(key))) is not None]
    name = about.get("Collective name")
    if each is None or not counts or not isinstance(name, str):
        return None
    return Message(name, each * max(counts))


def message_of_range(name: str, about: Mapping[str, Any]) -> Message | None:
    """The message that a range of the host's around a collective tells, by what it is given; None where it does not."""
    sizes, types = about.get("Input Dims"), about.get("Input type")
    if not isinstance(sizes, list) or not isinstance(types, list):
        return None
    whole = 0
    for size, kind in zip(sizes, types, strict=False):
        each = _CPP_BYTES.get(kind) if isinstance(kind, str) else None
        counts = [_count(one) for one in size] if isinstance(size, list) else []
        if each is None or None in counts:
            return None
        whole += each * math.prod(one for one in counts if one is not None)
    return Message(name.partition(":")[2], whole) if whole else None


def _count(given: Any) -> int | None:
    return given if type(given) is int and 0 <= given < _LARGEST else None
