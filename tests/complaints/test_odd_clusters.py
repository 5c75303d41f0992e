"""Numbers of GPUs that are no power of two are ordinary, more GPUs are never slower, and how many are used is said."""
from dataclasses import replace

from solver.domain.options import Constraints, SearchOptions
from solver.search import driver
from tests.solver.cost.problems import SMALL, node_group, problem


def test_any_number_of_gpus_has_a_plan_and_more_are_never_slower() -> None:
    before = float("inf")
    for gpus in range(1, 9):
        of = problem(replace(SMALL, num_layers=6), (node_group(nodes=1, gpus_per_node=gpus),), global_batch_size=12)
        result = driver.search(of, "throughput", Constraints(), SearchOptions(time_limit_s=60.0))
        assert result.outcome == "optimal" and result.plan is not None and result.predicted is not None
        assert result.objective == "throughput"
        used = {(d.node, gpu) for p in result.plan.pipelines for s in p.stages for d in s.devices for gpu in d.gpus}
        assert len(used) == result.predicted.gpus <= gpus
        assert result.predicted.step_time_s is not None and result.predicted.step_time_s <= before * (1 + 1e-9)
        before = result.predicted.step_time_s
