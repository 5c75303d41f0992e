"""A node group's GPU as rates, for one workload: which peaks apply, what of them is sustained, how fast memory is."""
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from solver.catalog.curves import DeviceCurves, curves_of
from solver.catalog.efficiency import ArchEfficiency, Efficiency
from solver.catalog.loader import device as catalogue_device
from solver.cost.operators import AttentionRate, MeasuredAttention, Rate
from solver.domain.cluster import Device, NodeGroup
from solver.domain.workload import Precision, TrainingWorkload
from solver.errors import Fault, NotCovered, UnknownName
from solver.units import bytes_from_gib, bytes_per_s_from_gb_s, flops_from_tflops

FP4_BYTES = 0.5625                                         # nvfp4: half a byte, and a one-byte scale for every 16 elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One GPU of a node group.

    linear: products of the linear layers in the workload's precision; half: attention, router and head; attention: fused attention by kernel
    generation (no sustained share); elementwise_bytes_s: effective bandwidth of memory-bound work; memory_bytes_s: the plain bandwidth.
    """

    group: NodeGroup
    arch: ArchEfficiency
    linear: Rate
    half: Rate
    attention: Mapping[str, AttentionRate]
    elementwise_bytes_s: float
    memory_bytes_s: float
    capacity_bytes: float
    measured: bool                                         # operator times of this device are measured, not scaled from another's
    expected_error: float                                  # of a step time, at least
    measured_attention: MeasuredAttention | None = None    # the user's own, in place of the curves at the shapes that they cover


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
    known = device.based_on or device.name
    curves, own = curves_of(known, device.arch), constants.devices.get(known)
    clock = group.speed_factor * _power_share(device, constants)
    sustained = (own.sustained if own else arch.sustained) * clock
    narrow = sustained * (arch.narrow if own is None or own.narrow is None else own.narrow)
    bandwidth = bytes_per_s_from_gb_s(device.memory_bandwidth_gb_s) * group.speed_factor
    half = _half(constants, device, workload, curves, bandwidth, sustained if workload.precision != "fp32" else clock)
    return Machine(group=group, arch=arch, linear=_linear(constants, device, workload, curves, half, narrow), half=half,
                   attention=_attention(arch, curves, _half_peak(constants, device, workload) * clock),
                   elementwise_bytes_s=bandwidth * arch.elementwise_share * curves.elementwise_gain, memory_bytes_s=bandwidth,
                   capacity_bytes=bytes_from_gib(device.capacity_gib), measured=curves.measured,
                   expected_error=max(own.expected_error if own else 0.0, arch.expected_error, curves.expected_error))


def _half_peak(constants: Efficiency, device: Device, workload: TrainingWorkload) -> float:
    """Peak FLOP/s of what is not in a narrow format: 16 bit, or fp32 on the SIMT units."""
    precision: Precision = workload.precision if workload.precision in ("fp16", "fp32") else "bf16"
    return flops_from_tflops(matmul_tflops(device, precision, constants.compute.fp4_over_fp8_peak))


def _half(constants: Efficiency, device: Device, workload: TrainingWorkload, curves: DeviceCurves, bandwidth: float, share: float) -> Rate:
    curve, peak = curves.gemm["half"], _half_peak(constants, device, workload)
    if workload.precision != "fp32":
        return Rate(flops_s=peak * share, bandwidth_bytes_s=bandwidth, curve=curve, sms=curves.sms, element_bytes=2.0,
                    misaligned=constants.compute.misaligned)
    peak *= constants.compute.fp32_share / curve.compute
    wide = peak / flops_from_tflops(matmul_tflops(device, "bf16", constants.compute.fp4_over_fp8_peak))
    return Rate(flops_s=peak * share, bandwidth_bytes_s=bandwidth, curve=curve, sms=curves.sms, element_bytes=4.0, output_bytes=4.0,
                k_scale=min(1.0, wide))


def _linear(constants: Efficiency, device: Device, workload: TrainingWorkload, curves: DeviceCurves, half: Rate, share: float) -> Rate:
    """The narrow format that the workload asks for and the device has a unit and a curve for; `half` otherwise."""
    kind = {"fp8": "fp8", "nvfp4": "fp4"}.get(workload.precision)
    if kind == "fp4" and ("fp4" not in curves.gemm or not device.fp4_tflops):
        kind = "fp8"
    if kind is None or kind not in curves.gemm or not device.fp8_tflops:
        return half
    peak = matmul_tflops(device, "nvfp4" if kind == "fp4" else "fp8", constants.compute.fp4_over_fp8_peak)
    return Rate(flops_s=flops_from_tflops(peak) * share, bandwidth_bytes_s=half.bandwidth_bytes_s, curve=curves.gemm[kind], sms=half.sms,
                element_bytes=FP4_BYTES if kind == "fp4" else 1.0, misaligned=constants.compute.misaligned)


def _attention(arch: ArchEfficiency, curves: DeviceCurves, peak_flops_s: float) -> Mapping[str, AttentionRate]:
    """Every kernel generation of the architecture: the measured kernel's shape, with forward and backward shares of its rate in training."""
    curve = curves.attention
    waiting = 2.0 * curve.imbalance * curves.sms           # a causal sequence's last block is twice the mean one
    return {name: AttentionRate(flops_s=peak_flops_s, forward=curve.forward * share.forward, backward=curve.forward * share.backward,
                                softmax_width=curve.softmax_width, least_width=curve.least_width, half_length=curve.half_length,
                                waiting=waiting, fixed_s=curve.fixed_s) for name, share in arch.attention.items()}


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
