"""The ends of the pipeline: embedding on the first stage, final norm, output layer and loss on the last."""
from dataclasses import dataclass

from solver.cost.alike import everywhere
from solver.cost.collectives import all_gather_s, all_reduce_s
from solver.cost.machine import Machine
from solver.cost.operators import elementwise_s, gemm_s
from solver.cost.setting import Setting
from solver.cost.share import Share
from solver.cost.traffic import PathOf


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWork:
    """Seconds of computation and of tensor-parallel communication per micro-batch."""

    forward_s: float
    backward_s: float
    weight_gradient_s: float
    tensor_forward_s: float
    tensor_backward_s: float


def embedding_work(setting: Setting, machine: Machine, path_of: PathOf, share: Share) -> EndWork:
    """Lookup and its gradient: 12 bytes per T h, and one all-reduce each way over the tensor ranks that hold the vocabulary."""
    tokens, h = share.tokens, setting.model.hidden_size
    moved = setting.constants.elementwise.embedding * tokens * h * share.replicated * setting.activation_element / 2.0
    seconds = elementwise_s(moved, machine.elementwise_bytes_s)
    tensor = 0.0
    if not everywhere(share.tp == 1):
        tensor = all_reduce_s(path_of(share.tp, 1), tokens * h * setting.activation_element) * setting.constants.communication.tensor_contention
    return EndWork(forward_s=seconds / 2.0, backward_s=seconds / 2.0, weight_gradient_s=seconds / 2.0, tensor_forward_s=tensor,
                   tensor_backward_s=tensor / 2.0)


def head_work(setting: Setting, machine: Machine, path_of: PathOf, share: Share, vocabulary_parallel_loss: bool) -> EndWork:
    """Three products of T x V / t x h in 16 bit, 14 bytes per logit, and the reduction of the input gradient.

    Without a vocabulary-parallel loss every rank gathers all T V logits and works on them.
    """
    tokens, h, t, c = share.tokens, setting.model.hidden_size, share.tp, setting.constants
    columns = setting.model.vocab_size / t
    rows = tokens
    logits = tokens * (columns if vocabulary_parallel_loss else setting.model.vocab_size)
    elementwise = elementwise_s(c.elementwise.logit * logits * setting.activation_element / 2.0, machine.elementwise_bytes_s)
    forward = gemm_s(machine.half, rows, columns, h) + 0.4 * elementwise
    weight = gemm_s(machine.half, h, columns, rows)
    backward = gemm_s(machine.half, rows, h, columns) + weight + 0.6 * elementwise
    tensor_forward = tensor_backward = 0.0
    if not everywhere(t == 1):
        contention = c.communication.tensor_contention
        path = path_of(t, 1)
        tensor_backward = all_reduce_s(path, tokens * h * setting.activation_element) * contention
        if not vocabulary_parallel_loss:
            tensor_forward = all_gather_s(path, tokens * setting.model.vocab_size * setting.activation_element) * contention
    return EndWork(forward_s=forward, backward_s=backward, weight_gradient_s=weight, tensor_forward_s=tensor_forward,
                   tensor_backward_s=tensor_backward)
