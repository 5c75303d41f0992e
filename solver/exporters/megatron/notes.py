"""The README.txt of an export: how to run it, what was assumed, what is left to the user."""
from collections.abc import Iterator

from solver.domain.plan import Plan
from solver.domain.problem import Problem
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

Stages
{stages}

Notes
{notes}
"""


def notes(problem: Problem, plan: Plan, arranged: Arrangement) -> str:
    """The text of README.txt."""
    lines = [f"- {line}" for line in _notes(problem, arranged)]
    return _TEXT.format(version=WRITTEN_FOR, stages="\n".join(_stages(plan, arranged)), notes="\n".join(lines))


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
