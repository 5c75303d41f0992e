"""The version under which answers are kept: another one as soon as any constant changes."""
from solver.cost.version import COST_MODEL_VERSION, constants, version_of


def test_every_file_of_constants_counts() -> None:
    data = constants()
    assert {"efficiency.toml", "collectives.toml", "a100.toml", "scaled.toml"} <= set(data)
    assert version_of(data) == COST_MODEL_VERSION
    changed = [version_of({**data, name: text + b"#"}) for name, text in data.items()]
    assert len({COST_MODEL_VERSION, *changed}) == len(data) + 1
