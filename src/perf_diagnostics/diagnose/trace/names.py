"""What the names in a trace mean: communication, copies, waits, allocations, loaders, matrix products.

Each question is put once to each distinct name, and answered for all events by indexing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.trace.events import Bool, Events

#: NCCL and RCCL kernels; MSCCL, NVSHMEM and DeepEP's are named after their libraries; HCCL and oneCCL theirs. Others
#: are named after what they do: torch's symmetric memory ("multimem_all_reduce_kernel", "two_shot_all_reduce_kernel",
#: CUDASymmetricMemoryOps.cu), TensorRT-LLM's and vLLM's own. ("small_gather" gathers nothing from other ranks.)
_COMMUNICATION = re.compile(
    r"(?i:nccl|rccl|msccl|nvshmem|deep_ep|hccl|oneccl|cross_device_reduce|symm_mem|multimem_)"
    r"|(?<![A-Za-z])(all_?reduce|all_?gather|all_?to_?all|reduce_?scatter)|All(Reduce|Gather|ToAll)|ReduceScatter"
)

#: Ranges of collectives that the host itself carries out, from their start to their end: torch notes them on threads
#: of the backend's own, as "gloo:all_reduce". (NCCL's such ranges only launch.)
_HOST_COLLECTIVE = re.compile(r"^(gloo|mpi|ucc):")

#: Operators that hand a collective over, or wait for it: no work.
_HANDING_OVER = re.compile(r"^_?c10d(_functional)?::")

_TO_DEVICE = re.compile(r"HtoD|Host ?-> ?Device|HostToDevice", re.IGNORECASE)
_TO_HOST = re.compile(r"DtoH|Device ?-> ?(Pageable|Pinned|Host)|DeviceToHost", re.IGNORECASE)
_PEER = re.compile(r"PtoP|DeviceToDevice \(peer", re.IGNORECASE)
_PAGEABLE = re.compile(r"Pageable", re.IGNORECASE)

#: How autograd names the operators of a backward pass, before what they compute.
ENGINE = "autograd::engine::evaluate_function: "

#: Calls that return when the device has done its work.
_WAIT = re.compile(r"^(cuda|hip|cu)(Stream|Device|Event|Ctx)Synchronize|^(cuda|hip)Memcpy(2D|3D)?$")

#: Among them those that wait for all streams of a device.
_WAIT_FOR_DEVICE = re.compile(r"^((cuda|hip)Device|(cu|hip)Ctx)Synchronize$")

#: Calls that take memory from the driver or give it back. cudaMallocAsync serves from a pool and is none.
_ALLOCATION = re.compile(
    r"^(cuda|hip)(Malloc(Host|Managed|Pitch|Array)?|Free(Host|Array)?|Host(Alloc|Malloc|Free|Register|Unregister)"
    r"|ExtMallocWithFlags)$|^cuMem(Create|Map|Unmap|Release|SetAccess|AddressReserve|AddressFree|Alloc|Free)(_v\d)?$"
)

#: Among them those that give memory back; before, the caching allocator and the driver wait for all streams
#: (``num_sync_all_streams`` of torch.cuda.memory_stats).
_FREEING = re.compile(r"^(cuda|hip)(Free|HostFree)(Host|Array)?$|^cuMem(Release|Unmap|Free)(_v\d)?$")

#: Calls that hand work to the device or order it: what a steady step is made of.
_ORDERING = re.compile(r"Launch|Memcpy|Memset|Memory|Event|Synchronize|StreamWait|Capturing|Capture|Occupancy|INVALID")

_KERNEL_LAUNCH = re.compile(r"LaunchKernel|LaunchCooperativeKernel")

#: The calls between which a stream only notes what is launched on it, for a graph.
_CAPTURE_BEGINS = re.compile(r"^(cuda|hip|cu)StreamBeginCapture")
_CAPTURE_ENDS = re.compile(r"^(cuda|hip|cu)StreamEndCapture")
_GRAPH = re.compile(r"GraphLaunch")
_COPY_CALL = re.compile(r"Memcpy")

#: Matrix products and convolutions, which tensor cores could do: cuBLAS, cuDNN, CUTLASS, Tensile (ROCm), Triton's.
_MATMUL = re.compile(
    r"gemm|gemv|scudnn|hcudnn|convolve|conv2d|conv_|wgrad|dgrad|fprop|winograd|fft2d|cutlass|xmma|Cijk_|nvjet|_mm_|bmm|miopen.*conv",
    re.IGNORECASE,
)

#: Among them those that say single precision on ordinary cores: cuBLAS's s-gemm, cuDNN's float engines and s-cudnn,
#: CUTLASS's "simt" and xmma's "ffma", Tensile's SB. TF32 and half types name their type or shape and match nothing.
_FLOAT32 = re.compile(
    r"(?<![a-z0-9])(ampere|volta|maxwell|turing|pascal)?_?sgemm|_scudnn_|_sgemm<float|simt_sgemm|ffma|_S_?B_MT"
    r"|(engine|convolve_sgemm|winograd\w*|gemmSN_\w+|gemv\w*)<float|fft2d_\w+<float"
)

#: Among them those that say 16 or 8 bits by their type. A bare "s1688" of CUTLASS is TF32, and "d1688" 64 bits.
_LOWER = re.compile(
    r"bf16|bfloat16|[fh]16|half|(?<!d)16816|s884|h884|hgemm|hcudnn|nvjet_(sm\d+_)?[thq]|e4m3|e5m2"
    r"|_(HHS|BBS|HSS|BSS|HH|BB|HB)_(B?H|MT)",
    re.IGNORECASE,
)

#: Among them convolutions, whose use of TF32 is a setting of cuDNN's.
_CONVOLUTION = re.compile(r"conv|wgrad|dgrad|fprop|cudnn|winograd", re.IGNORECASE)

#: Kernels that name float32 as the type that they work on, and none of 16 or 64 bits.
_NAMES_FLOAT = re.compile(r"\bfloat\b")
_NAMES_OTHER = re.compile(r"half|bfloat16|bf16|_f16|\bdouble\b", re.IGNORECASE)

#: Kernels that only turn images from one memory format into the other: cuDNN's, and MIOpen's.
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|batched_transpose", re.IGNORECASE)

_DATA = re.compile(r"^enumerate\(|dataloader.*next|next.*dataloader|data_wait", re.IGNORECASE)

#: Annotations around parts of a step: PyTorch's own around the optimizer, and what people call the others.
_PHASES = {
    "forward": re.compile(r"\bforward\b|training_step|DistributedDataParallel\.forward", re.IGNORECASE),
    "backward": re.compile(r"\bbackward\b", re.IGNORECASE),
    "optimizer": re.compile(r"^Optimizer\.(step|zero_grad)#|\boptimizer\b", re.IGNORECASE),
}


@dataclass(frozen=True, eq=False)
class Names:
    """The distinct names of a trace and what each of them means; masks are asked for events."""

    names: tuple[str, ...]

    def communication(self, events: Events) -> Bool:
        return self._communication[events.name]

    def host_collective(self, events: Events) -> Bool:
        return self._matching(_HOST_COLLECTIVE.search)[events.name]

    def hands_over(self, events: Events) -> Bool:
        """Operators that start a collective or wait for its end."""
        return self._matching(_HANDING_OVER.search)[events.name]

    def between_host_and_device(self, events: Events) -> Bool:
        """Copies that cross the bus; those within a device are the device's own work."""
        return self._crossing[events.name]

    def to_device(self, events: Events) -> Bool:
        return self._to_device[events.name]

    def pageable(self, events: Events) -> Bool:
        return self._pageable[events.name]

    def wait(self, events: Events) -> Bool:
        return self._wait[events.name]

    def wait_for_device(self, events: Events) -> Bool:
        return self._matching(_WAIT_FOR_DEVICE.search)[events.name]

    def allocation(self, events: Events) -> Bool:
        return self._allocation[events.name]

    def freeing(self, events: Events) -> Bool:
        """Among the allocations those that give memory back."""
        return self._matching(_FREEING.search)[events.name]

    def set_up(self, events: Events) -> Bool:
        """Runtime calls that neither hand over work nor order it nor wait: allocation, initialisation, queries."""
        return ~self._ordering[events.name]

    def graph(self, events: Events) -> Bool:
        return self._graph[events.name]

    def kernel_launch(self, events: Events) -> Bool:
        return self._matching(_KERNEL_LAUNCH.search)[events.name]

    def capture_begins(self, events: Events) -> Bool:
        return self._matching(_CAPTURE_BEGINS.search)[events.name]

    def capture_ends(self, events: Events) -> Bool:
        return self._matching(_CAPTURE_ENDS.search)[events.name]

    def copy_call(self, events: Events) -> Bool:
        return self._copy_call[events.name]

    def matrix_product(self, events: Events) -> Bool:
        return self._matmul[events.name]

    def single_precision(self, events: Events) -> Bool:
        return self._single[events.name]

    def lower_precision(self, events: Events) -> Bool:
        """Products and convolutions in 16 bits or less."""
        return (self._matmul & ~self._single & self._matching(_LOWER.search))[events.name]

    def convolution(self, events: Events) -> Bool:
        return (self._matmul & self._matching(_CONVOLUTION.search))[events.name]

    def in_float32(self, events: Events) -> Bool:
        """Whatever says that it works on float32, and on nothing of 16 or 64 bits."""
        return (self._matching(_NAMES_FLOAT.search) & ~self._matching(_NAMES_OTHER.search))[events.name]

    def layout_change(self, events: Events) -> Bool:
        return self._matching(_LAYOUT.search)[events.name]

    def data_wait(self, events: Events) -> Bool:
        return self._data[events.name]

    def phase(self, phase: str, events: Events) -> Bool:
        return self._matching(_PHASES[phase].search)[events.name]

    @cached_property
    def _communication(self) -> Bool:
        return self._matching(_COMMUNICATION.search)

    @cached_property
    def _to_device(self) -> Bool:
        return self._matching(_TO_DEVICE.search)

    @cached_property
    def _crossing(self) -> Bool:
        return self._to_device | self._matching(_TO_HOST.search) | self._matching(_PEER.search)

    @cached_property
    def _pageable(self) -> Bool:
        return self._matching(_PAGEABLE.search)

    @cached_property
    def _wait(self) -> Bool:
        return self._matching(_WAIT.search)

    @cached_property
    def _allocation(self) -> Bool:
        return self._matching(_ALLOCATION.search)

    @cached_property
    def _ordering(self) -> Bool:
        return self._matching(_ORDERING.search)

    @cached_property
    def _graph(self) -> Bool:
        return self._matching(_GRAPH.search)

    @cached_property
    def _copy_call(self) -> Bool:
        return self._matching(_COPY_CALL.search)

    @cached_property
    def _matmul(self) -> Bool:
        return self._matching(_MATMUL.search)

    @cached_property
    def _single(self) -> Bool:
        return self._matching(_FLOAT32.search)

    @cached_property
    def _data(self) -> Bool:
        return self._matching(_DATA.search)

    def _matching(self, test: Callable[[str], object]) -> Bool:
        return np.fromiter((test(name) is not None for name in self.names), np.bool_, len(self.names))
