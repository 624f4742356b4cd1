"""What names mean, from traces of several generations of CUDA and ROCm."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.trace.events import Events
from perf_diagnostics.diagnose.trace.names import Names


def means(question, name):
    one = np.zeros(1, np.int64)
    small = one.astype(np.int32)
    events = Events(one.astype(np.int8), one, one, small, small, one, one, small)
    return bool(getattr(Names((name,)), question)(events)[0])


CASES = {
    "communication": {
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": True,
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": True,
        "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)": True,
        "void c10d::symmetric_memory::multimem_all_reduce_kernel<c10::BFloat16, 16>": True,
        "void two_shot_all_reduce_kernel<float, 8>": True,
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<half>": True,
        "void vllm::cross_device_reduce_1stage<c10::BFloat16, 8>": True,
        "volta_sgemm_128x64_nn": False,
        "void at::native::vectorized_elementwise_kernel<4>": False,
        "void at::native::reduce_kernel<512, 1>": False,
        "void small_gather_kernel<float>": False,
    },
    "wait_for_device": {
        "cudaDeviceSynchronize": True,
        "hipDeviceSynchronize": True,
        "cuCtxSynchronize": True,
        "cudaStreamSynchronize": False,
    },
    "to_device": {
        "Memcpy HtoD (Pageable -> Device)": True,
        "Memcpy HtoD (Host -> Device)": True,
        "CopyHostToDevice": True,
        "Memcpy DtoH (Device -> Pageable)": False,
        "Memcpy DtoD (Device -> Device)": False,
    },
    "between_host_and_device": {
        "Memcpy HtoD (Pinned -> Device)": True,
        "Memcpy DtoH (Device -> Pinned)": True,
        "CopyDeviceToHost": True,
        "Memcpy PtoP (Device -> Device)": True,
        "Memcpy DtoD (Device -> Device)": False,
    },
    "pageable": {"Memcpy HtoD (Pageable -> Device)": True, "Memcpy HtoD (Pinned -> Device)": False},
    "wait": {
        "cudaStreamSynchronize": True,
        "hipDeviceSynchronize": True,
        "cuCtxSynchronize": True,
        "cudaMemcpy": True,
        "cudaMemcpyAsync": False,
        "cudaStreamWaitEvent": False,
        "cudaEventQuery": False,
    },
    "allocation": {
        "cudaMalloc": True,
        "hipFree": True,
        "cudaHostAlloc": True,
        "cuMemSetAccess": True,
        "hipExtMallocWithFlags": True,
        "cudaMallocAsync": False,
        "cudaFuncSetAttribute": False,
    },
    "set_up": {
        "cudaMalloc": True,
        "cudaDeviceGetStreamPriorityRange": True,
        "cudaLaunchKernel": False,
        "cudaDeviceSynchronize": False,
        "cudaEventRecord": False,
    },
    "data_wait": {
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": True,
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next": True,
        "data_wait": True,
        "Optimizer.step#SGD.step": False,
        "aten::to": False,
    },
    "single_precision": {
        "volta_sgemm_128x64_nn": True,
        "ampere_sgemm_32x32_sliced1x4_tn": True,
        "cutlass_80_simt_sgemm_128x64_8x5_nn_align1": True,
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_ffma_aligna4_execute_kernel__5x_cublas": True,
        "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*)": True,
        "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int)": True,
        "Cijk_Ailk_Bljk_SB_MT64x64x16_MI16x16x4x1": True,
        # TF32 and half precision on tensor cores, and what is no product at all:
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16": False,
        "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn": False,
        "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn": False,
        "cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align4": False,
        "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT": False,
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32": False,
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >": False,
    },
}


@pytest.mark.parametrize(
    ("question", "name", "answer"),
    [(question, name, answer) for question, names in CASES.items() for name, answer in names.items()],
)
def test_a_name_means(question, name, answer):
    assert means(question, name) is answer
