"""What Megatron-LM cannot express of a model or a workload."""
from collections.abc import Callable, Iterator

from solver.domain.estimate import Reason
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload
from solver.exporters.megatron.reasons import broken

ATTENTION_KINDS = ("full_attention", "sliding_attention")
OPTIMIZERS = {"adam": "adam", "adamw": "adam", "sgd": "sgd"}
ATTENTION_BACKENDS = {"auto": "auto", "flash_1": None, "flash_2": "flash", "flash_3": "flash", "unfused": "unfused"}


def _model(problem: Problem) -> Iterator[Reason]:
    model = problem.model
    if model.kind != "decoder":
        yield broken("model", f"models of kind {model.kind} are not written for Megatron-LM yet", "a decoder")
    kinds = sorted(set(model.layer_types or ()) - set(ATTENTION_KINDS))
    if kinds:
        yield broken("model", f"layers of type {' and '.join(kinds)} are not written for Megatron-LM yet",
                     "layers of type " + " or ".join(ATTENTION_KINDS))
    if model.norms_per_layer != 2:
        yield broken("model", f"{model.norms_per_layer} norms per layer; Megatron-LM's layers have 2", '"norms_per_layer": 2')
    if model.output_bias:
        yield broken("model", "Megatron-LM's output layer has no bias", '"output_bias": false')
    if model.qk_norm == "projection":
        yield broken("model", "Megatron-LM normalises queries and keys per head, not over all heads at once", '"qk_norm": "head"')
    attention_output_bias = model.attention_bias if model.attention_output_bias is None else model.attention_output_bias
    if attention_output_bias != model.ffn_bias:
        yield broken("model", "Megatron-LM has biases on the attention output and on the FFN together or on neither",
                     '"attention_output_bias" equal to "ffn_bias"')
    if model.ffn_bias and not model.attention_bias:
        yield broken("model", "Megatron-LM has no FFN bias without biases on queries, keys and values", '"attention_bias": true')
    if model.mtp_layers and model.max_position_embeddings is not None:
        yield broken("model", "Megatron-LM's multi-token prediction needs rotary positions", '"max_position_embeddings": null')


def _workload(problem: Problem) -> Iterator[Reason]:
    work = problem.workload
    if not isinstance(work, TrainingWorkload):
        yield broken("workload", "Megatron-LM is exported for training alone", '"kind": "training"')
        return
    if not isinstance(work.optimizer, str) or work.optimizer not in OPTIMIZERS:
        name = work.optimizer if isinstance(work.optimizer, str) else f"with {work.optimizer.bytes_per_parameter:g} bytes per parameter"
        yield broken("optimizer", f"the optimizer {name} is not written for Megatron-LM", "one of " + ", ".join(OPTIMIZERS))
    if work.training != "full":
        yield broken("workload", f"{work.training} training is not one of the launch script's modes", '"training": "full"')
    if work.sequence_length_histogram is not None:
        yield broken("workload", "mixed sequence lengths need packing that the launch script does not set up",
                     "one seq_len, no sequence_length_histogram")
    if ATTENTION_BACKENDS[work.attention_kernel] is None:
        yield broken("attention_kernel", f"{work.attention_kernel} is not a backend of Megatron-LM",
                     "one of " + ", ".join(k for k, v in ATTENTION_BACKENDS.items() if v))
    if work.norm_kernel == "eager":
        yield broken("norm_kernel", "Megatron-LM's layers use fused norms", '"norm_kernel": "auto" or "fused"')
    if work.gradient_precision == "bf16" and work.precision in ("fp16", "fp32"):
        yield broken("gradient_precision", f"bf16 gradients with {work.precision} weights", '"gradient_precision": "fp32"')


MODEL_RULES: tuple[Callable[[Problem], Iterator[Reason]], ...] = (_model, _workload)
