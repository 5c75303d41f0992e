"""GET /v1/strategies: schedules and levers, what each does, whether this version prices it and searches over it."""
from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from service.api.schema import described
from service.jobs.render import json_bytes
from solver.domain.degrees import PLANNED_SCHEDULES, SCHEDULES, Strategy
from solver.simulate.orders import ORDERS

router = APIRouter(prefix="/v1", tags=["catalogue"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A schedule or lever. `priced`: POST /v1/estimates answers for it; `planned`: the search chooses it."""

    name: str
    summary: str
    priced: bool
    planned: bool


SCHEDULE_SUMMARIES = {
    "gpipe": "all forward passes, then all backward passes: simple, but holds every micro-batch's activations",
    "1f1b": "one forward, one backward in turn: the bubble of gpipe with activations of at most pp micro-batches",
    "interleaved": "1f1b over several virtual stages per GPU: a smaller bubble for more messages and more activations",
    "zb-h1": "backward split into input and weight gradients to fill the bubble, with the memory of 1f1b",
    "zb-h2": "as zb-h1, with more micro-batches in flight for almost no bubble",
    "zb-v": "two chunks per GPU laid out as a V: no bubble with the memory of 1f1b where passes take equal time",
    "v-half": "the V layout with half the activations of 1f1b",
    "v-min": "the V layout with about a third of the activations of 1f1b",
    "stp": "tensor-parallel communication braided with computation of neighbouring micro-batches",
    "slimpipe": "sequences cut into slices that flow through the pipeline, for very long contexts",
    "solver": "an order of its own for each problem, found by the solver",
}
LEVER_SUMMARIES = {
    "tp": "tensor parallelism: each layer's matrices split over GPUs that should share a fast link",
    "pp": "pipeline parallelism: consecutive layers on different GPUs",
    "dp": "data parallelism: replicas of the model, gradients averaged every step",
    "cp": "context parallelism: each sequence split over GPUs",
    "ep": "expert parallelism: the experts of a layer spread over GPUs",
    "etp": "tensor parallelism inside each expert",
    "virtual_stages": "several slices of layers per GPU, for the interleaved schedule",
    "micro_batch_size": "sequences that pass through the pipeline together",
    "zero_stage": "1: optimizer states sharded over replicas, 2: gradients too, 3: weights too. Of \N{GREEK CAPITAL LETTER PSI} weights a GPU sends "
                  "2\N{GREEK CAPITAL LETTER PSI} a step under 1 and 2 (under 2 the half that is gradients in every micro-batch), "
                  "3\N{GREEK CAPITAL LETTER PSI} in every micro-batch under 3",
    "sequence_parallel": "activations between tensor-parallel regions split along the sequence",
    "recompute": "activations computed again in the backward pass instead of kept: none, selective, partial, full",
    "schedule": "the order of forward and backward passes",
    "slices": "pieces that each sequence is cut into, for slimpipe",
    "offload": "share of the activations kept in host memory",
    "shard_group": "GPUs over which ZeRO shards, when fewer than all replicas",
    "ulysses": "share of context parallelism done by exchanging heads instead of passing keys and values round a ring",
    "layers_per_stage": "an uneven split of the layers over the stages",
    "vocabulary_parallel_loss": "logits split over the tensor-parallel GPUs",
    "pipeline_vocabulary": "embedding and output weights split over the pipeline",
    "framework": "the training stack, for its defaults of overlap and fused kernels",
}
SEARCHED = ("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch_size", "zero_stage", "sequence_parallel", "recompute", "schedule",
            "layers_per_stage")
UNPRICED = ("slices", "offload", "pipeline_vocabulary")


def schedules() -> tuple[Described, ...]:
    return tuple(Described(name=s, summary=SCHEDULE_SUMMARIES[s], priced=s in ORDERS, planned=s in PLANNED_SCHEDULES and s in ORDERS)
                 for s in SCHEDULES)


def levers() -> tuple[Described, ...]:
    return tuple(Described(name=n, summary=LEVER_SUMMARIES[n], priced=n not in UNPRICED, planned=n in SEARCHED)
                 for n in Strategy.__dataclass_fields__)


@router.get("/strategies", summary="Schedules and levers, and what this version does with them", response_class=Response,
            openapi_extra=described(None, {200: "StrategyList"}))
def list_strategies() -> Response:
    return Response(json_bytes({"schedules": schedules(), "levers": levers()}), media_type="application/json")
