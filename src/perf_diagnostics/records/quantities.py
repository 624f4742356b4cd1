"""What was measured around the steps: single numbers and series over time, and the names they go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.errors import RecordError
from perf_diagnostics.records.phases import MEASURED_PHASES
from perf_diagnostics.records.types import Float64, Int64


@dataclass(frozen=True)
class Quantity:
    """One number about a whole trial, with its unit, where it comes from and whether it is an estimate."""

    name: str
    value: float
    unit: str
    source: str
    estimated: bool = False


#: The names quantities and series go by, with unit and meaning; a name that is absent from a result was not measured.
QUANTITIES: Mapping[str, tuple[str, str]] = {
    "setup_s": (
        "s",
        "building the workload (data, model, optimizer, move to the device), or all before a script's first step",
    ),
    "first_step_s": ("s", "wall time of the very first step, one-off costs included"),
    "measured_wall_s": (
        "s",
        "wall time of the steady blocks by clock reads of their own: what the steps must add up to",
    ),
    "parameters": ("1", "parameters that take part in the model"),
    "trainable_parameters": ("1", "parameters with a gradient"),
    "parameter_bytes": ("bytes", "memory of all parameters"),
    "host_memory_peak": ("bytes", "peak resident memory of the trial's own process (VmHWM)"),
    "host_tree_memory_peak": ("bytes", "largest sampled resident memory of the trial's process tree"),
    "host_memory_before": ("bytes", "resident memory of the trial's process before the workload was built"),
    "host_memory_total": ("bytes", "memory the trial may use: the machine's or its cgroup's, whichever is less"),
    "major_faults": ("1", "page faults of the trial's process that had to read from disk, during the steady steps"),
    "device_memory_peak_allocated": ("bytes", "peak of tensors on the device (allocator)"),
    "device_memory_peak_reserved": ("bytes", "peak of memory held by the device allocator"),
    "device_memory_total": ("bytes", "the device's memory"),
    "alloc_retries": ("1", "device allocations retried after emptying the cache, during the steady steps"),
    "alloc_ooms": ("1", "device allocations that found no memory even then, during the steady steps"),
    "alloc_syncs": ("1", "times the device's allocator waited for all its streams, during the steady steps"),
    "energy_device": ("J", "energy of the device, or of all ranks' boards, over the measured window, gross"),
    "energy_device_window_s": ("s", "length of that window"),
    "energy_device_steps": ("1", "steps in that window"),
    "energy_device_samples": ("1", "samples that all ranks trained on in that window, where there are several ranks"),
    "energy_device_boards": ("1", "boards whose energy that is, each counted once"),
    "energy_device_ranks": ("1", "ranks that trained on these boards, where there are several"),
    "energy_cpu": ("J", "energy of CPU package and memory over the sampled window (RAPL)"),
    "clock_drift": ("1", "disagreement of host and device clock between two anchors, as a share of the time between"),
    "forced_syncs": ("1", "times the event ring was full and the probe had to wait for the device"),
    "memory_bandwidth": ("bytes/s", "what a large copy on the device moves, reading and writing counted"),
    "involuntary_switches": ("1", "involuntary context switches of the trial's process during the steady steps"),
    # the processor, over the steady steps
    "process_cpu_s": ("s", "CPU time of the trial's process, its workers not included"),
    "workers_cpu_s": ("s", "CPU time of the trial's loader workers"),
    "other_cpu_s": ("s", "CPU time that everybody else on the machine used meanwhile"),
    "cpu_pressure_s": ("s", "time in which something on the machine (or in the cgroup) waited for a processor (PSI)"),
    "cpu_periods": ("1", "enforcement periods of the cgroup's CPU quota"),
    "cpu_throttled_periods": ("1", "enforcement periods in which the cgroup's CPU quota was used up"),
    "cpu_throttled_s": ("s", "time for which the cgroup's processes were held back"),
    "loop_cpu_share": ("1", "part of the steady blocks' wall time in which the loop's thread ran"),
    "loop_run_delay_share": (
        "1",
        "part of the steady blocks' wall time in which the loop's thread was ready to run and had no core",
    ),
    "loop_page_faults_per_s": (
        "1/s",
        "pages a second that the loop's thread got from the kernel in the steady blocks, none read from disk",
    ),
    "resident_growth_pages_per_s": (
        "1/s",
        "pages a second by which the process's resident memory had grown after the steady blocks",
    ),
    "loop_system_share": ("1", "part of the steady blocks' wall time in which the loop's thread was in the kernel"),
    "process_system_share": (
        "1",
        "CPU time of all threads of the process in the kernel, over the steady blocks' wall time",
    ),
    "page_fault_s": ("s", "getting one page from the kernel, touching it and giving it back, after the steps"),
    "process_cpu_share": ("1", "CPU time of all threads of the trial's process over the steady blocks' wall time"),
    "process_run_delay_share": (
        "1",
        "of the time in which threads of the trial's process were ready to run, the part in which they had no core",
    ),
    "worker_run_delay_share": (
        "1",
        "of the time in which loader workers were ready to run, the part in which they had no core",
    ),
    "read_bytes": ("bytes", "bytes the trial's process and its workers read from storage"),
    "read_bytes_first_pass": (
        "bytes",
        "bytes read from storage in the first pass over the data, from the first steady step on",
    ),
    "read_bytes_later_passes": ("bytes", "bytes read from storage from the end of the first pass over the data on"),
    "steps_began_s": ("s", "begin of the first steady step, from the start of the trial's sampling"),
    # memory
    "host_memory_uss": ("bytes", "memory of the trial's process tree that nobody else maps, at the end of the steps"),
    "host_memory_pss": ("bytes", "resident memory of the tree, shared pages counted in parts, at the end of the steps"),
    "swapped_bytes": ("bytes", "memory of the trial's process tree that lies in swap, at the end of the steps"),
    "shared_memory_total": ("bytes", "size of /dev/shm, through which loader workers hand over their batches"),
    "shared_memory_free_before": ("bytes", "shared memory (/dev/shm) that was free before the training"),
    "shared_memory_free_least": ("bytes", "the least of shared memory that was free between blocks of steps"),
    "device_memory_foreign": ("bytes", "largest device memory in use by others during the trial (driver's view)"),
    "device_memory_process_peak": ("bytes", "largest device memory in use by the trial's processes (driver's view)"),
    "device_memory_inactive_split": ("bytes", "free parts of split blocks in the allocator, at the end of the steps"),
    **{
        f"memory_peak_{phase}": ("bytes", f"peak memory inside {phase}, from steps of their own that are not timed")
        for phase in MEASURED_PHASES
    },
    # what crosses between host and device, operator by operator, in a pass of its own after the timed steps
    "copies_in_per_step": ("1", "copies of tensors from host to device a step"),
    "copies_in_median_bytes": ("bytes", "median size of these copies"),
    "copies_in_transfer_bytes": ("bytes", "what of them is copied inside transfer, a step"),
    "copies_in_large_bytes": ("bytes", "what of them is in copies of 64 KiB and more, a step"),
    "copies_in_pinned_bytes": ("bytes", "what of that comes from pinned memory, a step"),
    "small_copies_per_step": ("1", "copies of less than 64 KiB from host to device a step"),
    "small_copies_cost_s": ("s", "host time they cost a step, waiting for a device at work left out"),
    "small_copies_cost_low_s": ("s", "lower end of the 95 % interval of small_copies_cost_s"),
    "small_copies_cost_high_s": ("s", "upper end of the 95 % interval of small_copies_cost_s"),
    "reads_back_per_step": ("1", "operators a step that let the host wait for a value of the device"),
    "reads_back_idle_s": (
        "s",
        "from the end of a wait for a value to the device's next work, waits for data left out, a step",
    ),
    "reads_back_idle_low_s": ("s", "lower end of the 95 % interval of reads_back_idle_s"),
    "reads_back_idle_high_s": ("s", "upper end of the 95 % interval of reads_back_idle_s"),
    "waits_per_step": ("1", "operators and calls (synchronize) a step that let the host wait for the device"),
    "waits_idle_s": ("s", "from the end of any wait for the device to its next work, waits for data left out, a step"),
    "waits_idle_low_s": ("s", "lower end of the 95 % interval of waits_idle_s"),
    "waits_idle_high_s": ("s", "upper end of the 95 % interval of waits_idle_s"),
    "optimizer_waits_per_step": (
        "1",
        "operators and calls a step in the optimizer's phase that let the host wait for the device",
    ),
    "optimizer_waits_idle_s": ("s", "from the end of waits in the optimizer's phase to the device's next work, a step"),
    "optimizer_waits_idle_low_s": ("s", "lower end of the 95 % interval of optimizer_waits_idle_s"),
    "optimizer_waits_idle_high_s": ("s", "upper end of the 95 % interval of optimizer_waits_idle_s"),
    "host_to_device_bandwidth": ("bytes/s", "what a large copy from pinned memory to the device moves"),
    "host_to_device_bandwidth_near": (
        "bytes/s",
        "what a large copy from pinned memory moves, thread and memory on the device's NUMA node",
    ),
    # where the trial ran, as the device sees it
    "numa_nodes": ("1", "NUMA nodes of the machine that have cores"),
    "usable_cores_near": ("1", "cores that the trial may run on and that are on the device's NUMA node"),
    # energy
    "energy_device_net": ("J", "energy of the device over the window less what it draws when idle"),
    "energy_device_uncertainty": ("J", "how far the device's energy may be off: counter ticks at both ends"),
    "device_idle_power": (
        "W",
        "power of the device with a live context and no work, from a rest before the steps or after them",
    ),
    "energy_cpu_window_s": ("s", "length of the window of energy_cpu"),
    # work
    "flops_per_step": ("1", "floating point operations of a mean step, counted on batches of the trial's data"),
    "flops_per_sample": ("1", "floating point operations a sample, counted on batches of the trial's data"),
    "flops_per_token": ("1", "floating point operations a token, counted on batches of the trial's data"),
    "flops_matmul_share": ("1", "part of the operations in matrix products, convolutions and attention"),
    "traffic_bytes_per_step": (
        "bytes",
        "what the operators of a step read and write, each operand of each counted once",
    ),
    "matmul_ceiling": ("1/s", "floating point operations a second of a large matrix product in the trial's precision"),
    "bfloat16_ceiling": (
        "1/s",
        "floating point operations a second of a large matrix product in bfloat16, beside a trial in float32",
    ),
    # the tool's own cost
    "probe_overhead_s": ("s", "what measuring adds to a step, from alternating blocks of measured and plain steps"),
    "probe_overhead_low_s": ("s", "lower end of the 95 % interval of probe_overhead_s"),
    "probe_overhead_high_s": ("s", "upper end of the 95 % interval of probe_overhead_s"),
}

SERIES: Mapping[str, tuple[str, str]] = {
    "host_memory": ("bytes", "resident memory of the trial's process tree"),
    "cpu_utilization": ("%", "CPU time of the process tree, 100 % being one core"),
    "gpu_power": ("W", "board power"),
    "gpu_utilization": ("%", "share of the driver's sample period with at least one kernel resident"),
    "gpu_memory_used": ("bytes", "device memory in use by everybody (driver's view)"),
    "gpu_memory_process": ("bytes", "device memory in use by the trial's processes (driver's view)"),
    "gpu_sm_clock": ("MHz", "clock of the streaming multiprocessors"),
    "gpu_temperature": ("°C", "temperature of the GPU die"),
    "gpu_throttle_reasons": ("bitmask", "NVML clocks event reasons"),
    "gpu_energy": ("J", "NVML total energy counter since the trial began"),
    "gpu_pcie_received": ("bytes/s", "what the board received over its PCIe link, over 20 ms before each sample"),
    "gpu_pcie_generation": ("1", "generation of PCIe at which the board's link runs (lower while it is idle)"),
    "gpu_pcie_width": ("1", "lanes of the board's PCIe link in use"),
    "gpu_thermal_violation": (
        "s",
        "time for which heat held the board's clock down, since the trial began",
    ),
    "gpu_power_violation": ("s", "time for which its power limit held the board's clock down, since the trial began"),
    "near_device": ("1", "1 where the trial's own thread was on a core of the device's NUMA node"),
    "cpu_power": ("W", "power of CPU package and memory (RAPL)"),
}


@dataclass(frozen=True)
class Series:
    """One quantity sampled over time during a trial; a failed reading is no sample."""

    name: str
    unit: str
    source: str
    times_ns: Int64
    values: Float64
    estimated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "times_ns", np.asarray(self.times_ns, dtype=np.int64))
        object.__setattr__(self, "values", np.asarray(self.values, dtype=np.float64))
        if self.times_ns.shape != self.values.shape or self.times_ns.ndim != 1:
            raise RecordError(f"Series {self.name!r}: {self.times_ns.shape} times, {self.values.shape} values.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Series):
            return NotImplemented
        return (self.name, self.unit, self.source, self.estimated) == (
            other.name,
            other.unit,
            other.source,
            other.estimated,
        ) and bool(np.array_equal(self.times_ns, other.times_ns) and np.array_equal(self.values, other.values))

    __hash__ = None  # type: ignore[assignment]
