"""Communication of expert parallelism: dispatch and combine over the fabric of one node group."""
from dataclasses import replace

from solver.cost.collectives import all_to_all_s
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.cost.traffic import PathOf
from solver.domain.model import LayerClass


def expert_s(setting: Setting, path_of: PathOf, layer_class: LayerClass, share: Share, once_per_node: bool) -> float:
    """Seconds of expert parallelism in one pass of one layer: dispatch and combine, two all-to-alls of T / t * top_k * h elements over ep ranks,
    exposed.

    Together with backward: 4 (e - 1) / e * b s top_k h elements per layer. Dispatchers that send a token once per node spare the network the copies.
    Kernels that do so also reach more of the network than NCCL. Overlap with computation is not modelled: too much for stacks that overlap.
    """
    model = setting.model
    if share.ep == 1 or not layer_class.moe or model.moe is None:
        return 0.0
    size = share.tokens / share.tp * model.moe.top_k * model.hidden_size * setting.activation_element
    fan_out = model.moe.top_k if once_per_node else None
    gain = setting.constants.moe.network_gain if once_per_node else 1.0
    path = tuple(replace(level, bandwidth_bytes_s=level.bandwidth_bytes_s * gain) if level.network else level
                 for level in path_of(share.ep, share.etp))
    return 2.0 * all_to_all_s(path, size, fan_out)
