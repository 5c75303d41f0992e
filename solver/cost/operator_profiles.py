"""How a problem's operator profiles change what a node group's GPU is taken to do."""
from collections.abc import Callable
from dataclasses import replace

from solver.catalog.curves import curves_of
from solver.cost.machine import Machine
from solver.cost.measured_operators import AttentionTable, GemmTable, attention_table, gemm_table
from solver.cost.operators import MeasuredAttention, MeasuredGemms, Rate
from solver.domain.profiles import Profiles
from solver.domain.workload import Precision


def with_operators(machine: Machine, profiles: Profiles | None, precision: Precision) -> Machine:
    """The machine by the user's own measurements of its GPU type.

    Products of the linear layers by rows of the workload's precision, those of the head by rows of 16 bit; fused attention; memory-bound work by how
    the largest measured kernel's bandwidth compares with what such kernels are taken to reach. A group's `speed_factor` divides all of them.
    """
    if profiles is None:
        return machine
    name, slower = machine.group.device.name, 1.0 / machine.group.speed_factor
    wide: Precision = precision if precision in ("fp16", "fp32") else "bf16"
    tables = {kind: gemm_table((row for row in profiles.gemms if row.gpu == name and row.precision == kind), slower) for kind in {precision, wide}}
    attention = attention_table((row for row in profiles.attention if row.gpu == name), slower)
    return replace(machine, linear=_rate(machine.linear, tables[precision]), half=_rate(machine.half, tables[wide]), measured_attention=attention,
                   elementwise_bytes_s=machine.elementwise_bytes_s * _bandwidth_gain(machine, profiles))


def _rate(rate: Rate, table: MeasuredGemms | None) -> Rate:
    return replace(rate, measured=table) if table is not None else rate


def _bandwidth_gain(machine: Machine, profiles: Profiles) -> float:
    """Measured over expected bandwidth of memory-bound kernels; expected is the device's share of its nominal bandwidth by its tables."""
    device = machine.group.device
    rows = [row for row in profiles.memory if row.gpu == device.name]
    if not rows:
        return 1.0
    largest = max(rows, key=lambda row: row.bytes)
    curve = curves_of(device.based_on or device.name, device.arch).elementwise
    expected = machine.memory_bytes_s / machine.group.speed_factor * (curve.share if curve is not None else 1.0)
    return largest.bytes / largest.seconds / expected


def as_floors(machine: Machine) -> Machine:
    """The machine with its measured operators as lower bounds that fall per token as micro-batches grow."""
    return with_tables(machine, lambda table: replace(table, floor=True), lambda table: replace(table, floor=True))


def with_tables(machine: Machine, gemms: Callable[[GemmTable], MeasuredGemms],
                attention: Callable[[AttentionTable], MeasuredAttention]) -> Machine:
    """The machine with something else in place of each of its tables."""
    def changed(rate: Rate) -> Rate:
        return replace(rate, measured=gemms(rate.measured)) if isinstance(rate.measured, GemmTable) else rate

    of = machine.measured_attention
    return replace(machine, linear=changed(machine.linear), half=changed(machine.half),
                   measured_attention=attention(of) if isinstance(of, AttentionTable) else of)
