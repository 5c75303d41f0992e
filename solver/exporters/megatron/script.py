"""The files of the export: launch.sh, hosts.txt, ranks.json, README.txt."""
import json
from dataclasses import asdict

from solver.domain.plan import Plan
from solver.domain.problem import Problem
from solver.domain.workload import TrainingWorkload
from solver.errors import ExportError
from solver.exporters.files import ExportedFile
from solver.exporters.megatron.flags import Flag, expert_flags, mock_flags, model_flags, parallel_flags, step_flags
from solver.exporters.megatron.hosts import Arrangement, arrangement
from solver.exporters.megatron.notes import notes
from solver.exporters.megatron.version import WRITTEN_FOR

_HEAD = """#!/usr/bin/env bash
# Starts this host's share of one training job. Run it on every host of the table below, at about the same time.
# Written for {version}.
# Plan of problem {digest}: {gpus} GPUs on {nodes} hosts.
#
#   MEGATRON_DIR=/path/to/Megatron-LM bash launch.sh                a short run on made-up data
#   MEGATRON_DIR=/path/to/Megatron-LM bash launch.sh ARGUMENT...    your own data, tokenizer, learning rate, checkpoints
#
# HOST_NAME says which row of the table this host is (default: the host's own name); NODE_RANK says it by number.
# MASTER_ADDR and MASTER_PORT are where rank 0 listens (default: the first host, port 29500).
set -euo pipefail

"""
_TABLE = """
# One row per host, in node rank order: name, GPUs in the order of their ranks. The order is half of the plan: do not sort it.
"""
_LOOKUP = r"""
MEGATRON_DIR=${MEGATRON_DIR:?set MEGATRON_DIR to the checkout of Megatron-LM}
MASTER_ADDR=${MASTER_ADDR:-${hosts[0]}}
MASTER_PORT=${MASTER_PORT:-29500}

node_rank=${NODE_RANK:-}
if [[ -z $node_rank ]]; then
    own=${HOST_NAME:-$(hostname)}
    for i in "${!hosts[@]}"; do
        if [[ ${hosts[i]} == "$own" || ${hosts[i]} == "${own%%.*}" ]]; then
            node_rank=$i
        fi
    done
    if [[ -z $node_rank ]]; then
        printf 'The host %s is not in the table of this script; set HOST_NAME or NODE_RANK.\n' "$own" >&2
        exit 1
    fi
fi
if [[ ! $node_rank =~ ^[0-9]+$ ]] || (( 10#$node_rank >= ${#hosts[@]} )); then
    printf 'NODE_RANK is %s; it must be from 0 to %d.\n' "$node_rank" "$(( ${#hosts[@]} - 1 ))" >&2
    exit 1
fi
node_rank=$(( 10#$node_rank ))

IFS=, read -r -a local_gpus <<< "${gpus[node_rank]}"
export CUDA_VISIBLE_DEVICES=${gpus[node_rank]}
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}

"""
_DATA = r"""
if (( $# > 0 )); then
    data=("$@")
fi
"""
_TORCHRUN = r"""
exec torchrun \
    --rdzv-backend static \
    --nnodes "${#hosts[@]}" \
    --node-rank "$node_rank" \
    --nproc-per-node "${#local_gpus[@]}" \
    --master-addr "$MASTER_ADDR" \
    --master-port "$MASTER_PORT" \
    "$MEGATRON_DIR/pretrain_gpt.py" \
    "${model[@]}" \
    "${parallel[@]}" \
    "${step[@]}" \
    "${data[@]}"
"""
_ONE_BY_ONE = r"""
# This host's ranks are not consecutive, which torchrun cannot express: every process is started with its own rank. One that fails ends the others.
IFS=, read -r -a local_ranks <<< "${ranks[node_rank]}"
export MASTER_ADDR MASTER_PORT WORLD_SIZE=@WORLD@ LOCAL_WORLD_SIZE=${#local_gpus[@]}
trap 'kill 0' INT TERM
for i in "${!local_ranks[@]}"; do
    RANK=${local_ranks[i]} LOCAL_RANK=$i python "$MEGATRON_DIR/pretrain_gpt.py" "${model[@]}" "${parallel[@]}" "${step[@]}" "${data[@]}" &
done
for i in "${!local_ranks[@]}"; do
    if ! wait -n; then
        # shellcheck disable=SC2046 # one argument per process
        kill $(jobs -p) 2>/dev/null || true
        printf 'A process of this host failed.\n' >&2
        exit 1
    fi
done
"""


def files(problem: Problem, plan: Plan) -> tuple[ExportedFile, ...]:
    """The export of a plan that `reasons_against` has nothing against."""
    arranged, work = arrangement(problem, plan), problem.workload
    if not isinstance(work, TrainingWorkload):
        raise ExportError("Megatron-LM cannot run this plan: ask reasons_against first")
    return (
        ExportedFile(name="launch.sh", media_type="text/x-shellscript", text=_launch(problem, plan, work, arranged)),
        ExportedFile(name="hosts.txt", media_type="text/plain", text="".join(f"{h.name} slots={len(h.gpus)}\n" for h in arranged.hosts)),
        ExportedFile(name="ranks.json", media_type="application/json", text=_ranks(arranged)),
        ExportedFile(name="README.txt", media_type="text/plain", text=notes(problem, plan, arranged)),
    )


def _launch(problem: Problem, plan: Plan, work: TrainingWorkload, arranged: Arrangement) -> str:
    head = _HEAD.format(version=WRITTEN_FOR, digest=problem.fingerprint()[:16], gpus=len(arranged.places), nodes=len(arranged.hosts))
    groups = {"model": model_flags(problem.model, work.seq_len) + expert_flags(problem.model),
              "parallel": parallel_flags(problem, plan, arranged.pipelines_first), "step": step_flags(work, plan), "data": mock_flags(problem.model)}
    table = _array("hosts", [(h.name,) for h in arranged.hosts]) + _array("gpus", [(",".join(map(str, h.gpus)),) for h in arranged.hosts])
    run = _TORCHRUN
    if not arranged.consecutive:
        table += _array("ranks", [(",".join(map(str, h.ranks)),) for h in arranged.hosts])
        run = _ONE_BY_ONE.replace("@WORLD@", str(len(arranged.places)))
    return head + _TABLE.lstrip("\n") + table + _LOOKUP + "\n".join(_array(name, flags) for name, flags in groups.items()) + _DATA + run


def _array(name: str, rows: list[Flag]) -> str:
    return f"{name}=(\n" + "".join("    " + " ".join(_word(w) for w in row) + "\n" for row in rows) + ")\n"


def _word(word: str) -> str:
    """The word as bash reads it back: flags as they are, everything else in single quotes."""
    return word if word.startswith("--") and word.replace("-", "").isalnum() else "'" + word.replace("'", "'\"'\"'") + "'"


def _ranks(arranged: Arrangement) -> str:
    local: dict[str, int] = {}
    rows = []
    for place in arranged.places:
        row = asdict(place)
        row["local_rank"] = local.get(place.host, 0)
        local[place.host] = row["local_rank"] + 1
        rows.append(row)
    order = "tp-cp-ep-pp-dp" if arranged.pipelines_first else "tp-cp-ep-dp-pp"
    return json.dumps({"written_for": WRITTEN_FOR, "order": order, "hosts": [h.name for h in arranged.hosts], "ranks": rows}, indent=1) + "\n"
