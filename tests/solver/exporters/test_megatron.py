"""Launch files for Megatron-LM: golden files, a dry run of the script, hostile names, and every rule that refuses."""
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from solver.cost.estimate import estimate
from solver.domain.degrees import Strategy
from solver.domain.plan import DeviceSlice, Plan
from solver.domain.problem import Problem
from solver.domain.workload import CustomOptimizer, LengthBin
from solver.errors import ExportError
from solver.exporters.registry import export, reasons_against
from tests.solver.exporters.plans import dense, experts, group, problem, uneven, uniform

GOLDEN = Path(__file__).parent / "golden"


def _uneven_mixed() -> tuple[Problem, Plan]:
    of = problem()
    return of, uneven(of, [13, 12, 9, 6], sequence_parallel=True, recompute="selective")


def _interleaved() -> tuple[Problem, Plan]:
    of = problem()
    return of, uniform(of, Strategy(tp=4, pp=4, dp=2, virtual_stages=2, schedule="interleaved", recompute="full", sequence_parallel=True))


def _uneven_interleaved() -> tuple[Problem, Plan]:
    of = problem(dense(num_layers=30))
    return of, uneven(of, [4, 4, 4, 3, 4, 4, 4, 3], virtual_stages=2)


def _experts() -> tuple[Problem, Plan]:
    of = problem(experts(), batch=256)
    return of, uniform(of, Strategy(tp=2, pp=2, dp=8, ep=8, sequence_parallel=True, layers_per_stage=(7, 6)))


def _context() -> tuple[Problem, Plan]:
    names = tuple(f"node{i:02d}.example.org" for i in range(4))
    of = problem(dense(norm_bias=True, gated_ffn=False, attention_bias=True, ffn_bias=True, max_position_embeddings=8192, tied_embeddings=True),
                 group("only", 4, hostnames=names), seq_len=8192, precision="fp8", gradient_precision="bf16", attention_kernel="flash_3")
    return of, uniform(of, Strategy(tp=2, cp=4, dp=4, ulysses=2, shard_group=8, zero_stage=1))


def _scattered() -> tuple[Problem, Plan]:
    of, plan = _two(tp=2, cp=2)
    return of, _swapped(plan)


CASES: dict[str, Callable[[], tuple[Problem, Plan]]] = {
    "uneven-mixed": _uneven_mixed, "interleaved": _interleaved, "uneven-interleaved": _uneven_interleaved, "experts": _experts, "context": _context,
    "scattered": _scattered}


def _files(of: Problem, plan: Plan) -> dict[str, str]:
    return {f.name: f.text for f in export("megatron", of, plan)}


@pytest.mark.parametrize("case", CASES)
def test_files_are_as_recorded(case: str, record: bool) -> None:
    of, plan = CASES[case]()
    for name, text in _files(of, plan).items():
        path = GOLDEN / case / name
        text = text.replace(of.fingerprint()[:16], "0" * 16)   # it follows every field of the problem, and is not what is recorded here
        text = re.sub(r"[\d.,]*\d(?= s,| tokens/s| %| GiB)", "N", text)      # predicted figures follow the cost model: see the next test
        if record:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{path} differs: look at it, then run pytest --record"


def test_notes_state_what_is_predicted() -> None:
    of, plan = _context()
    found, text = estimate(of, plan), _files(of, plan)["README.txt"]
    assert found.step_time_s and found.memory and found.risk == "safe" and "WARNING" not in text
    (stage,) = found.memory.stages
    for said in (f"step time {found.step_time_s:.4g} s", f"{found.tokens_per_s:,.0f} tokens/s", "tp 2, cp 4, dp 4, pp 1",
                 f"expected error {100 * found.confidence.expected_error:.0f} %",
                 f"stage 0: {stage.total_gib:.1f} GiB per GPU at the peak, of {stage.capacity_gib:.1f} GiB", "memory risk: safe"):
        assert said in text, said


@pytest.mark.parametrize(("margin", "seq_len", "said"), [(0.85, 8192, "leaves less than 85 %"), (0.08, 131072, "needs more memory than there is")])
def test_notes_warn_of_memory(margin: float, seq_len: int, said: str) -> None:
    of, plan = _context()
    of = replace(of, memory_margin=margin, workload=replace(of.workload, seq_len=seq_len), model=replace(of.model, max_position_embeddings=seq_len))
    assert said in _files(of, plan)["README.txt"].split("WARNING", 1)[1]


@pytest.mark.parametrize("case", CASES)
def test_script_passes_shellcheck(case: str, tmp_path: Path, shell_faults: Callable[[Path], str]) -> None:
    script = tmp_path / "launch.sh"
    script.write_text(_files(*CASES[case]())["launch.sh"])
    assert shell_faults(script) == ""


def _dry_run(text: str, tmp_path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a torchrun that prints its arguments, one a line, after the variables that matter."""
    (tmp_path / "torchrun").write_text('#!/bin/bash\necho "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_MAX_CONNECTIONS"\nprintf "%s\\n" "$@"\n')
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "launch.sh").write_text(text)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MEGATRON_DIR": "/opt/megatron lm"} | environment
    return subprocess.run(["bash", tmp_path / "launch.sh", *arguments], capture_output=True, text=True, env=env, cwd=tmp_path, check=False)


def test_every_host_finds_its_own_node_rank(tmp_path: Path) -> None:
    text = _files(*_uneven_mixed())["launch.sh"]
    for rank, host in enumerate(["fast-0", "fast-1", "slow-0", "slow-1"]):
        lines = _dry_run(text, tmp_path, HOST_NAME=f"{host}.cluster.example").stdout.splitlines()
        assert lines[0] == "0,1,2,3,4,5,6,7 1"
        assert lines[lines.index("--node-rank") + 1] == str(rank)
        assert lines[lines.index("--nnodes") + 1] == "4"
        assert lines[lines.index("--nproc-per-node") + 1] == "8"
        assert lines[lines.index("--master-addr") + 1] == "fast-0"
        assert lines[lines.index("--pipeline-model-parallel-layout") + 1] == "Et*13|t*12|t*9|t*6L"
        assert "/opt/megatron lm/pretrain_gpt.py" in lines


def test_own_arguments_replace_the_trial_run(tmp_path: Path) -> None:
    lines = _dry_run(_files(*_uneven_mixed())["launch.sh"], tmp_path, "--data-path", "a b", NODE_RANK="2").stdout.splitlines()
    assert lines[-2:] == ["--data-path", "a b"]
    assert "--mock-data" not in lines


@pytest.mark.parametrize("environment", [{"HOST_NAME": "elsewhere"}, {"NODE_RANK": "4"}, {"NODE_RANK": "-1"}, {"NODE_RANK": "x[$(touch broken)]"}])
def test_an_unknown_host_is_refused(tmp_path: Path, environment: dict[str, str]) -> None:
    done = _dry_run(_files(*_uneven_mixed())["launch.sh"], tmp_path, **environment)
    assert done.returncode == 1
    assert "NODE_RANK" in done.stderr
    assert not (tmp_path / "broken").exists()


HOSTILE = ["x'; touch broken; '", "$(touch broken)", "`touch broken`", "a\ntouch broken\n", 'a"; touch broken; "', "a b", "-rf", "a\\", "#", "../up",
           ""]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_host_names_are_refused(name: str) -> None:
    of = problem(None, group("fast", 2), group("slow", 2, hostnames=("fine", name)))
    plan = uneven(of, [10, 10, 10, 10])
    assert "launcher.host_names" in {r.code for r in reasons_against("megatron", of, plan)}
    with pytest.raises(ExportError, match="host name"):
        export("megatron", of, plan)


@pytest.mark.parametrize("name", [n for n in HOSTILE if n])
def test_hostile_names_elsewhere_do_not_reach_the_shell(name: str, tmp_path: Path) -> None:
    groups = [replace(g, device=replace(g.device, name=name, vendor=name)) for g in (group("fast", 2), group("slow", 2))]
    of = problem(dense(name=name), *groups)
    done = _dry_run(_files(of, uneven(of, [10, 10, 10, 10]))["launch.sh"], tmp_path, NODE_RANK="0")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "broken").exists()


@pytest.mark.parametrize("case", CASES)
def test_rank_table_matches_the_formula_of_the_rank_order(case: str) -> None:
    of, plan = CASES[case]()
    table = json.loads(_files(of, plan)["ranks.json"])
    stage = plan.pipelines[0].stages[0]
    dp = stage.dp * len(plan.pipelines)
    assert table["order"] == "tp-cp-ep-dp-pp"
    assert [row["rank"] for row in table["ranks"]] == list(range(plan.gpus))
    for row in table["ranks"]:
        assert row["rank"] == row["tp"] + stage.tp * (row["cp"] + stage.cp * (row["dp"] + dp * row["stage"]))
        within = row["rank"] % (stage.tp * stage.cp * dp)
        assert within == row["etp"] + stage.etp * (row["ep"] + stage.ep * row["edp"])
        assert row["layers"] == [list(r) for r in plan.pipelines[row["pipeline"]].stages[row["stage"]].layers]
    assert len({(row["host"], row["gpu"]) for row in table["ranks"]}) == plan.gpus


def test_gpu_order_within_a_node_is_kept() -> None:
    of = problem()
    plan = uneven(of, [20, 20])
    first, second = plan.pipelines[0].stages
    turned = replace(first, devices=(replace(first.devices[0], gpus=(4, 5, 6, 7, 0, 1, 2, 3)),))
    plan = replace(plan, pipelines=(replace(plan.pipelines[0], stages=(turned, second)),))
    text = _files(of, plan)["launch.sh"]
    assert re.search(r"gpus=\(\n    '4,5,6,7,0,1,2,3'\n    '0,1,2,3,4,5,6,7'\n\)", text)


def _pipelines_on_nodes(**more: Any) -> tuple[Problem, Plan]:
    """Two pipelines of two stages, each pipeline on its own node."""
    of = problem()
    one = uneven(of, [20, 20], micro_batches=32, **more).pipelines[0]
    pipelines = []
    for node in range(2):
        stages = tuple(replace(s, tp=4, devices=(replace(s.devices[0], node=node, gpus=tuple(range(4 * i, 4 * i + 4))),))
                       for i, s in enumerate(one.stages))
        pipelines.append(replace(one, stages=stages))
    return of, Plan(pipelines=tuple(pipelines))


def test_whole_pipelines_on_nodes_use_the_other_rank_order() -> None:
    files = _files(*_pipelines_on_nodes())
    assert "--use-tp-pp-dp-mapping" in files["launch.sh"]
    table = json.loads(files["ranks.json"])
    assert table["order"] == "tp-cp-ep-pp-dp"
    assert all(row["rank"] == row["tp"] + 4 * (row["stage"] + 2 * row["dp"]) for row in table["ranks"])


def test_scattered_ranks_are_started_one_by_one(tmp_path: Path, shell_faults: Callable[[Path], str]) -> None:
    files = _files(*_scattered())
    ranks = json.loads(files["ranks.json"])["ranks"]
    (tmp_path / "python").write_text('#!/bin/bash\necho "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $CUDA_VISIBLE_DEVICES" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    done = _dry_run(files["launch.sh"], tmp_path, HOST_NAME="fast-0")
    assert done.returncode == 0, done.stderr
    started = sorted(line.split()[:6] for line in done.stdout.splitlines())
    here = [r for r in ranks if r["host"] == "fast-0"]
    gpus = ",".join(str(r["gpu"]) for r in here)
    assert started == sorted([str(r["rank"]), str(r["local_rank"]), str(len(ranks)), str(len(here)), ranks[0]["host"], gpus] for r in here)
    assert [r["rank"] for r in here] != list(range(here[0]["rank"], here[0]["rank"] + len(here)))
    assert shell_faults(tmp_path / "launch.sh") == ""


def test_one_failed_process_ends_the_others(tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/bash\nif [[ $LOCAL_RANK == 1 ]]; then exit 3; fi\nexec sleep 60\n')
    (tmp_path / "python").chmod(0o755)
    done = _dry_run(_files(*_scattered())["launch.sh"], tmp_path, NODE_RANK="0")
    assert done.returncode == 1
    assert "failed" in done.stderr


def test_unequal_hosts_are_noted() -> None:
    of = problem()
    plan = uneven(of, [20, 20])
    four = DeviceSlice(node_group="fast", node=0, gpus=(0, 1, 2, 3))
    two, other_two = DeviceSlice(node_group="fast", node=1, gpus=(0, 1)), DeviceSlice(node_group="slow", node=0, gpus=(0, 1))
    plan = _changed(_changed(plan, 0, 0, tp=4, devices=(four,)), 0, 1, tp=4, devices=(two, other_two))
    assert "Hosts run 2 and 4 processes" in _files(of, plan)["README.txt"]


def _changed(plan: Plan, pipeline: int, stage: int, **fields: Any) -> Plan:
    stages = list(plan.pipelines[pipeline].stages)
    stages[stage] = replace(stages[stage], **fields)
    pipelines = list(plan.pipelines)
    pipelines[pipeline] = replace(pipelines[pipeline], stages=tuple(stages))
    return replace(plan, pipelines=tuple(pipelines))


def _swapped(plan: Plan) -> Plan:
    """The first stage of one pipeline and the last of the other change places."""
    first, last = plan.pipelines[0].stages[0], plan.pipelines[1].stages[1]
    return _changed(_changed(plan, 0, 0, devices=last.devices), 1, 1, devices=first.devices)


def _shortened(plan: Plan) -> Plan:
    """The second pipeline loses its last stage."""
    return replace(plan, pipelines=(plan.pipelines[0], replace(plan.pipelines[1], stages=plan.pipelines[1].stages[:1])))


def _two(**strategy: Any) -> tuple[Problem, Plan]:
    of = problem()
    return of, uniform(of, Strategy(**{"tp": 4, "pp": 2, "dp": 2} | strategy))


def _refusals() -> dict[str, tuple[str, Problem, Plan]]:
    of, plan = _two()
    moe = problem(experts(), batch=256)
    return {
        "tp by stage": ("unequal_degrees", of, _changed(plan, 0, 1, tp=2)),
        "ep by stage": ("unequal_degrees", of, _changed(plan, 0, 1, ep=2)),
        "recompute by stage": ("mixed_recompute", of, _changed(plan, 0, 1, recompute="full")),
        "zero by stage": ("mixed_zero", of, _changed(plan, 0, 1, zero_stage=0)),
        "depth by pipeline": ("unequal_pipelines", of, _shortened(plan)),
        "micro-batches by pipeline": ("unequal_pipelines", of, replace(
            plan, pipelines=(plan.pipelines[0], replace(plan.pipelines[1], micro_batches=1)))),
        "layers by pipeline": ("unequal_pipelines", of, _changed(_changed(plan, 0, 0, layers=((0, 20),)), 0, 1, layers=((21, 39),))),
        "zero 3": ("zero_stage", *_two(zero_stage=3)),
        "partial recompute": ("recompute", *_two(recompute="partial")),
        "gpipe": ("schedule", *_two(schedule="gpipe")),
        "virtual stages under 1f1b": ("schedule", of, replace(_two(schedule="interleaved", virtual_stages=2)[1], schedule="1f1b")),
        "virtual stages without pipeline": ("virtual_stages", *_two(tp=8, pp=1, virtual_stages=2, schedule="interleaved")),
        "micro-batches of interleaving": ("interleaved_micro_batches", problem(batch=62), uniform(
            problem(batch=62), Strategy(tp=4, pp=2, dp=2, virtual_stages=2, schedule="interleaved"))),
        "missing layers": ("layer_order", of, _changed(_changed(plan, 0, 1, layers=((20, 30),)), 1, 1, layers=((20, 30),))),
        "layers out of order": ("layer_order", of, _changed(_changed(plan, 0, 0, layers=((20, 39),)), 1, 0, layers=((20, 39),))),
        "ranges unlike virtual stages": ("layer_order", of, replace(plan, virtual_stages=2)),
        "offload": ("offload", of, replace(plan, offload=0.5)),
        "slices": ("slices", of, replace(plan, slices=4)),
        "pipeline vocabulary": ("pipeline_vocabulary", of, replace(plan, pipeline_vocabulary=True)),
        "whole logits": ("vocabulary_parallel_loss", of, replace(plan, vocabulary_parallel_loss=False)),
        "heads": ("heads", problem(dense(num_attention_heads=20, num_kv_heads=4, head_dim=256)), _two(tp=8)[1]),
        "KV heads": ("kv_heads", problem(dense(num_attention_heads=48, num_kv_heads=6, head_dim=128)), _two(tp=4)[1]),
        "experts without sequence parallelism": ("moe_sequence_parallel", moe, uniform(moe, Strategy(tp=2, pp=2, dp=8, ep=8))),
        "tokens over context": ("sequence", problem(seq_len=4100), uniform(problem(seq_len=4100), Strategy(tp=2, cp=4, dp=2))),
        "tokens over tensor and context": ("sequence", problem(seq_len=12), uniform(
            problem(seq_len=12), Strategy(tp=4, cp=2, dp=2, sequence_parallel=True))),
        "Ulysses outside cp": ("ulysses", *_two(cp=2, ulysses=4)),
        "Ulysses over heads": ("ulysses", problem(dense(num_attention_heads=4, num_kv_heads=4)), _two(cp=2, ulysses=2)[1]),
        "width over micro-batch": ("micro_batch", of, _changed(uneven(of, [40], tp=4, dp=2), 0, 0)),
        "batch": ("global_batch", problem(batch=128), plan),
        "ep without experts": ("experts", *_two(ep=2)),
        "experts over ep": ("experts", problem(experts(moe=replace(experts().moe, num_experts=60)), batch=256), uniform(
            moe, Strategy(tp=2, pp=2, dp=8, ep=8, sequence_parallel=True))),
        "ep over ranks": ("experts", moe, uniform(moe, Strategy(tp=2, pp=2, dp=4, ep=16, sequence_parallel=True))),
        "shard group": ("shard_group", *_two(shard_group=3)),
        "expert replicas over instances": ("shard_group", moe, uniform(
            moe, Strategy(tp=2, pp=2, dp=8, ep=16, sequence_parallel=True, shard_group=4))),
        "GPU count": ("devices", of, _changed(plan, 0, 0, devices=plan.pipelines[0].stages[0].devices * 2)),
        "a GPU twice": ("devices", of, _changed(plan, 0, 0, devices=plan.pipelines[0].stages[1].devices)),
        "one name for two nodes": ("host_names", problem(None, group("fast", 2, hostnames=("a", "a"))), plan),
        "encoder-decoder": ("model", problem(dense(kind="encoder_decoder")), plan),
        "linear attention": ("model", problem(dense(layer_types=("linear_attention",) * 40)), plan),
        "norms": ("model", problem(dense(norms_per_layer=4)), plan),
        "output bias": ("model", problem(dense(output_bias=True)), plan),
        "norm of all heads": ("model", problem(dense(qk_norm="projection")), plan),
        "bias after attention": ("model", problem(dense(attention_bias=True)), plan),
        "FFN bias alone": ("model", problem(dense(ffn_bias=True, attention_output_bias=True)), plan),
        "learned positions with MTP": ("model", problem(dense(mtp_layers=1, max_position_embeddings=4096)), plan),
        "optimizer": ("optimizer", problem(optimizer="adafactor"), plan),
        "optimizer by bytes": ("optimizer", problem(optimizer=CustomOptimizer(bytes_per_parameter=6)), plan),
        "LoRA": ("workload", problem(training="lora"), plan),
        "mixed lengths": ("workload", problem(sequence_length_histogram=(LengthBin(length=512, share=1.0),)), plan),
        "kernel": ("attention_kernel", problem(attention_kernel="flash_1"), plan),
        "eager norms": ("norm_kernel", problem(norm_kernel="eager"), plan),
        "gradients": ("gradient_precision", problem(precision="fp16", gradient_precision="bf16"), plan),
    }


@pytest.mark.parametrize("case", _refusals())
def test_what_the_launcher_cannot_run_is_refused_with_the_reason(case: str) -> None:
    rule, of, plan = _refusals()[case]
    reasons = [r for r in reasons_against("megatron", of, plan) if r.code == f"launcher.{rule}"]
    assert reasons, [r.code for r in reasons_against("megatron", of, plan)]
    assert all(r.message and r.fix for r in reasons)
    with pytest.raises(ExportError):
        export("megatron", of, plan)


def test_width_inside_a_stage_is_data_parallel_to_the_launcher() -> None:
    of = problem()
    plan = uneven(of, [40], tp=4, dp=2, micro_batch_size=2, micro_batches=32)
    text = _files(of, plan)["launch.sh"]
    assert "--micro-batch-size '1'" in text
    assert "--global-batch-size '64'" in text
