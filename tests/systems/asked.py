"""Requests as they are posted, answered by the functions behind the HTTP API."""
import json
from typing import Any

from pydantic import TypeAdapter

from solver.cost.estimate import estimate
from solver.domain.estimate import Estimate
from solver.domain.problem import Problem
from solver.domain.request import EstimateRequest, PlanRequest
from solver.importers.request import problem_of
from solver.search.driver import search
from solver.search.result import SearchResult

Body = dict[str, Any]
_ESTIMATE, _PLAN = TypeAdapter(EstimateRequest), TypeAdapter(PlanRequest)


def estimated(body: Body) -> Estimate:
    """The answer of POST /v1/estimates."""
    asked = _ESTIMATE.validate_json(json.dumps(body))
    layout = asked.strategy or asked.plan
    assert layout is not None                               # the request type refuses a body with neither
    return estimate(problem_of(asked.model, asked.cluster, asked.workload, asked.memory_margin), layout)


def problem_in(body: Body) -> Problem:
    """The problem that a plan request poses."""
    asked = _PLAN.validate_json(json.dumps(body))
    return problem_of(asked.model, asked.cluster, asked.workload)


def planned(body: Body) -> SearchResult:
    """The answer of POST /v1/plans."""
    asked = _PLAN.validate_json(json.dumps(body))
    return search(problem_of(asked.model, asked.cluster, asked.workload), asked.objective, asked.constraints, asked.search)


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51_200) -> Body:
    """A GPT of the usual shape: FFN four times as wide, tied embeddings."""
    return {"architecture": {"num_layers": layers, "hidden_size": hidden, "ffn_hidden_size": 4 * hidden, "gated_ffn": False,
                             "num_attention_heads": heads, "vocab_size": vocabulary, "tied_embeddings": True}}


def nodes(count: int, gpu: str, network_gb_s: float | None = None, **more: Any) -> Body:
    """One group of equal nodes; the network is per GPU and direction."""
    group: Body = {"name": "g", "nodes": count, "gpu": gpu, **more}
    if network_gb_s is not None:
        group["network"] = {"bandwidth_gb_s": network_gb_s}
    return {"node_groups": [group]}
