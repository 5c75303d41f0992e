"""The form and the body that it stands for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.web.examples import examples
from service.web.forms import FormState, body_of, edited, empty_state, field_at, state_of_body, state_of_form
from service.web.merge import difference, merged

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def test_there_are_examples() -> None:
    assert [e.name for e in examples()][0] == "llama-3.1-70b-h100-a100"
    assert len(examples()) >= 5


@pytest.mark.parametrize("name", [e.name for e in examples()])
def test_every_example_survives_the_form(name: str) -> None:
    body = next(e.body for e in examples() if e.name == name)
    state = state_of_body(body)
    assert body_of(state) == (body, ())
    unusual = {"region", "unavailable_gpus"} & {key for group in body["cluster"]["node_groups"] for key in group}
    assert bool(state.extra) == bool(unusual)              # these have no field: they go through as JSON


def test_what_has_no_field_goes_through_as_json() -> None:
    body = {
        "model": {"preset": "llama-3.1-8b"},
        "objective": "cost",
        "workload": {"kind": "training", "seq_len": 1, "global_batch_size": 1, "optimizer": {"bytes_per_parameter": 8}},
        "cluster": {
            "node_groups": [
                {"name": "a", "nodes": 2, "gpu": {"name": "x", "based_on": "H100-SXM5-80GB"}, "hostnames": ["n0", "n1"]},
                {"name": "b", "nodes": 1, "gpu": "L40S", "price_per_gpu_hour": 0.125},
            ]
        },
        "constraints": {"tp": [1, 2], "recompute": ["none", "full"], "uniform": False},
    }
    state = state_of_body(body)
    assert state.groups[1]["price"] == "0.125"
    assert '"based_on"' in state.extra
    assert body_of(state) == (body, ())


def test_text_that_is_no_number_is_left_for_the_parser() -> None:
    state = state_of_form(
        {
            "seq_len": "4 096",
            "global_batch_size": "many",
            "time_limit_s": "1e1",
            "memory_margin": "nan",
            "tp": "1, 2;x",
            "uniform": "on",
            "preset": " p ",
        }
    )
    body, faults = body_of(state)
    assert faults == ()
    assert body == {
        "model": {"preset": "p"},
        "cluster": {"node_groups": []},
        "workload": {"kind": "training", "seq_len": 4096, "global_batch_size": "many"},
        "constraints": {"uniform": True, "memory_margin": "nan", "tp": [1, 2, "x"]},
        "search": {"time_limit_s": 10.0},
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "a JSON list instead of an object"),
        ("version https://git-lfs.github.com/spec/v1\noid x", "Git LFS pointer"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_config_that_is_no_object_is_a_fault_of_its_field(text: str, said: str) -> None:
    state = FormState(model_kind="config", values={"hf_config": text})
    _, faults = body_of(state)
    assert [said in f.message for f in faults] == [True]
    assert field_at(faults[0].pointer, state) == "hf_config"


def test_rows_are_added_and_removed() -> None:
    state = edited(empty_state(), "add-group")
    assert len(state.groups) == 2
    named = state_of_form({"group.0.name": "a", "group.1.name": "b", "group.7.name": "c"})
    linked = edited(named, "add-link")
    assert linked.links == ({"a": "a", "b": "b"},)
    assert [g["name"] for g in edited(linked, "remove-group-1").groups] == ["a", "c"]
    assert edited(linked, "remove-link-0").links == ()
    assert edited(linked, "remove-group-99") == linked
    assert edited(linked, "nonsense") == linked


@pytest.mark.parametrize(
    ("pointer", "name"),
    [
        ("/workload/seq_len", "seq_len"),
        ("/cluster/node_groups/1/gpu", "group.1.gpu"),
        ("/cluster/node_groups/0/network", "group.0.network"),
        ("/cluster/links/0/between/1", "link.0.b"),
        ("/constraints/tp/2", "tp"),
        ("/model/preset", "preset"),
        ("/objective", None),
    ],
)
def test_a_pointer_leads_to_its_input(pointer: str, name: str | None) -> None:
    state = FormState(groups=({}, {}), links=({},))
    assert field_at(pointer, state) == name


@given(OBJECTS, OBJECTS)
def test_a_difference_laid_over_its_part_gives_the_whole(whole: dict, extra: dict) -> None:
    both = merged(whole, extra)
    assert merged(whole, difference(both, whole)) == both
