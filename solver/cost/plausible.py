"""Refuses observations that cannot be: a set would learn nonsense from them."""
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

import numpy as np

from solver.cost.fitting import fitted
from solver.cost.flops import gpus_by_group, peak_flops_s
from solver.cost.observation import Run
from solver.cost.parameters import embedding_parameters, parameter_counts
from solver.cost.price import step_time_s
from solver.cost.setting import setting
from solver.errors import Fault, InputError
from solver.units import gib_from_bytes

WILD = 4.0                                                 # factor off the prediction, beyond what the slowest or fastest network explains
ALIKE = 2.0                                                # factor off the rest of its set that any run may be
SPREAD = 6.0                                               # times the spread of the rest of the set that it may be
ENOUGH = 4                                                 # runs that tell what is usual in a set


def refuse_absurd(run: Run, others: Sequence[Run]) -> None:
    """Raise `InputError` with every measured figure that cannot be, or that does not belong to the other runs of its set, and what is plausible.

    Step time: not under what the GPUs' peak allows (MFU of 100 %), not 4 times off the formulas with the network anywhere from its slowest to its
    fastest, and near what the other runs say of this layout. Memory: not over the device, not 4 times under the prediction.
    """
    faults = [*_time(run, others), *_memory(run)]
    if faults:
        raise InputError(*faults)


def _time(run: Run, others: Sequence[Run]) -> Iterator[Fault]:
    if run.time is None or run.step_time_s is None:
        return
    network = 1.0 + run.time.changes["network"]
    least, most = run.time.predicted * float(network.min()) / WILD, run.time.predicted * float(network.max()) * WILD
    peak = _at_peak_s(run)
    legal = f"{max(least, peak):.3g} to {most:.3g} s; {run.time.predicted:.3g} s is predicted"
    if run.step_time_s < peak:
        yield Fault(pointer="/measured/step_time_s", legal=legal,
                    message=f"{run.step_time_s:g} s is faster than the GPUs' peak: an MFU of {peak / run.step_time_s:.0%}")
    elif not least <= run.step_time_s <= most:
        yield Fault(pointer="/measured/step_time_s", message=f"{run.step_time_s:g} s is far off any prediction of this layout", legal=legal)
    else:
        yield from _unlike(run, run.step_time_s, others)


def _unlike(run: Run, measured_s: float, others: Sequence[Run]) -> Iterator[Fault]:
    """Whether a run is an outlier of its set: by its distance from the others' fit, against their own."""
    timed = [o for o in others if o.step_time_s is not None]
    fit = fitted(timed, "others").calibration if len(timed) >= ENOUGH else None
    if fit is None or fit.runs < ENOUGH:
        return

    def predicted(of: Run) -> float:
        return step_time_s(replace(of.problem, calibration=fit), of.layout) or 0.0

    own = median(abs(float(np.log(predicted(o) / o.step_time_s))) for o in timed if o.step_time_s is not None)
    allowed = float(np.exp(max(np.log(ALIKE), SPREAD * own)))
    here = predicted(run)
    if not here / allowed <= measured_s <= here * allowed:
        yield Fault(pointer="/measured/step_time_s",
                    message=f"{measured_s:g} s does not belong to the {fit.runs} other runs of this set: they say {here:.3g} s of this layout",
                    legal=f"{here / allowed:.3g} to {here * allowed:.3g} s; or a set of its own, if the cluster or the software has changed")


def _at_peak_s(run: Run) -> float:
    """Seconds of one step's matrix products at the peak of every GPU: 6 B s P, P what tokens are multiplied with. Without attention, of which masks
    and windows can spare most."""
    shared, layout, model = setting(run.problem), run.layout, run.problem.model
    sequences = layout.replicas * layout.micro_batches * layout.micro_batch_size
    looked_up = 0 if model.tied_embeddings else embedding_parameters(model)
    multiplied = max(0, parameter_counts(model).active_parameters - looked_up)
    return 6.0 * sequences * shared.workload.seq_len * multiplied / peak_flops_s(shared, gpus_by_group(layout))


def _memory(run: Run) -> Iterator[Fault]:
    if run.memory is None or run.peak_memory_gib is None:
        return
    shared = setting(run.problem)
    device = max(gib_from_bytes(shared.machines[name].capacity_bytes) for stage in run.layout.stages for name in stage.groups)
    least = run.memory.predicted / WILD
    legal = f"{least:.3g} to {device:.4g} GiB; {run.memory.predicted:.3g} GiB is predicted"
    if run.peak_memory_gib > device:
        yield Fault(pointer="/measured/peak_memory_gib", message=f"{run.peak_memory_gib:g} GiB is more than a GPU has", legal=legal)
    elif run.peak_memory_gib < least:
        yield Fault(pointer="/measured/peak_memory_gib", message=f"{run.peak_memory_gib:g} GiB is far under what this layout must hold", legal=legal)
