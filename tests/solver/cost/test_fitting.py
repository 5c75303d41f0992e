"""Fits of calibrations: what was planted is found, what runs do not tell stays at its default, and wild runs do not drag a set along."""
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from solver.cost.calibration import COEFFICIENTS, calibrated, checked
from solver.cost.estimate import estimate
from solver.cost.fitting import ANALYTIC_RUNS, LEAST_ERROR, SLOW_NETWORK, fit, fitted
from solver.cost.observation import Observation, run_of
from solver.cost.responses import table, with_multipliers
from solver.domain.calibration import Calibration
from solver.domain.degrees import Strategy
from solver.domain.model import Architecture, MoE
from solver.domain.problem import Problem
from solver.errors import InputError
from tests.solver.cost.problems import node_group, problem

MODEL = Architecture(num_layers=24, hidden_size=4096, ffn_hidden_size=16384, num_attention_heads=32, vocab_size=50304)
PROBLEM = problem(MODEL, (node_group(),), seq_len=2048, global_batch_size=64)
LAYOUTS = [Strategy(tp=t, pp=p, dp=32 // (t * p), micro_batch_size=b, recompute="full")
           for t, p, b in ((1, 1, 1), (1, 1, 2), (2, 1, 1), (8, 1, 4), (4, 2, 2), (2, 4, 1), (4, 4, 2), (1, 8, 1), (2, 2, 4), (8, 4, 4))]
INSIDE = Strategy(tp=8, dp=1, micro_batch_size=4, recompute="full")


def seconds(of: Problem, layout: Strategy, **multipliers: float) -> float:
    found = estimate(with_multipliers(of, multipliers), layout).step_time_s
    assert found is not None
    return found


def observed(layouts: list[Strategy], of: Problem = PROBLEM, noise: float = 0.0, **multipliers: float) -> list[Observation]:
    """Runs of a cluster on which constants are so many times the defaults, each off by `noise` one way or the other."""
    return [Observation(problem=of, what=s, step_time_s=seconds(of, s, **multipliers) * (1 + noise * (-1) ** (i + 1))) for i, s in enumerate(layouts)]


def multipliers(calibration: Calibration) -> dict[str, float]:
    return dict(calibration.coefficients)


@pytest.mark.parametrize(("name", "by", "within"), [("network", 0.15, 0.05), ("compute", 1.15, 0.03), ("compute", 0.9, 0.03)])
def test_a_planted_coefficient_is_found(name: str, by: float, within: float) -> None:
    account = fitted([run_of(o) for o in observed(LAYOUTS, noise=0.01, **{name: by})], "ours")
    assert multipliers(account.calibration)[name] == pytest.approx(by, rel=within)
    assert account.step_time is not None and account.step_time.left_out < 0.3 * account.step_time.before
    assert account.calibration.runs == len(LAYOUTS) and account.calibration.expected_error < 0.04


def test_two_planted_coefficients_are_told_apart() -> None:
    found = multipliers(fit(observed(LAYOUTS, noise=0.005, network=0.2, compute=1.12), "ours"))
    assert found["network"] == pytest.approx(0.2, rel=0.1) and found["compute"] == pytest.approx(1.12, rel=0.03)


def test_one_run_already_helps_and_is_not_taken_at_its_word() -> None:
    found = fit(observed(LAYOUTS[1:2], compute=1.2), "ours")
    assert 1.02 < multipliers(found)["compute"] < 1.2
    assert multipliers(found)["network"] == multipliers(found)["edges"] == 1.0           # one run cannot tell these
    for layout in LAYOUTS[2:6]:
        truth, plain = seconds(PROBLEM, layout, compute=1.2), seconds(PROBLEM, layout)
        assert abs(seconds(replace(PROBLEM), layout, **multipliers(found)) / truth - 1) < abs(plain / truth - 1)


def test_five_runs_predict_the_others() -> None:
    found = multipliers(fit(observed(LAYOUTS[::2], noise=0.01, network=0.25, compute=1.08), "ours"))
    for layout in LAYOUTS[1::2]:
        truth = seconds(PROBLEM, layout, network=0.25, compute=1.08)
        assert seconds(PROBLEM, layout, **found) == pytest.approx(truth, rel=0.04)


def test_noise_teaches_nothing() -> None:
    account = fitted([run_of(o) for o in observed(LAYOUTS, noise=0.06)], "ours")
    assert all(learned.multiplier == 1.0 and learned.kept_at_default for learned in account.learned)
    assert account.step_time is not None and account.step_time.after == account.step_time.before


def test_one_wild_run_does_not_drag_the_set_along() -> None:
    runs = observed(LAYOUTS, compute=1.1)
    runs[3] = replace(runs[3], step_time_s=1.5 * seconds(PROBLEM, LAYOUTS[3]))
    found = multipliers(fit(runs, "ours"))
    assert 1.0 < found["compute"] < 1.12 and all(found[name] == 1.0 for name in ("network", "tensor", "edges"))


def test_a_very_slow_network_takes_two_layouts_that_differ_in_bytes() -> None:
    inside = problem(MODEL, (node_group(nodes=1),), seq_len=2048, global_batch_size=64)
    within = [Observation(problem=inside, what=replace(INSIDE, micro_batch_size=b), step_time_s=seconds(inside, replace(INSIDE, micro_batch_size=b)))
              for b in (1, 2, 4, 8)]
    across = observed(LAYOUTS[:1] + LAYOUTS[3:4], network=0.1)
    assert multipliers(fit([*within, *across[:1]], "ours"))["network"] >= SLOW_NETWORK * (1 - 1e-9)
    assert multipliers(fit([*within, *across], "ours"))["network"] < SLOW_NETWORK


def test_runs_inside_a_node_say_nothing_of_the_network() -> None:
    inside = problem(replace(MODEL, tied_embeddings=False), (node_group(nodes=1),), seq_len=2048, global_batch_size=64)
    account = fitted([run_of(Observation(problem=inside, what=Strategy(tp=t, dp=8 // t, micro_batch_size=b), step_time_s=seconds(
        inside, Strategy(tp=t, dp=8 // t, micro_batch_size=b), compute=1.15))) for t, b in product((1, 2, 4, 8), (1, 2))], "ours")
    network = next(entry for entry in account.learned if entry.name == "network")
    assert network.multiplier == 1.0 and network.kept_at_default == "no run depends on it"


def test_repeats_of_one_layout_count_once() -> None:
    runs = observed(LAYOUTS[:5], noise=0.02, compute=1.1)
    again = [replace(runs[0], step_time_s=1.5 * (runs[0].step_time_s or 0.0)), runs[0], runs[0]]
    first, second = fit(runs, "ours"), fit([*runs, *again], "ours")
    assert second == first and second.runs == 5


def test_the_same_runs_give_the_same_digits() -> None:
    runs = observed(LAYOUTS, noise=0.02, network=0.3)
    assert fit(runs, "ours") == fit([replace(o, problem=replace(o.problem)) for o in runs], "ours")
    assert fit(runs, "ours").version != fit(runs[1:], "ours").version


def test_the_expected_error_is_drawn_towards_the_formulas_where_runs_are_few() -> None:
    analytic = estimate(PROBLEM, LAYOUTS[0]).confidence.expected_error
    few, many = fit(observed(LAYOUTS[:1]), "ours"), fit(observed(LAYOUTS), "ours")
    assert few.expected_error == pytest.approx(ANALYTIC_RUNS / (1 + ANALYTIC_RUNS) * analytic, rel=0.2)
    assert LEAST_ERROR <= many.expected_error < few.expected_error


def test_measured_memory_moves_memory_alone() -> None:
    layouts = [replace(s, recompute="none", zero_stage=3) for s in LAYOUTS]
    held = [Observation(problem=PROBLEM, what=s, peak_memory_gib=_peak(s, memory=1.3)) for s in layouts]
    account = fitted([run_of(o) for o in held], "ours")
    assert multipliers(account.calibration)["memory"] == pytest.approx(1.3, rel=0.05)
    assert account.step_time is None and account.calibration.runs == 0
    assert account.peak_memory is not None and account.peak_memory.after < 0.5 * account.peak_memory.before
    assert multipliers(fit(observed(LAYOUTS, compute=1.1), "ours"))["memory"] == 1.0


def _peak(layout: Strategy, **by: float) -> float:
    memory = estimate(with_multipliers(PROBLEM, by), layout).memory
    assert memory is not None
    return memory.peak_gib


@pytest.mark.parametrize("coefficient", COEFFICIENTS, ids=lambda c: c.name)
def test_tables_agree_with_pricing(coefficient: object) -> None:
    name = coefficient.name                                # type: ignore[attr-defined]
    runs = [run_of(Observation(problem=PROBLEM, what=s, step_time_s=1.0, peak_memory_gib=1.0)) for s in LAYOUTS]
    responses = [(r.memory if name == "memory" else r.time) for r in runs]
    of_one = table([coefficient], [r for r in responses if r is not None], [1.0] * len(runs))  # type: ignore[list-item]
    for z in np.log([0.5, 0.9, 1.0, 1.04]):
        predicted = [_peak(s, **{name: np.exp(z)}) if name == "memory" else seconds(PROBLEM, s, **{name: np.exp(z)}) for s in LAYOUTS]
        np.testing.assert_allclose(np.exp(of_one.residuals(np.array([z]))[0]), predicted, rtol=0.03)


@pytest.mark.parametrize("name", ["network", "compute", "tensor", "edges"])
def test_slopes_are_those_of_the_residuals(name: str) -> None:
    runs = [run_of(Observation(problem=PROBLEM, what=s, step_time_s=1.0)) for s in LAYOUTS[3:]]
    of_one = table([c for c in COEFFICIENTS if c.name == name], [r.time for r in runs if r.time is not None], [1.0] * len(runs))
    for z in (-0.3, 0.02):
        numeric = (of_one.residuals(np.array([z + 1e-6]))[0] - of_one.residuals(np.array([z - 1e-6]))[0]) / 2e-6
        np.testing.assert_allclose(of_one.residuals(np.array([z]))[1][:, 0], numeric, rtol=1e-4, atol=1e-7)


def test_multipliers_beyond_a_fit_are_refused() -> None:
    wild = Calibration(set_name="x", version="", coefficients=(("compute", 9.0), ("unheard-of", 9.0)), expected_error=0.1, runs=1)
    with pytest.raises(InputError, match="compute times 9") as refused:
        checked(wild)
    assert refused.value.faults[0].pointer == "/coefficients/0/1" and refused.value.faults[0].legal == "0.7 to 1.4"


def test_a_calibration_is_part_of_what_is_asked() -> None:
    found = fit(observed(LAYOUTS, compute=1.1), "ours")
    asked = replace(PROBLEM, calibration=found)
    assert asked.fingerprint() != PROBLEM.fingerprint()
    from solver.catalog.efficiency import efficiency
    assert calibrated(efficiency(), replace(found, coefficients=(("unheard-of", 2.0),))) == efficiency()


def test_confidence_says_what_the_runs_were_like() -> None:
    found = fit(observed(LAYOUTS, noise=0.03), "ours")
    like = estimate(replace(PROBLEM, calibration=found), LAYOUTS[0]).confidence
    assert (like.basis, like.expected_error, like.outside_data) == ("calibrated", found.expected_error, ())
    other = problem(MODEL, (node_group(gpu="H100-SXM5-80GB"),), seq_len=2048, global_batch_size=64)
    experts = replace(MODEL, moe=MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=4096))
    for unlike, words in ((other, "architecture hopper"), (replace(PROBLEM, model=experts), "with routed experts"),
                          (replace(PROBLEM, cluster=replace(PROBLEM.cluster, node_groups=(node_group(nodes=64),))), "512 GPUs")):
        layout = replace(LAYOUTS[0], dp=512, micro_batch_size=1) if "512" in words else LAYOUTS[0]
        asked = replace(unlike, calibration=found, workload=replace(unlike.workload, global_batch_size=512))
        confidence = estimate(asked, layout).confidence
        assert words in confidence.outside_data[0] and confidence.expected_error > found.expected_error
    assert estimate(replace(other, calibration=found), LAYOUTS[0]).confidence.expected_error >= estimate(other, LAYOUTS[0]).confidence.expected_error


def test_fifty_runs_are_fitted_in_about_a_second() -> None:
    layouts = [replace(s, zero_stage=z, recompute=r) for s in LAYOUTS for z in (0, 1, 2) for r in ("none", "full")][:50]
    runs = observed(layouts, noise=0.05, compute=1.05)
    begun = time.process_time()
    fit(runs, "ours")
    assert time.process_time() - begun < 4.0


def test_the_optimiser_is_loaded_only_to_fit() -> None:
    program = "import sys, solver.cost.fitting, solver.cost.estimate; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
