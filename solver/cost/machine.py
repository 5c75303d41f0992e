"""A node group's GPU as rates, for one workload: which peaks apply, what of them is sustained, how fast memory is."""
import functools
from dataclasses import dataclass

from solver.catalog.efficiency import ArchEfficiency, AttentionCurve, Efficiency
from solver.catalog.loader import device as catalogue_device
from solver.cost.operators import Rate
from solver.domain.cluster import Device, NodeGroup
from solver.domain.workload import Precision, TrainingWorkload
from solver.errors import Fault, NotCovered, UnknownName
from solver.units import bytes_from_gib, bytes_per_s_from_gb_s, flops_from_tflops


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One GPU of a node group.

    linear: products of the linear layers in the workload's precision; half: attention, router and head; attention_flops_s: 16-bit peak for fused
    attention (no sustained share); elementwise_bytes_s: effective bandwidth of memory-bound work; memory_bytes_s: the plain bandwidth.
    """

    group: NodeGroup
    arch: ArchEfficiency
    linear: Rate
    half: Rate
    attention_flops_s: float
    elementwise_bytes_s: float
    memory_bytes_s: float
    capacity_bytes: float


def matmul_tflops(device: Device, precision: Precision, fp4_over_fp8: float) -> float:
    """Dense peak for a precision; the next wider unit where the device lacks it (fp8 on A100 runs as bf16, bf16 on V100 as fp16)."""
    half = device.bf16_tflops or device.fp16_tflops
    wanted: float | None
    if precision == "fp32":
        wanted = device.fp32_tflops or device.tf32_tflops or half
    elif precision == "fp8":
        wanted = device.fp8_tflops or half
    elif precision == "nvfp4":
        wanted = min(device.fp4_tflops, fp4_over_fp8 * device.fp8_tflops) if device.fp4_tflops and device.fp8_tflops else device.fp8_tflops or half
    elif precision == "fp16":
        wanted = device.fp16_tflops or half
    else:
        wanted = half
    wanted = wanted or half or device.fp16_tflops or device.fp32_tflops
    if not wanted:
        raise NotCovered(Fault(pointer="/cluster/node_groups", message=f"{device.name} has no known matrix peak for {precision}",
                               legal="a device with bf16_tflops, fp16_tflops or fp32_tflops"))
    return wanted


def machine(constants: Efficiency, group: NodeGroup, workload: TrainingWorkload) -> Machine:
    """The GPU of a node group as this workload sees it; `speed_factor` scales compute and memory, a power cap the clocks."""
    device, arch = group.device, constants.arch(group.device.arch)
    clock = group.speed_factor * _power_share(device, constants)
    sustained = constants.sustained_by_device.get(device.based_on or device.name, arch.sustained) * clock
    bandwidth = bytes_per_s_from_gb_s(device.memory_bandwidth_gb_s) * group.speed_factor
    fp4_over_fp8 = constants.compute.fp4_over_fp8_peak
    half_peak = flops_from_tflops(matmul_tflops(device, "fp16" if workload.precision == "fp16" else "bf16", fp4_over_fp8))
    half = Rate(flops_s=half_peak * sustained, bandwidth_bytes_s=bandwidth, curve=arch.gemm["half"], sms=arch.sms, element_bytes=2.0,
                misaligned=constants.compute.misaligned)
    if workload.precision == "fp32":
        half_peak = flops_from_tflops(matmul_tflops(device, "fp32", fp4_over_fp8)) * constants.compute.fp32_share / arch.gemm["half"].compute
        wide = half_peak / flops_from_tflops(matmul_tflops(device, "bf16", fp4_over_fp8))
        half = Rate(flops_s=half_peak * clock, bandwidth_bytes_s=bandwidth, curve=arch.gemm["half"], sms=arch.sms, element_bytes=4.0,
                    k_scale=min(1.0, wide))
    return Machine(group=group, arch=arch, linear=_linear(constants, group, workload, half, sustained), half=half,
                   attention_flops_s=half_peak * clock,
                   elementwise_bytes_s=bandwidth * arch.elementwise_share, memory_bytes_s=bandwidth,
                   capacity_bytes=bytes_from_gib(device.capacity_gib))


def _linear(constants: Efficiency, group: NodeGroup, workload: TrainingWorkload, half: Rate, sustained: float) -> Rate:
    kind = {"fp8": "fp8", "nvfp4": "fp4"}.get(workload.precision)
    curves = constants.arch(group.device.arch).gemm
    if kind == "fp4" and ("fp4" not in curves or not group.device.fp4_tflops):
        kind = "fp8"
    if kind is None or kind not in curves or not group.device.fp8_tflops:
        return half
    peak = matmul_tflops(group.device, "nvfp4" if kind == "fp4" else "fp8", constants.compute.fp4_over_fp8_peak)
    return Rate(flops_s=flops_from_tflops(peak) * sustained, bandwidth_bytes_s=half.bandwidth_bytes_s, curve=curves[kind], sms=half.sms,
                element_bytes=1.0, misaligned=constants.compute.misaligned)


def _power_share(device: Device, constants: Efficiency) -> float:
    """(cap / TDP) ^ 0.4 for a device given with less power than the catalogue's entry that it is based on."""
    if device.based_on is None or device.power_w is None:
        return 1.0
    full = _catalogue_power(device.based_on)
    share = (device.power_w / full) ** constants.compute.power_exponent if full else 1.0
    return min(1.0, max(constants.compute.nested_power_floor, share))


@functools.cache
def _catalogue_power(name: str) -> float | None:
    try:
        return catalogue_device(name)[0].power_w
    except UnknownName:
        return None


def attention_kernel(constants: Efficiency, arch: ArchEfficiency, workload: TrainingWorkload, stack_kernel: str) -> str:
    """The kernel generation that runs: what the workload names; `auto` is the stack's, as far as the architecture has it."""
    wanted = workload.attention_kernel if workload.attention_kernel != "auto" else stack_kernel
    if wanted == "unfused":
        return wanted
    while wanted not in arch.attention:
        wanted = {"flash_3": "flash_2", "flash_2": "flash_1"}.get(wanted, next(iter(arch.attention)))
    return wanted


def attention_curve(arch: ArchEfficiency, kernel: str) -> AttentionCurve:
    """The efficiency curve of a fused kernel on an architecture."""
    return arch.attention[kernel]
