"""The README.txt of an export: how to run it, what was assumed, what is left to the user."""
from collections.abc import Iterator

from solver.cost.estimate import estimate
from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.errors import InputError
from solver.exporters.megatron.hosts import Arrangement
from solver.exporters.megatron.version import WRITTEN_FOR

_TEXT = """Launch files for Megatron-LM
Written for {version}.

Files
  launch.sh    run on every host; finds its row in its own table and starts its processes with the ranks of the plan
  hosts.txt    the hosts in node rank order, for pdsh, mpirun or a scheduler
  ranks.json   every rank: host, GPU, stage, coordinates, layers

Run
  MEGATRON_DIR=/path/to/Megatron-LM bash launch.sh
      on every host: 20 steps on made-up data, to compare the step time with the prediction
  MEGATRON_DIR=/path/to/Megatron-LM bash launch.sh --data-path ... --tokenizer-type ... --lr ... --train-iters ...
      your own arguments replace those of the trial run

Node ranks come from the table in launch.sh, never from the order of arrival: with uneven layers a wrong order would run, slowly or out of memory.

Predicted
{predicted}

Stages
{stages}

Notes
{notes}
"""


def notes(problem: Problem, plan: Plan, arranged: Arrangement) -> str:
    """The text of README.txt."""
    lines = [f"- {line}" for line in _notes(problem, arranged)]
    return _TEXT.format(version=WRITTEN_FOR, predicted="\n".join(_predicted(problem, plan)), stages="\n".join(_stages(plan, arranged)),
                        notes="\n".join(lines))


def _predicted(problem: Problem, plan: Plan) -> Iterator[str]:
    """What a measurement is to be compared with, and what to watch: time, error, memory by stage and its risk, degrees."""
    first = plan.pipelines[0].stages[0]
    try:
        found = estimate(problem, plan)
    except InputError as unpriced:                         # the files run all the same
        yield f"  nothing: {unpriced.faults[0].message}"
        return
    if found.step_time_s is None or found.tokens_per_s is None or found.memory is None:
        yield "  nothing: this version does not price the plan"
        return
    yield f"  step time {found.step_time_s:.4g} s, {found.tokens_per_s:,.0f} tokens/s, expected error {100 * found.confidence.expected_error:.0f} %"
    data = sum(p.stages[0].dp for p in plan.pipelines)
    yield (f"  degrees tp {first.tp}, cp {first.cp}, dp {data}, pp {len(plan.pipelines[0].stages)}, ep {first.ep}, etp {first.etp}, virtual stages "
           f"{plan.virtual_stages}; {plan.pipelines[0].micro_batches} micro-batches of {plan.micro_batch_size}, schedule {plan.schedule}, "
           f"recompute {first.recompute}, ZeRO {first.zero_stage}")
    for i, stage in enumerate(found.memory.stages):
        yield f"  stage {i}: {stage.total_gib:.1f} GiB per GPU at the peak, of {stage.capacity_gib:.1f} GiB that the allocator may hold"
    yield f"  memory risk: {found.risk}"
    if found.risk == "risky":
        yield (f"  WARNING: some stage leaves less than {100 * problem.memory_margin:g} % of its memory free; "
               "a small error of the prediction is enough to run out.")
        yield "  Watch the first steps, or plan again with a memory_margin among the constraints."
    elif found.risk == "over":
        yield "  WARNING: some stage needs more memory than there is. It is predicted to run out: do not start it as it is."


def _stages(plan: Plan, arranged: Arrangement) -> Iterator[str]:
    for index, stage in enumerate(plan.pipelines[0].stages):
        hosts = [h.name for h in arranged.hosts if index in h.stages]
        shown = ", ".join(hosts[:8]) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")
        layers = ", ".join(f"{first}-{last}" for first, last in stage.layers)
        yield f"  stage {index}: layers {layers} on {shown}"


def _notes(problem: Problem, arranged: Arrangement) -> Iterator[str]:
    unnamed = sorted({p.node_group for p in arranged.places if problem.cluster.group(p.node_group).hostnames is None})
    if unnamed:
        yield (f"The cluster names no hosts in {', '.join(unnamed)}: {unnamed[0]}-0 and so on are placeholders. "
               "Replace them in launch.sh and hosts.txt.")
    sizes = sorted({len(h.gpus) for h in arranged.hosts})
    if not arranged.consecutive:
        yield "Some hosts hold ranks that are not consecutive, which torchrun cannot express: launch.sh starts every process with its own rank."
    elif len(sizes) > 1:
        yield (f"Hosts run {' and '.join(map(str, sizes))} processes. torchrun sums them up with static rendezvous; "
               "schedulers that assume equal counts need one task per host.")
    if arranged.pipelines_first:
        yield "Hosts hold whole pipelines, so the ranks run in the order tp-cp-ep-pp-dp (--use-tp-pp-dp-mapping)."
    if problem.model.max_position_embeddings is None:
        yield ("Rotary base and scaling do not change the speed and are left at Megatron-LM's defaults: "
               "set --rotary-base and the like for real training.")
    if problem.model.moe is not None:
        yield ("Router scores, balancing losses and capacity are left at Megatron-LM's defaults: "
               "set the --moe-router flags of the model for real training.")
    yield "Megatron-LM pads the vocabulary to a multiple of 128 * tp; the padding is not in the plan's parameter count."
