"""What cannot be is refused, with what could; what is merely slow is not."""
from dataclasses import replace

import pytest

from solver.cost.observation import Observation, Run, run_of
from solver.cost.plausible import ENOUGH, refuse_absurd
from solver.domain.degrees import Strategy
from solver.errors import Fault, InputError
from tests.solver.cost.problems import node_group, problem
from tests.solver.cost.test_fitting import LAYOUTS, MODEL, PROBLEM, seconds


def run(layout: Strategy, step_time_s: float | None = None, peak_memory_gib: float | None = None) -> Run:
    return run_of(Observation(problem=PROBLEM, what=layout, step_time_s=step_time_s, peak_memory_gib=peak_memory_gib))


def refused(run: Run, others: tuple[Run, ...] = ()) -> tuple[Fault, ...]:
    with pytest.raises(InputError) as error:
        refuse_absurd(run, others)
    return error.value.faults


@pytest.mark.parametrize("by", [0.7, 1.0, 1.5, 2.5])
def test_slow_and_fast_runs_are_taken(by: float) -> None:
    for layout in LAYOUTS:
        refuse_absurd(run(layout, by * seconds(PROBLEM, layout)), ())


def test_a_slow_network_explains_a_slow_run() -> None:
    wide = LAYOUTS[0]
    refuse_absurd(run(wide, seconds(PROBLEM, wide, network=0.05)), ())


def test_nobody_is_faster_than_the_peak() -> None:
    layout = LAYOUTS[0]
    flops = 6.0 * 64 * 2048 * (MODEL.num_layers * 16 * MODEL.hidden_size**2 + MODEL.vocab_size * MODEL.hidden_size)
    at_peak = flops / (32 * 312e12)
    fault, = refused(run(layout, 0.98 * at_peak))
    assert fault.pointer == "/measured/step_time_s" and "MFU of 102%" in fault.message and fault.legal and fault.legal.startswith(f"{at_peak:.3g} to")


@pytest.mark.parametrize("by", [0.01, 400.0])
def test_a_factor_of_the_unit_is_refused(by: float) -> None:
    fault, = refused(run(LAYOUTS[3], by * seconds(PROBLEM, LAYOUTS[3])))
    assert fault.pointer == "/measured/step_time_s" and "is predicted" in (fault.legal or "")


def test_an_outlier_is_refused_by_the_rest_of_its_set() -> None:
    others = tuple(run(layout, 1.3 * seconds(PROBLEM, layout)) for layout in LAYOUTS[:ENOUGH])
    refuse_absurd(run(LAYOUTS[5], 1.3 * seconds(PROBLEM, LAYOUTS[5])), others)
    slow = run(LAYOUTS[5], 3.5 * seconds(PROBLEM, LAYOUTS[5]))
    fault, = refused(slow, others)
    assert f"{ENOUGH} other runs" in fault.message and "a set of its own" in (fault.legal or "")
    refuse_absurd(slow, others[1:])                        # too few to say what is usual
    refuse_absurd(slow, (others[0],) * 10)                 # repeats of one layout are one run


def test_memory_is_held_against_the_device_and_what_must_be_there() -> None:
    assert refused(run(LAYOUTS[0], peak_memory_gib=90.0))[0].pointer == "/measured/peak_memory_gib"
    assert "far under" in refused(run(LAYOUTS[0], peak_memory_gib=0.5))[0].message
    refuse_absurd(run(LAYOUTS[0], peak_memory_gib=70.0), ())


def test_what_has_no_price_teaches_nothing() -> None:
    for layout, pointer in ((Strategy(tp=64), "/strategy"), (Strategy(dp=32, schedule="solver"), "/strategy/schedule")):
        with pytest.raises(InputError) as error:
            run_of(Observation(problem=PROBLEM, what=layout, step_time_s=1.0))
        assert error.value.faults[0].pointer == pointer


def test_long_sequences_may_exceed_the_usual_count_of_attention() -> None:
    """MFU by the usual rule counts the masked half of attention, so that it can pass 100 % where nothing is wrong."""
    long = problem(replace(MODEL, num_layers=4), (node_group(nodes=1),), seq_len=131_072, global_batch_size=8)
    layout = Strategy(tp=8, recompute="full")
    refuse_absurd(run_of(Observation(problem=long, what=layout, step_time_s=0.5 * seconds(long, layout))), ())
