"""The constants' file: complete, sourced, within physical bounds."""
import tomllib
from importlib.resources import files

import pytest

from solver.catalog.efficiency import efficiency, efficiency_of
from solver.catalog.loader import devices
from solver.domain.degrees import Framework
from solver.domain.workload import OptimizerName

DATA = tomllib.loads(files("solver.catalog").joinpath("efficiency.toml").read_text())


def test_every_block_names_its_source():
    for table in ("arch", "device", "stack", "optimizer"):
        assert all(block["source"] for block in DATA[table].values()), table


def test_every_framework_and_optimizer_has_constants():
    assert set(efficiency().stacks) == {"default", *Framework.__args__}
    assert set(efficiency().optimizers) == set(OptimizerName.__args__)


def test_devices_with_clocks_of_their_own_are_in_the_catalogue():
    assert set(efficiency().devices) <= {d.name for d in devices()}


@pytest.mark.parametrize("name", sorted(efficiency().archs))
def test_shares_in_training_stay_within_what_operators_reach_alone(name):
    arch = efficiency().arch(name)
    assert 0.0 < arch.sustained <= 1.0
    assert all(0.0 < share.backward <= share.forward <= 1.0 for share in arch.attention.values())
    assert 0.0 < arch.expected_error < 1.0


def test_an_unknown_architecture_takes_the_default_and_says_so():
    assert efficiency().arch("abacus") == efficiency().arch("default")
    assert not efficiency().arch("abacus").known


def test_a_missing_or_unknown_constant_is_an_error():
    with pytest.raises(TypeError):
        efficiency_of({**DATA, "compute": {**DATA["compute"], "magic": 1.0}})
    with pytest.raises(KeyError):
        efficiency_of({key: value for key, value in DATA.items() if key != "host"})
