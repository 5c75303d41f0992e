"""A posted request as a problem: names resolved, defaults filled in and listed, all faults reported together."""
from dataclasses import replace

from solver.catalog.loader import preset
from solver.cost.calibration import checked
from solver.domain.calibration import Calibration
from solver.domain.cluster import Cluster, ClusterSpec
from solver.domain.model import Architecture, LayerType
from solver.domain.problem import Problem
from solver.domain.profile_set import KINDS, ProfileSet
from solver.domain.profiles import Profiles
from solver.domain.request import ModelSpec
from solver.domain.workload import ServingWorkload, TrainingWorkload, Workload
from solver.errors import Assumption, NotCovered
from solver.importers.clusters import cluster_of
from solver.importers.gathering import Gathering
from solver.importers.hugging_face import architecture_of
from solver.importers.profile_sets import profile_set_of, used_with
from solver.importers.profiles import profiles_of

DEFAULT_MEMORY_MARGIN = 0.08
_PLANNED = "full_attention, sliding_attention, mlp_only"


def problem_of(model: ModelSpec, cluster: ClusterSpec, workload: Workload, memory_margin: float | None = None, *,
               profiles: Profiles | None = None, profile_set: ProfileSet | None = None, calibration: Calibration | None = None) -> Problem:
    """The problem that a request poses.

    Raises one error with the faults of all three objects, each with its pointer into the request: `InputError`; `UnknownName` if names are all
    that is wrong; `NotCovered` if everything that is wrong is merely not planned yet. `memory_margin` is a share of the capacity (default 0.08).
    """
    gathering = Gathering()
    _check_workload(gathering, workload)
    architecture = _architecture(gathering, model)
    resolved = gathering.attempt("/cluster", lambda: cluster_of(cluster))
    posted = architecture
    if architecture is not None:
        pointer = _pointer(model)
        _check_covered(gathering, architecture, pointer)
        architecture = _fit_to_length(gathering, architecture, pointer, workload)
    measured = _profiles(gathering, profiles, architecture, resolved[0]) if architecture is not None and resolved is not None else None
    if profile_set is not None and posted is not None and resolved is not None:
        measured = _with_set(gathering, profile_set, measured, profiles, posted, resolved[0], workload)
    if calibration is not None:
        gathering.attempt("/calibration_set", lambda: checked(calibration))
    gathering.raise_if_any()
    assert architecture is not None and resolved is not None    # or the line above has raised
    gathering.assume("/cluster", *resolved[1])
    return Problem(model=architecture, cluster=resolved[0], workload=workload, assumptions=tuple(gathering.assumptions),
                   profiles=measured, calibration=calibration,
                   memory_margin=DEFAULT_MEMORY_MARGIN if memory_margin is None else memory_margin)


def _profiles(gathering: Gathering, profiles: Profiles | None, model: Architecture, cluster: Cluster) -> Profiles | None:
    if profiles is None or profiles.empty:
        return None
    read = gathering.attempt("/profiles", lambda: profiles_of(profiles, model, cluster))
    if read is None:
        return None
    gathering.assume("/profiles", *read[1])
    return read[0]


def _with_set(gathering: Gathering, kept: ProfileSet, measured: Profiles | None, posted: Profiles | None, model: Architecture, cluster: Cluster,
              workload: Workload) -> Profiles | None:
    """The rows that the request brings along, then those of the set that hold for it."""
    before = measured or Profiles(extrapolate=posted is not None and posted.extrapolate)
    read = gathering.attempt("/profile_set", lambda: profile_set_of(kept))
    used = gathering.attempt("/profile_set", lambda: used_with(read[0], before, model, cluster, workload)) if read is not None else None
    if read is None or used is None:
        return None
    gathering.assume("/profile_set", *read[1])
    devices = {g.device.name for g in cluster.node_groups}
    if not any(row.gpu in devices for kind in KINDS for row in getattr(read[0], kind)):
        gathering.assume("/profile_set", Assumption(pointer="", message="the set has no row for a GPU of this cluster"))
    return None if used.empty else used


def _check_workload(gathering: Gathering, workload: Workload) -> None:
    if isinstance(workload, ServingWorkload):
        gathering.refuse("/workload/kind", "'serving' is not planned yet", "training", NotCovered)
        return
    if workload.training != "full":
        gathering.refuse("/workload/training", f"{workload.training!r} is not planned yet", "full", NotCovered)
    if workload.sequence_length_histogram is not None:
        gathering.refuse("/workload/sequence_length_histogram", "mixed sequence lengths are not planned yet", "seq_len alone", NotCovered)


def _pointer(spec: ModelSpec) -> str:
    way = "preset" if spec.preset is not None else "hf_config" if spec.hf_config is not None else "architecture"
    return f"/model/{way}"


def _architecture(gathering: Gathering, spec: ModelSpec) -> Architecture | None:
    pointer = _pointer(spec)
    preset_name, config = spec.preset, spec.hf_config
    if preset_name is not None:
        return gathering.attempt(pointer, lambda: preset(preset_name))
    if config is not None:
        read = gathering.attempt(pointer, lambda: architecture_of(config))
        if read is None:
            return None
        gathering.assume(pointer, *read[1])
        return read[0]
    return spec.architecture


def _check_covered(gathering: Gathering, model: Architecture, pointer: str) -> None:
    if model.kind not in ("decoder", "encoder_decoder"):
        gathering.refuse(f"{pointer}/kind", f"{model.kind!r} is not planned yet", "decoder, encoder_decoder", NotCovered)
    if model.encoder_layers:
        gathering.assume(pointer, Assumption(pointer="", message=f"{model.encoder_layers} layers of the encoder, "
                                             f"{model.num_layers - model.encoder_layers} of the decoder; seq_len tokens on either side"))
    for kind in ("linear_attention", "mamba"):
        if model.layer_types is not None and kind in model.layer_types:
            gathering.refuse(f"{pointer}/layer_types/{model.layer_types.index(kind)}", f"{kind!r} is not planned yet", _PLANNED, NotCovered)


def _fit_to_length(gathering: Gathering, model: Architecture, pointer: str, workload: Workload) -> Architecture:
    """Layers whose window holds a whole sequence attend in full: exact. Chunked attention is planned only there."""
    if not isinstance(workload, TrainingWorkload):
        return model
    seq_len = workload.seq_len
    if model.max_position_embeddings is not None and seq_len > model.max_position_embeddings:
        message = f"{seq_len} tokens are more than the model's {model.max_position_embeddings} learned positions; its table is counted as it is"
        gathering.assume("/workload", Assumption(pointer="/seq_len", message=message))
    if model.layer_types is None or not {"sliding_attention", "chunked_attention"} & set(model.layer_types):
        return model
    if model.sliding_window is not None and model.sliding_window >= seq_len:
        gathering.assume(pointer, Assumption(pointer="", message=f"windows of {model.sliding_window} tokens hold whole sequences of {seq_len}: "
                                             "those layers attend in full"))
        return replace(model, layer_types=_in_full(model.layer_types), sliding_window=None)
    if "chunked_attention" in model.layer_types:
        window = "" if model.sliding_window is None else f" on sequences longer than its {model.sliding_window} tokens (seq_len is {seq_len})"
        gathering.refuse(f"{pointer}/layer_types" if pointer.endswith("architecture") else pointer, f"chunked attention is not planned yet{window}",
                         f"{_PLANNED}; or seq_len up to the chunk", NotCovered)
    return model


def _in_full(types: tuple[LayerType, ...]) -> tuple[LayerType, ...] | None:
    windows = ("sliding_attention", "chunked_attention")
    full: tuple[LayerType, ...] = tuple("full_attention" if t in windows else t for t in types)
    return None if set(full) == {"full_attention"} else full
