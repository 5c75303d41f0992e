"""What all GPUs can hold is never told too low: against labels on tables of small problems, tied embeddings and lone stages included."""
from dataclasses import replace

import numpy as np
import pytest

from solver.domain.options import Constraints
from solver.search.bounds import quick_bound
from solver.search.capacity import capacity_bound, kinds_within
from solver.search.explore import table_factory
from solver.search.labels import run
from solver.search.space import Space
from tests.solver.small_problems import small_problem

FAR = 1e6                                                  # seconds: no plan is slower


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("seed", range(60, 72))
def test_capacity_excludes_no_best_plan(seed: int, groups: int) -> None:
    problem = small_problem(seed, most_gpus=3 if groups == 1 else 6)
    problem = replace(problem, cluster=replace(problem.cluster, node_groups=problem.cluster.node_groups[:groups], links=()))
    space, factory = Space(problem, Constraints()), table_factory(problem, Constraints())
    for context in space.contexts():
        for base in space.free_choices(context):
            choice = replace(base, schedule="1f1b")
            kinds = space.kinds(choice)
            if not kinds:
                continue
            t = factory.tables(choice, kinds)
            best = run(t, FAR, dominance=True, max_labels=10**5, keep=1)
            if not best.complete or not best.plans:
                continue
            for longer in (1 + 1e-6, 1.05):
                assert capacity_bound(t, quick_bound(t), best.bound * longer) <= best.bound * (1 + 1e-9)
                assert kinds_within(t, best.bound * longer)[np.array([p.kind for p in best.plans[0].stages])].all()
