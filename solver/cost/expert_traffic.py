"""Communication of expert parallelism: dispatch and combine over the fabric of one node group."""
from dataclasses import replace

from solver.catalog.efficiency import Stack
from solver.cost.alike import everywhere, smaller, somewhere, where
from solver.cost.collectives import FanOut, Path, all_to_all_s, crosses_network, each_path
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.cost.traffic import PathOf
from solver.domain.model import LayerClass


def expert_s(setting: Setting, stack: Stack, path_of: PathOf, layer_class: LayerClass, share: Share) -> float:
    """Seconds of expert parallelism in one pass of one layer: dispatch and combine, two all-to-alls of T / t * top_k * h elements over ep ranks.

    Together with backward: 4 (e - 1) / e * b s top_k h elements per layer. Dispatchers that send a token once per node (DeepEP, HybridEP) spare the
    network the copies, more so where the router keeps to few groups of experts; inside a node every copy is counted, though some send one per GPU.
    """
    model = setting.model
    if everywhere(share.ep == 1) or not layer_class.moe or model.moe is None:
        return 0.0
    size = share.tokens / share.tp * model.moe.top_k * model.hidden_size * setting.activation_element
    fan_out = FanOut(copies=model.moe.top_k, groups=model.moe.num_groups, kept=model.moe.top_groups) if stack.dispatch_once_per_node else None
    return 2.0 * all_to_all_s(_path(setting, stack, path_of, share), size, fan_out)


def shown_s(setting: Setting, stack: Stack, path_of: PathOf, share: Share, virtual_stages: bool, expert: float, beside_s: float) -> float:
    """Of `expert` seconds in one pass, those that show beside `beside_s` of computation.

    With virtual stages forward of one micro-batch can run beside backward of another (Megatron-Core's batch-level overlap); NVIDIA's recipes do so
    for some models where experts span nodes and not inside them. `expert_overlap` is the share that hides; what computes meanwhile slows down.
    """
    if not somewhere(virtual_stages) or stack.expert_overlap == 0.0 or everywhere(share.ep == 1):
        return expert
    hidden = stack.expert_overlap * (1.0 - setting.constants.communication.overlap_slowdown) * smaller(expert, beside_s)
    return where(virtual_stages & crosses_network(path_of(share.ep, share.etp)), expert - hidden, expert)


def _path(setting: Setting, stack: Stack, path_of: PathOf, share: Share) -> Path:
    """The ranks of an expert group. Dispatch waits for nothing else on the network, unlike the collectives that `network_share` is of."""
    gain = setting.constants.moe.network_gain if stack.dispatch_once_per_node else 1.0
    return each_path(path_of(share.ep, share.etp), lambda path: tuple(
        replace(level, bandwidth_bytes_s=level.bandwidth_bytes_s * gain) if level.network else level for level in path))
