"""How long pricing takes: one layout by `estimate`, many by `price_table`. All times are of the processor, so that other work on the machine counts
less."""
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from solver.domain.cluster import ClusterSpec, NodeGroupSpec
from solver.domain.degrees import RECOMPUTE_MODES, Strategy
from solver.domain.problem import Problem
from solver.domain.request import ModelSpec
from solver.domain.workload import TrainingWorkload
from solver.importers.request import problem_of

REPEATS = 200
TABLE_ROWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem of equal nodes of eight H100s, and a layout of it."""

    name: str
    model: str
    gpus: int
    batch: int
    strategy: Strategy
    seq_len: int = 4096

    def problem(self) -> Problem:
        """Made anew: nothing is remembered of it."""
        cluster = ClusterSpec(node_groups=(NodeGroupSpec(name="h100", nodes=self.gpus // 8, gpu="H100-SXM5-80GB"),))
        return problem_of(ModelSpec(preset=self.model), cluster, TrainingWorkload(seq_len=self.seq_len, global_batch_size=self.batch))


def case(name: str, model: str, gpus: int, batch: int, **fields: Any) -> Case:
    interleaved = {"schedule": "interleaved"} if fields.get("virtual_stages", 1) > 1 else {}
    return Case(name=name, model=model, gpus=gpus, batch=batch, strategy=Strategy(**fields, **interleaved, sequence_parallel=fields.get("tp", 1) > 1))


CASES = (
    case("1F1B", "llama-3.1-70b", 512, 1024, tp=8, pp=8, dp=8, micro_batch_size=4),
    case("1F1B, 16,384 GPUs", "llama-3.1-405b", 16_384, 2048, tp=8, pp=16, dp=128),
    case("interleaved, v 6, m 64", "gpt3-175b", 1024, 1024, tp=8, pp=8, dp=16, virtual_stages=6),
    case("interleaved, v 20, m 32", "llama-3.1-70b", 512, 512, tp=8, pp=4, dp=16, virtual_stages=20),
    case("ZeRO-3", "llama-3.1-70b", 512, 512, dp=512, zero_stage=3, recompute="full", framework="fsdp"),
    case("experts", "qwen3-30b-a3b", 64, 512, pp=4, dp=16, ep=8),
)
TABLE = replace(CASES[0], name="table", seq_len=8192)


def estimate_rows() -> Iterator[tuple[str, ...]]:
    """Case, layout, first layout of the problem, other layouts of it, the same layout again."""
    from solver.cost.estimate import estimate

    for each in CASES:
        s, of = each.strategy, each.problem()
        took = [cpu_s(lambda of=of, s=s: estimate(of, s))]                                # type: ignore[misc]
        fresh = [cpu_s(lambda of=of, o=o: estimate(of, o)) for o in others(of, s)]        # type: ignore[misc]
        again = [cpu_s(lambda of=of, s=s: estimate(of, s)) for _ in range(REPEATS)]       # type: ignore[misc]
        degrees = ", ".join(f"{name} {getattr(s, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(s, name) > 1)
        yield each.name, f"{each.model}, {degrees}", *(f"{statistics.median(times) * 1e3:.2f} ms" for times in (took, fresh, again))


def others(of: Problem, s: Strategy) -> Iterator[Strategy]:
    """Layouts that differ in how their stages run."""
    for recompute, zero_stage, parallel_loss in itertools.product(RECOMPUTE_MODES, (0, 1, 2, 3), (True, False)):
        other = replace(s, recompute=recompute, zero_stage=zero_stage, vocabulary_parallel_loss=parallel_loss)
        if other != s:
            yield other


def table_rows() -> Iterator[tuple[str, ...]]:
    """How the table was made, and how long that took."""
    from solver.cost.table import price_table

    of = TABLE.problem()
    layouts = legal_layouts(of, TABLE_ROWS)
    for memory in ("nothing remembered", "units remembered", "units remembered, again"):
        took = cpu_s(lambda: price_table(of, layouts))
        yield f"{len(layouts):,}", memory, f"{took:.2f} s", f"{took / len(layouts) * 1e6:.0f} us"


def legal_layouts(of: Problem, most: int) -> list[Strategy]:
    """Different layouts on all GPUs that obey every rule, drawn from the product of degrees, schedules, micro-batches, recompute and ZeRO."""
    gpus, layers, work = of.cluster.gpus, of.model.num_layers, of.workload
    batch = work.global_batch_size if isinstance(work, TrainingWorkload) else 1
    found = []
    for tp, cp, pp, b in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (p for p in range(1, layers + 1) if layers % p == 0), (1, 2, 4)):
        dp, left = divmod(gpus, tp * cp * pp)
        if left or not dp or batch % (dp * b):
            continue
        chunks = [v for v in range(2, layers // pp + 1) if layers // pp % v == 0 and pp > 1 and batch // (dp * b) % pp == 0]
        for v, recompute, zero, parallel in itertools.product((1, *chunks), RECOMPUTE_MODES, range(4), (False, True) if tp > 1 else (False,)):
            found.append(Strategy(tp=tp, cp=cp, pp=pp, dp=dp, micro_batch_size=b, virtual_stages=v, schedule="interleaved" if v > 1 else "1f1b",
                                  recompute=recompute, zero_stage=zero, sequence_parallel=parallel))
    random.Random(0).shuffle(found)
    return found[:most]


def cpu_s(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun
