"""Request bodies: the smallest that is legal, and changes to it."""
from typing import Any


def plan_body(cluster: str = "quick", **changes: Any) -> dict[str, Any]:
    """A legal body of POST /v1/plans; the cluster's name tells the fake planner what to do."""
    return {
        "model": {"architecture": {"num_layers": 4, "hidden_size": 64, "ffn_hidden_size": 128, "num_attention_heads": 4, "vocab_size": 1000}},
        "cluster": {"name": cluster, "node_groups": [{"name": "a", "nodes": 1, "gpu": "A100"}]},
        "workload": {"kind": "training", "seq_len": 128, "global_batch_size": 8},
    } | changes


def estimate_body(cluster: str = "quick", **changes: Any) -> dict[str, Any]:
    """A legal body of POST /v1/estimates."""
    return plan_body(cluster, strategy={"tp": 2}) | changes
