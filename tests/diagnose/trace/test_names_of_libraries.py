"""Kernels by the libraries that make them: communication beside NCCL's, and products beside NVIDIA's before Hopper.

Tools that knew only some of these counted exchanges as computing, and advised mixed precision on cards whose kernels
used it already.
"""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.trace.events import Events
from perf_diagnostics.diagnose.trace.names import Names

COMMUNICATION = (
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
    "void nvshmemi_transfer_rma_put_threadgroup<threadgroup>(void*, void*, unsigned long)",
    "mscclKernel_Sum_half_Simple_LL(ncclDevComm*)",
    "hcclAllReduce",
    "oneccl_recv_kernel_bf16",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
)

PRODUCTS = (
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT",  # Hopper and Blackwell, cuBLAS 12
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
    "void cutlass::device_kernel<flash::enable_sm90<cutlass::gemm::kernel::GemmUniversal>>",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN",  # AMD, Tensile
    "miopenGcnAsmConv1x1U.kd",
    "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
    "volta_sgemm_128x64_nn",
)

NEITHER = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<>",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float>",
    "Memset (Device)",
)


def answers(question: str, names: tuple[str, ...]) -> list[bool]:
    """What a question says of one event of each name."""
    rows = np.arange(len(names), dtype=np.int64)
    small = rows.astype(np.int32)
    none = np.zeros_like(rows)
    events = Events(none.astype(np.int8), none, none, small, small, none, none, small)
    assert events.name.tolist() == rows.tolist()
    return list(getattr(Names(names), question)(events))


def test_every_librarys_exchange_is_communication() -> None:
    assert answers("communication", COMMUNICATION) == [True] * len(COMMUNICATION)
    assert answers("communication", PRODUCTS + NEITHER) == [False] * len(PRODUCTS + NEITHER)


def test_products_of_every_maker_and_generation_are_products() -> None:
    assert answers("matrix_product", PRODUCTS) == [True] * len(PRODUCTS)
    assert answers("matrix_product", NEITHER) == [False] * len(NEITHER)


@pytest.mark.parametrize("name", PRODUCTS[:-1])
def test_of_them_only_single_precision_is_single_precision(name: str) -> None:
    assert answers("single_precision", (name, "volta_sgemm_128x64_nn")) == [False, True]
