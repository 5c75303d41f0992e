#!/usr/bin/env bash
# Starts this host's share of one training job. Run it on every host of the table below, at about the same time.
# Written for Megatron-LM main d98e8a6 of 2026-08-22 (Megatron Core 0.20 in development).
# Plan of problem 0000000000000000: 16 GPUs on 2 hosts.
#
#   MEGATRON_DIR=/path/to/Megatron-LM bash launch.sh                a short run on made-up data
#   MEGATRON_DIR=/path/to/Megatron-LM bash launch.sh ARGUMENT...    your own data, tokenizer, learning rate, checkpoints
#
# HOST_NAME says which row of the table this host is (default: the host's own name); NODE_RANK says it by number.
# MASTER_ADDR and MASTER_PORT are where rank 0 listens (default: the first host, port 29500).
set -euo pipefail

# One row per host, in node rank order: name, GPUs in the order of their ranks. The order is half of the plan: do not sort it.
hosts=(
    'fast-1'
    'fast-0'
)
gpus=(
    '4,5,6,7,0,1,2,3'
    '4,5,6,7,0,1,2,3'
)
ranks=(
    '0,1,2,3,8,9,10,11'
    '4,5,6,7,12,13,14,15'
)

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

model=(
    --transformer-impl 'transformer_engine'
    --num-layers '40'
    --hidden-size '5120'
    --ffn-hidden-size '13824'
    --num-attention-heads '40'
    --seq-length '4096'
    --max-position-embeddings '4096'
    --position-embedding-type 'rope'
    --normalization 'RMSNorm'
    --attention-dropout '0'
    --hidden-dropout '0'
    --kv-channels '128'
    --group-query-attention
    --num-query-groups '8'
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
)

parallel=(
    --tensor-model-parallel-size '2'
    --pipeline-model-parallel-size '2'
    --context-parallel-size '2'
    --cp-comm-type 'p2p'
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
)

step=(
    --micro-batch-size '1'
    --global-batch-size '64'
    --bf16
    --attention-backend 'auto'
    --optimizer 'adam'
)

data=(
    --mock-data
    --tokenizer-type 'NullTokenizer'
    --vocab-size '128255'
    --train-iters '20'
    --eval-iters '0'
    --lr '1e-5'
    --lr-decay-style 'constant'
    --log-interval '1'
    --log-throughput
)

if (( $# > 0 )); then
    data=("$@")
fi

# This host's ranks are not consecutive, which torchrun cannot express: every process is started with its own rank. One that fails ends the others.
IFS=, read -r -a local_ranks <<< "${ranks[node_rank]}"
export MASTER_ADDR MASTER_PORT WORLD_SIZE=16 LOCAL_WORLD_SIZE=${#local_gpus[@]}
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
