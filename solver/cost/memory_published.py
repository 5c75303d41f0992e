"""Memory formulas as papers print them: oracles for what is priced, which agrees with them where they apply."""


def transformer_layer_bytes(seq_len: int, sequences: int, hidden: int, heads: int, tp: int = 1, sequence_parallel: bool = False,
                            selective: bool = False) -> float:
    """Activations of a GPT layer with dropout, 16 bit: s b h (34 + 5 a s / h); under t: s b h (10 + 24 / t + 5 a s / (h t)); with sequence
    parallelism all / t.

    Selective recompute or flash attention removes the 5 a s / h. Source: Korthikanti et al. 2022 (arXiv 2205.05198), equations 1 to 4.
    """
    unit = float(seq_len * sequences * hidden)
    scores = 0.0 if selective else 5.0 * heads * seq_len / hidden
    if sequence_parallel:
        return unit * (34.0 + scores) / tp
    return unit * (10.0 + 24.0 / tp + scores / tp)


def gated_layer_bytes(seq_len: int, sequences: int, hidden: int, kv_width: int, ffn: int, top_k: int = 1, shards: int = 1,
                      fused: bool = True) -> float:
    """Activations of a gated (Llama) layer under flash attention and sequence parallelism: s b (12 h + 4 kv + 6 f top_k) / (t c); 8 f unfused.

    kv is the width of the keys. Source: SlimPipe (arXiv 2504.14519).
    """
    return seq_len * sequences * (12.0 * hidden + 4.0 * kv_width + (6.0 if fused else 8.0) * ffn * top_k) / shards


def recomputed_layer_bytes(seq_len: int, sequences: int, hidden: int, kv_width: int, shards: int = 1) -> float:
    """The same with norms, activation and first matrix recomputed: s b (8 h + 4 kv) / (t c). Source: SlimPipe (arXiv 2504.14519)."""
    return seq_len * sequences * (8.0 * hidden + 4.0 * kv_width) / shards


def state_bytes_per_parameter(zero_stage: int, shards: float, gradient_bytes: float = 4.0) -> float:
    """16-bit weights, gradients and Adam's fp32 state per parameter: ZeRO-1 2 + g + 12 / d, ZeRO-2 2 + (g + 12) / d, ZeRO-3 (2 + g + 12) / d.

    Source: ZeRO (arXiv 1910.02054), with gradients of g bytes.
    """
    sharded = {0: 0.0, 1: 12.0, 2: gradient_bytes + 12.0, 3: gradient_bytes + 14.0}[zero_stage]
    return gradient_bytes + 14.0 - sharded + sharded / shards
