"""A pretended CUDA driver under the real ``torch.cuda``: tensors that say ``cuda:0`` and compute on the CPU, late.

What is replaced is what a CUDA build has in ``torch._C``; the Python code of ``torch.cuda`` above it (its checks of
arguments, its lazy initialisation, its device indices) is torch's own. Each operator takes a while on the device's
stream, and the host goes on meanwhile; where CUDA refuses (an allocator before its initialisation, the time of an event
that has not completed), this refuses in the same words.

:func:`install` cannot be taken back: call it in a process of its own.
"""

from __future__ import annotations

import math
import time
import types
import uuid
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

_ATEN = torch.ops.aten
#: Operators that may have tensors of both host and device.
_CROSSING = (_ATEN._to_copy, _ATEN.copy_, _ATEN.index, _ATEN.index_put, _ATEN.index_put_, _ATEN.lift_fresh)
_VIEWS_AND_ROOM = ("view", "detach", "alias", "t", "transpose", "expand", "empty", "empty_like", "empty_strided")
_SEGMENT = 2 * 2**20


@dataclass
class Driver:
    """One board of a CUDA machine, and the runtime in this process."""

    name: str = "Tesla T4"
    capability: tuple[int, int] = (7, 5)
    total_memory: int = 15 * 2**30
    largest_block: int = 280 * 2**20
    operator_ns: int = 100_000
    register_refusal: int = 0
    #: Of the memory the part that torch.cuda.set_per_process_memory_fraction leaves to this process.
    fraction: float = 1.0
    initialised: bool = False
    free_at_ns: int = 0
    allocated: int = 0
    peak: int = 0
    reserved: int = 0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("retries", "ooms", "syncs", "mallocs"), 0))
    calls: list[str] = field(default_factory=list)
    storages: dict[int, int] = field(default_factory=dict)

    def launch(self, ns: int) -> None:
        self.free_at_ns = max(self.free_at_ns, time.perf_counter_ns()) + ns

    def wait(self) -> None:
        while (left_ns := self.free_at_ns - time.perf_counter_ns()) > 0:
            time.sleep(left_ns / 1e9)

    def take(self, key: int, size: int) -> None:
        """A tensor on a storage of this size is there."""
        self.storages[key] = self.storages.get(key, 0) + 1
        if self.storages[key] > 1:
            return
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        while self.allocated > self.reserved:
            self.reserved += _SEGMENT
            self.counts["mallocs"] += 1

    def give(self, key: int, size: int) -> None:
        self.storages[key] -= 1
        if not self.storages[key]:
            del self.storages[key]
            self.allocated -= size

    def require_room(self, size: int) -> None:
        if self.allocated + size > self.fraction * self.total_memory or size > self.largest_block:
            self.counts["retries"] += 1
            self.counts["ooms"] += 1
            self.counts["syncs"] += 1
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {size / 2**20:.2f} MiB. GPU 0 has a total capacity of "
                f"{self.total_memory / 2**30:.2f} GiB"
            )

    def require_init(self, device: int) -> None:
        """As c10/cuda/CUDACachingAllocator.cpp, assertValidDevice: the allocator's devices come with init()."""
        if not isinstance(device, int):
            raise TypeError(f"invalid argument: {device!r}")
        if not self.initialised or device != 0:
            raise RuntimeError(f"Invalid device argument {device}: did you call init?")

    def stats(self, device: int) -> dict[str, Any]:
        self.require_init(device)
        return {
            "allocated_bytes": {"all": {"current": self.allocated, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.reserved, "peak": self.reserved}},
            "inactive_split_bytes": {"all": {"current": 0, "peak": 0}},
            "num_alloc_retries": self.counts["retries"],
            "num_ooms": self.counts["ooms"],
            "num_sync_all_streams": self.counts["syncs"],
            "num_device_alloc": self.counts["mallocs"],
        }

    def reset_peak(self, device: int) -> None:
        self.require_init(device)
        self.peak = self.allocated

    def empty_cache(self) -> None:
        """Before anything is given back, all events are waited for (synchronize_and_free_events)."""
        self.counts["syncs"] += 1

    def leave(self, fraction: float, device: int) -> None:
        self.require_init(device)
        self.fraction = fraction


DRIVER = Driver()


class OnDevice(torch.Tensor):
    """A tensor that says it is on ``cuda:0``; ``held`` has its values.

    For torch's C++ it is on the CPU: autograd of a build without CUDA can have no other. So autocast for CUDA is
    entered, and casts nothing.
    """

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
        )
        made.held = held
        storage = held.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        DRIVER.take(key, size)
        weakref.finalize(made, DRIVER.give, key, size)
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        DRIVER.wait()
        return self.held.clone()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _Everywhere(TorchDispatchMode):
    """Shows the driver what no tensor of its own is an argument of: copies to the device, and tensors made there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    packet = func._overloadpacket
    mine = any(isinstance(leaf, OnDevice) for leaf in tree_leaves((args, kwargs)))
    device = kwargs.get("device")
    target = None if device is None else torch.device(device).type
    if not mine and target != "cuda":
        return func(*args, **kwargs)
    if packet is _ATEN._to_copy and target == "cuda" and isinstance(args[0], OnDevice) and "dtype" not in kwargs:
        return args[0].detach()
    if mine and packet not in _CROSSING:
        _refuse_strangers(func, (args, kwargs))
    inner_args, inner_kwargs = tree_map(_held, (args, kwargs))
    if device is not None:
        inner_kwargs["device"] = torch.device("cpu")
        inner_kwargs.pop("pin_memory", None)
    blocking = not kwargs.get("non_blocking", args[2] if packet is _ATEN.copy_ and len(args) > 2 else False)
    if packet is _ATEN.empty and target == "cuda":
        DRIVER.require_room(math.prod(args[0]) * (kwargs.get("dtype") or torch.get_default_dtype()).itemsize)
    reads = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
    out = func(*inner_args, **inner_kwargs)
    to_host = target == "cpu" or (packet is _ATEN.copy_ and not isinstance(args[0], OnDevice))
    if packet._qualified_op_name.split("::")[1] not in _VIEWS_AND_ROOM:
        DRIVER.launch(DRIVER.operator_ns)
    if reads or (packet in (_ATEN._to_copy, _ATEN.copy_) and blocking and (to_host or _from_host(args))):
        DRIVER.wait()
    if to_host:
        if isinstance(out, torch.Tensor) and any(out is leaf for leaf in tree_leaves(inner_args)):
            return args[0] if packet is _ATEN.copy_ else out.clone()
        return out
    wrapped = tree_map(lambda value: _made(value) if isinstance(value, torch.Tensor) else value, out)
    return return_and_correct_aliasing(func, args, kwargs, wrapped)


def _from_host(args: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and not isinstance(leaf, OnDevice) for leaf in tree_leaves(args))


def _refuse_strangers(func: Any, values: Any) -> None:
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, OnDevice) and leaf.ndim:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
                f"({func})"
            )


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnDevice) else value


def _made(held: torch.Tensor) -> OnDevice:
    storage = held.untyped_storage()
    if storage.data_ptr() not in DRIVER.storages:
        DRIVER.require_room(storage.nbytes())
    return OnDevice(held)


class _EventBase:
    """Stands for ``torch._C._CudaEventBase``, and refuses what that refuses, in its words (c10/cuda/CUDAEvent.h)."""

    at_ns: int | None
    on: int | None
    timing: bool

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> Any:
        made = object.__new__(cls)
        made.timing, made.at_ns, made.on = enable_timing, None, None
        return made

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def record(self, stream: Any) -> None:
        if self.on not in (None, stream.device_index):
            raise RuntimeError(
                f"Event device {self.on} does not match recording stream's device {stream.device_index}."
            )
        assert stream.device_index == 0, "there is one board"
        self.at_ns, self.on = max(DRIVER.free_at_ns, time.perf_counter_ns()), stream.device_index

    def query(self) -> bool:
        return self.at_ns is None or time.perf_counter_ns() >= self.at_ns

    def synchronize(self) -> None:
        while self.at_ns is not None and not self.query():
            time.sleep(max(0, self.at_ns - time.perf_counter_ns()) / 1e9)

    def elapsed_time(self, other: _EventBase) -> float:
        if not (self.timing and other.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.at_ns is None or other.at_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and other.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (other.at_ns - self.at_ns) / 1e6


class _StreamBase:
    """Stands for ``torch._C._CudaStreamBase``."""

    def __new__(cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0) -> Any:
        made = object.__new__(cls)
        made.stream_id, made.device_index = stream_id, device_index  # type: ignore[attr-defined]
        return made

    def __init__(self, *args: Any, **named: Any) -> None:
        pass

    def is_capturing(self) -> bool:
        return False


class _EveryGenerator(type(torch._C.Generator)):  # type: ignore[misc]
    def __instancecheck__(cls, thing: object) -> bool:
        return isinstance(thing, torch._C.Generator)


class _Generator(torch._C.Generator, metaclass=_EveryGenerator):
    """Stands for ``torch.Generator``: one of the device draws on the CPU, where the tensors are."""

    def __new__(cls, device: object = None) -> Any:
        return torch._C.Generator()


@dataclass(frozen=True)
class _CudaError:
    """As pybind11's ``cudaError``: success is as true as any refusal, and no number unless it is made one."""

    value: int

    def __int__(self) -> int:
        return self.value


def _cudart() -> types.SimpleNamespace:
    """The module ``torch.cuda.cudart()`` gives, as far as it is used."""

    def register(pointer: int, size: int, flags: int) -> _CudaError:
        assert pointer and size and flags == 1
        DRIVER.calls.append("register")
        return _CudaError(DRIVER.register_refusal)

    def unregister(pointer: int) -> _CudaError:
        DRIVER.calls.append("unregister")
        return _CudaError(0)

    return types.SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)


def install(**board: Any) -> Driver:
    """Have torch see one board, in this process and for good."""
    for name, value in board.items():
        setattr(DRIVER, name, value)
    properties = types.SimpleNamespace(
        name=DRIVER.name,
        major=DRIVER.capability[0],
        minor=DRIVER.capability[1],
        total_memory=DRIVER.total_memory,
        multi_processor_count=40,
        uuid=uuid.UUID("8932f937-d72c-4106-c12f-20bd9faed9f6"),
        pci_domain_id=0,
        pci_bus_id=0x3B,
        pci_device_id=0,
    )

    def init() -> None:
        DRIVER.initialised = True
        torch.cuda._get_device_properties = lambda _index: properties  # type: ignore[attr-defined]
        torch.cuda.default_generators = (torch.Generator(),)

    def exchange(index: int) -> int:
        if index >= 0:
            torch.cuda._lazy_init()
        return 0 if index >= 0 else -1

    def synchronize() -> None:
        assert DRIVER.initialised
        DRIVER.calls.append("synchronize")
        DRIVER.wait()

    functions: dict[str, Callable[..., Any]] = {
        "_cuda_getDeviceCount": lambda: 1,
        "_cuda_init": init,
        "_cuda_getArchFlags": lambda: "sm_75 sm_80 sm_90",
        "_cuda_getDevice": lambda: exchange(0),
        "_cuda_setDevice": exchange,
        "_cuda_synchronize": synchronize,
        "_cuda_getCurrentStream": lambda device: (0, device, 1),
        "_cuda_memoryStats": DRIVER.stats,
        "_cuda_resetPeakMemoryStats": DRIVER.reset_peak,
        "_cuda_emptyCache": DRIVER.empty_cache,
        "_cuda_setMemoryFraction": DRIVER.leave,
        "_cuda_getCurrentRawStream": lambda _device: 0,
    }
    for name, function in functions.items():
        setattr(torch._C, name, function)
    torch._C._has_cuda = True  # type: ignore[misc]
    torch.version.cuda = "12.6"
    torch.Generator = _Generator
    torch.cuda.graphs._cuda_isCurrentStreamCapturing = lambda: False
    torch.cuda._exchange_device = torch.cuda._maybe_exchange_device = exchange
    torch.cuda._cudart = _cudart()  # type: ignore[attr-defined]
    for base, stand_in in ((torch._C._CudaEventBase, _EventBase), (torch._C._CudaStreamBase, _StreamBase)):
        for name, value in vars(stand_in).items():
            if name not in ("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"):
                setattr(base, name, value)
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cuda")
    torch.accelerator.current_device_index = torch.cuda.current_device
    torch.accelerator.set_device_index = torch.cuda.set_device
    torch.Tensor.pin_memory = lambda self, device=None: self.clone()  # a loader's own thread pins without the mode
    torch.accelerator.current_stream = torch.cuda.current_stream
    torch.accelerator.synchronize = lambda device=None, /: torch.cuda.synchronize(device)
    torch.cuda._check_bf16_tensor_supported = lambda _device: True  # older boards compute it by way of float32
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # .data of a parameter keeps its class
    _Everywhere().__enter__()
    return DRIVER
