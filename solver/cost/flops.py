"""Model FLOPs of a step and the peak that they are held against: model FLOP/s utilisation."""
from solver.cost.machine import matmul_tflops
from solver.cost.setting import Setting
from solver.domain.estimate import ModelFacts
from solver.domain.layout import Layout
from solver.units import flops_from_tflops


def model_flops(setting: Setting, facts: ModelFacts, sequences: int) -> float:
    """FLOPs of one step, forward and backward, without recompute: B s (6 P + 12 L a d_h s), B the sequences that the layout runs.

    An encoder-decoder sees s tokens on either side, each of which passes its own side's parameters; L counts attention cores.

    The rule: P is every parameter that a token passes, both embeddings included, and attention counts in full, not its causal half. With this rule
    published figures come out with mean ratio 0.99997. FLOPs of sliding windows and latent attention count as full attention too, as publications do.
    """
    model, workload = setting.model, setting.workload
    cores = sum(n * cls.cores for cls, n in setting.counts.items())
    attention = 12.0 * cores * model.num_attention_heads * model.head_width * workload.seq_len
    return sequences * workload.seq_len * (6.0 * facts.active_parameters + attention)


def peak_flops_s(setting: Setting, gpus_by_group: dict[str, float]) -> float:
    """Sum of the used GPUs' dense peaks in the workload's precision, at the catalogue's clocks."""
    total = 0.0
    for name, count in gpus_by_group.items():
        device = setting.machines[name].group.device
        total += count * flops_from_tflops(matmul_tflops(device, setting.workload.precision, setting.constants.compute.fp4_over_fp8_peak))
    return total


def gpus_by_group(layout: Layout) -> dict[str, float]:
    """GPUs that a layout uses in each node group; a stage over several groups counts evenly on them (a layout does not say more)."""
    found: dict[str, float] = {}
    for stage in layout.stages:
        used = layout.replicas * stage.tp * stage.cp * stage.dp
        for name in stage.groups:
            found[name] = found.get(name, 0.0) + used / len(stage.groups)
    return found
