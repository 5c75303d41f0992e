"""Planners that stand in for the library in solver processes. What they do is chosen by the name of the cluster in the request."""
import os
import time
from dataclasses import dataclass

from solver.domain.cluster import Cluster, Device, FabricTier, NodeGroup
from solver.domain.estimate import Confidence, Estimate, Memory, ModelFacts, Reason, StageMemory, TimeParts
from solver.domain.options import Constraints, Objective, SearchOptions
from solver.domain.plan import DeviceSlice, Pipeline, Plan, Stage, Versions
from solver.domain.problem import Problem
from solver.domain.request import EstimateRequest, PlanRequest
from solver.errors import Assumption, Fault, NotCovered, UnknownName
from solver.search.result import Alternative, Baseline, Cancelled, Progress, Report, SearchReport, SearchResult

STEP_TIME_S = 0.1 + 0.2                                    # 0.30000000000000004: must survive the journey digit for digit
DEVICE = Device(name="A100", vendor="nvidia", arch="ampere", memory_gib=80, reported_memory_gib=79.3, memory_bandwidth_gb_s=2039, link_type="nvlink",
                link_gb_s=300, link_domain_gpus=8, network_gb_s=25)
CONFIDENCE = Confidence(basis="analytic", expected_error=0.1)
STAGE_MEMORY = StageMemory(capacity_gib=78.1, weights_gib=1, gradients_gib=2, optimizer_gib=3, activations_gib=4, logits_gib=5, buffers_gib=6,
                           total_gib=21)
ESTIMATE = Estimate(
    model=ModelFacts(parameters=13_998_904_320, active_parameters=13_998_904_320), feasible=True, fits_memory=True, risk="safe",
    step_time_s=STEP_TIME_S, tokens_per_s=158000.5, tokens_per_s_per_gpu=2470.1, model_tflops_per_gpu=219.3, mfu=0.703,
    memory=Memory(peak_gib=61.2, capacity_gib=78.1, stages=(STAGE_MEMORY,)), time=TimeParts(compute_s=STEP_TIME_S), confidence=CONFIDENCE)


@dataclass(frozen=True, slots=True)
class FakePlanner:
    """`quick` answers at once, `slow` takes two seconds, `endless` goes on until told to stop; see `search` for the rest."""

    diary: str = ""                                        # file that gets a line for every search begun

    def load(self) -> None:
        return None

    def warm(self) -> None:
        return None

    def versions(self) -> Versions:
        return Versions(cost_model="fake-1", catalogue="fake-1")

    def problem(self, request: PlanRequest | EstimateRequest) -> Problem:
        groups = []
        for i, spec in enumerate(request.cluster.node_groups):
            if spec.gpu != "A100":
                raise UnknownName(Fault(pointer=f"/cluster/node_groups/{i}/gpu", message=f"{str(spec.gpu)[:40]!r} is not in the catalogue",
                                        legal="A100"))
            gpus = spec.gpus_per_node or 8
            groups.append(NodeGroup(name=spec.name, nodes=spec.nodes, gpus_per_node=gpus, device=DEVICE,
                                    tiers=(FabricTier(size=spec.nodes * gpus, bandwidth_gb_s=25, latency_us=5, name="network"),)))
        if request.model.architecture is None:
            raise UnknownName(Fault(pointer="/model/preset", message="not in the catalogue", legal="an architecture"))
        return Problem(model=request.model.architecture, cluster=Cluster(name=request.cluster.name, node_groups=tuple(groups)),
                       workload=request.workload, assumptions=(Assumption(pointer="/cluster/node_groups/0/network", message="25 GB/s, as is usual"),))

    def estimate(self, problem: Problem, request: EstimateRequest) -> Estimate:
        return ESTIMATE

    def search(self, problem: Problem, objective: Objective, constraints: Constraints, options: SearchOptions,
               report: Report, cancelled: Cancelled) -> SearchResult:
        kind = problem.cluster.name
        if self.diary:
            with open(self.diary, "a") as f:
                f.write(f"{kind} {os.getpid()}\n")
        if kind == "not-covered":
            raise NotCovered(Fault(pointer="/workload/kind", message="'serving' is not planned by this version", legal="training"))
        if kind == "broken":
            raise RuntimeError("a bug with a secret in it")
        if kind == "deadly":
            os._exit(9)
        if kind == "stuck":
            time.sleep(3600)
        duration_s = {"slow": 2.0, "endless": 3600.0}.get(kind, 0.0)
        begun_s = time.monotonic()
        step = 0
        while True:
            elapsed_s = time.monotonic() - begun_s
            report(Progress(phase="search", incumbent_s=STEP_TIME_S + 1 / (step + 1), bound_s=0.25, gap=0.5, candidates=10, pruned=step, solved=step,
                            elapsed_s=elapsed_s))
            if elapsed_s >= duration_s or cancelled():
                break
            time.sleep(0.05)
            step += 1
        stopped = "cancelled" if cancelled() else "proof"
        return result(problem, "optimal" if stopped == "proof" and kind != "unproved" else "feasible", stopped, elapsed_s)

    def judge(self, problem: Problem, plan: Plan, predicted: Estimate, constraints: Constraints) -> tuple[Reason, ...]:
        return (Reason(code="layers.missing", message="layer 3 is nowhere"),) if problem.cluster.name == "mistaken" else ()


def result(problem: Problem, outcome: str, stopped: str, wall_s: float) -> SearchResult:
    devices = DeviceSlice(node_group=problem.cluster.node_groups[0].name, node=0, gpus=(0,))
    stage = Stage(layers=((0, problem.model.num_layers - 1),), devices=(devices,))
    plan = Plan(pipelines=(Pipeline(micro_batches=problem.workload.global_batch_size, stages=(stage,)),))
    return SearchResult(outcome=outcome, plan=plan, predicted=ESTIMATE, bound_s=STEP_TIME_S, gap=0.0,
                        alternatives=(Alternative(plan=plan, predicted=ESTIMATE, why_not_best="slower"),), rejected=(),
                        baselines=(Baseline(name="uniform", step_time_s=0.5),), reasons=(), relaxation=None,
                        search=SearchReport(engine="cp_sat", candidates=10, pruned=5, solved=5, solver_calls=5, wall_s=wall_s, stopped=stopped))
