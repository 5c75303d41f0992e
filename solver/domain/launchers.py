"""What each launcher can run, a row each: the search, the judge and the exporters read the same rows.

Launchers come in three tiers of unevenness. A tier by itself changes no price; the training stack that a launcher brings along (`framework`) does.
"""
from dataclasses import dataclass
from typing import Literal

from solver.domain.degrees import Framework

Tier = Literal["even", "uneven_layers", "uneven_degrees"]
Launcher = Literal["megatron", "torchtitan", "flagscale", "hetu", "deepspeed", "fsdp"]

TIERS: tuple[Tier, ...] = ("even", "uneven_layers", "uneven_degrees")      # each holds every plan of those before it
TIER_MEANINGS: dict[Tier, str] = {
    "even": "the same degrees, recompute and number of layers in every stage",
    "uneven_layers": "the same degrees and recompute in every stage, any number of layers",
    "uneven_degrees": "stages that differ in layers, tensor degree, width and recompute",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherRules:
    """What a launcher accepts, beyond the rules of every layout. Null: no rule of its own.

    `framework` is the stack whose overlap, kernels and memory habits price its plans; null prices them as those of no named stack.
    `source`: the public code and version that the row follows.
    """

    title: str
    tier: Tier
    zero_stages: tuple[int, ...]
    source: str
    zero_stages_of_pipelines: tuple[int, ...] | None = None
    framework: Framework | None = None
    pipelines: bool = True
    virtual_stages: bool = True
    straddling: bool = True                                # a stage may lie on several node groups
    kv_heads_divide: bool = False                          # KV heads are a multiple of tp, never a divisor
    cp: tuple[int, ...] | None = None
    ulysses: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None


LAUNCHERS: dict[Launcher, LauncherRules] = {
    "megatron": LauncherRules(
        title="Megatron-LM", tier="uneven_layers", zero_stages=(0, 1), framework="megatron",
        source="Megatron Core 0.19 and 0.20 development: pipeline-model-parallel-layout, distributed optimizer"),
    "torchtitan": LauncherRules(
        title="torchtitan", tier="uneven_layers", zero_stages=(0, 2, 3), framework="torchtitan", kv_heads_divide=True,
        source="torchtitan main b5bcd76 (August 2026): module_fqns_per_model_part, fsdp_reshard_after_forward, FSDP or replicas"),
    "flagscale": LauncherRules(
        title="FlagScale", tier="uneven_degrees", zero_stages=(0, 1), virtual_stages=False, straddling=False, cp=(1,),
        source="FlagScale 16a2dd5 (November 2025) and its Megatron-LM-FL: hetero_process_meshes, hetero_pipeline_layer_split"),
    "hetu": LauncherRules(
        title="Hetu", tier="uneven_degrees", zero_stages=(0, 1), virtual_stages=False,
        source="Hetu v2: hetero_layers, hetero_stages, rank_to_device_mapping"),
    "deepspeed": LauncherRules(
        title="DeepSpeed", tier="even", zero_stages=(0, 1, 2, 3), zero_stages_of_pipelines=(0, 1), framework="deepspeed", virtual_stages=False,
        cp=(1,), ep=(1,), source="DeepSpeed 0.19.6: zero_optimization, tensor_parallel, PipelineModule with partition_method uniform"),
    "fsdp": LauncherRules(
        title="PyTorch FSDP2", tier="even", zero_stages=(2, 3), framework="fsdp", pipelines=False, virtual_stages=False, ulysses=(1,), ep=(1,),
        source="accelerate 1.15 development: fsdp_config and parallelism_config"),
}
ANY = LauncherRules(title="any launcher", tier="uneven_degrees", zero_stages=(0, 1, 2, 3), source="")


def rules_of(launcher: Launcher | None) -> LauncherRules:
    """The row of a launcher; of no launcher in particular, the one that allows everything."""
    return ANY if launcher is None else LAUNCHERS[launcher]


def narrowest(*tiers: Tier) -> Tier:
    """The tier whose plans belong to all of those given.

    >>> narrowest("uneven_degrees", "even", "uneven_layers")
    'even'
    """
    return min(tiers, key=TIERS.index)


def next_tier(tier: Tier) -> Tier | None:
    """The tier above, None above the highest.

    >>> next_tier("even"), next_tier("uneven_degrees")
    ('uneven_layers', None)
    """
    above = TIERS[TIERS.index(tier) + 1:]
    return above[0] if above else None


def launchers_of(tier: Tier) -> tuple[Launcher, ...]:
    """Launchers whose tier is this one."""
    return tuple(name for name, rules in LAUNCHERS.items() if rules.tier == tier)
