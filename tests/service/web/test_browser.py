"""The pages in a real browser: the main path by mouse and by keyboard, live progress, downloads, accessibility, weight, and looks at all widths."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.service.web.conftest import SCREENSHOTS, Served
from tests.service.web.fake import CANCELLED, DONE, FAILED, INFEASIBLE, LARGE, RUNNING

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text()
PAGES = {
    "form": "/",
    "example": "/?example=llama-3.1-70b-h100-a100",
    "dimensions": "/?example=llama-13b-a100-40gb-80gb",
    "config": "/?example=qwen3-30b-a3b-moe",
    "running": f"/plans/{RUNNING}",
    "result": f"/plans/{DONE}",
    "infeasible": f"/plans/{INFEASIBLE}",
    "failed": f"/plans/{FAILED}",
    "cancelled": f"/plans/{CANCELLED}",
    "large": f"/plans/{LARGE}",
    "plans": "/plans",
    "catalog": "/catalog",
}
Open = Callable[..., Page]


def test_from_example_to_launch_script(open_page: Open, served: Served) -> None:
    page = open_page("/")
    page.get_by_role("link", name="llama-3.1-70b-h100-a100").click()
    expect(page.get_by_label("Preset", exact=True).and_(page.locator("#preset"))).to_have_value("llama-3.1-70b")
    page.locator("#submit").click()
    expect(page.get_by_text("Best so far")).to_be_visible()
    expect(page.get_by_role("img", name="Best plan")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_text("Optimal: 24.1 s per step")
    assert page.title().startswith("Optimal: 24.1 s per step")
    expect(page.locator("table.stages tbody tr")).to_have_count(4)
    for name, slower in (("h100 alone", "31.0 %"), ("a100 alone", "74.0 %"), ("Best uniform layout", "22.0 %")):
        expect(page.get_by_role("row", name=name)).to_contain_text(slower)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download for megatron").click()
    assert "pretrain_gpt.py" in Path(download.value.path()).read_text()
    assert served.backend.bodies == [served.backend.request]


def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the element that `selector` names has the focus."""
    for _ in range(150):
        if page.evaluate("s => document.activeElement.matches(s)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never reaches {selector}")


def test_by_keyboard_alone(open_page: Open) -> None:
    page = open_page("/")
    tab_to(page, "a.example")
    page.keyboard.press("Enter")
    page.wait_for_url("**example=*")
    tab_to(page, "#submit")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Optimal: 24.1 s per step")
    assert page.evaluate("document.activeElement.id") == "headline"
    tab_to(page, "a[download]")
    with page.expect_download():
        page.keyboard.press("Enter")


def test_enter_in_a_field_submits_and_does_not_remove_a_row(open_page: Open) -> None:
    page = open_page("/?example=llama-3.1-70b-h100-a100")
    page.locator("#seq_len").press("Enter")
    page.wait_for_url("**/plans/*")


def test_rows_come_and_go_without_losing_what_was_typed(open_page: Open) -> None:
    page = open_page("/")
    page.locator("#group-0-name").fill("left")
    page.get_by_role("button", name="Add node group").click()
    page.locator("#group-1-name").fill("right")
    page.get_by_role("button", name="Add link").click()
    expect(page.locator("#link-0-a")).to_have_value("left")
    expect(page.locator("#link-0-b")).to_have_value("right")
    page.get_by_role("button", name="Remove node group left").click()
    expect(page.locator("#group-0-name")).to_have_value("right")
    expect(page.locator("#group-1-name")).to_have_count(0)


def test_a_slow_answer_to_a_button_survives_the_refresh_of_the_command(open_page: Open) -> None:
    page = open_page("/")

    def held_back(route: Route) -> None:
        if 'name="action"' in (route.request.post_data or ""):
            time.sleep(0.8)                                # longer than the form waits before it refreshes its command
        route.continue_()

    page.route("**/form", held_back)
    page.locator("#group-0-name").fill("left")
    page.get_by_role("button", name="Add node group").click()
    expect(page.locator("#group-1-name")).to_be_visible()
    expect(page.locator("#group-0-name")).to_have_value("left")


def test_the_command_follows_the_form(open_page: Open) -> None:
    page = open_page("/?example=llama-3.1-8b-one-node")
    page.locator("#seq_len").fill("12345")
    page.locator("#seq_len").press("Tab")
    expect(page.locator("#curl")).to_contain_text('"seq_len": 12345')


def test_a_chosen_file_becomes_the_config(open_page: Open, served: Served) -> None:
    page = open_page("/?example=qwen3-30b-a3b-moe")
    page.set_input_files("#config_file", files=[{"name": "config.json", "mimeType": "application/json", "buffer": b'{"model_type": "llama"}'}])
    expect(page.locator("#hf_config")).to_have_value('{"model_type": "llama"}')
    page.locator("#submit").click()
    page.wait_for_url("**/plans/*")
    assert served.backend.bodies[0]["model"] == {"hf_config": {"model_type": "llama"}}


def test_faults_stand_at_their_fields(open_page: Open) -> None:
    page = open_page("/?example=llama-3.1-70b-h100-a100", tolerate="422")
    page.locator("#group-1-gpu").fill("H300")
    page.locator("#submit").click()
    expect(page.locator("#faults")).to_be_focused()
    expect(page.locator("#group-1-gpu")).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#fault-group-1-gpu")).to_contain_text("'H300' is not in the catalogue")
    page.get_by_role("link", name="/cluster/node_groups/1/gpu").click()
    expect(page.locator("#group-1-gpu")).to_be_focused()


def test_a_search_can_be_stopped(open_page: Open, served: Served) -> None:
    served.backend.endless = True
    page = open_page("/?example=llama-3.1-70b-h100-a100")
    page.locator("#submit").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancelled")


def test_without_scripts(open_page: Open) -> None:
    page = open_page("/?example=llama-13b-a100-40gb-80gb", java_script_enabled=False)
    page.get_by_role("button", name="Add node group").click()
    expect(page.locator("#group-2-name")).to_be_visible()
    page.get_by_role("button", name="Remove node group 3").click()
    expect(page.locator("#group-2-name")).to_have_count(0)
    page.locator("#submit").click()
    page.wait_for_url("**/plans/*")
    expect(page.get_by_role("heading", level=1)).to_have_text("Optimal: 24.1 s per step")


def test_a_term_explains_itself_on_focus(open_page: Open) -> None:
    page = open_page(f"/plans/{DONE}")
    tip = page.locator("#tip-mfu")
    expect(tip).to_be_hidden()
    page.get_by_role("button", name="MFU").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    expect(tip).to_be_visible()


def test_the_catalogue_filters_as_one_types(open_page: Open) -> None:
    page = open_page("/catalog")
    page.locator("#q").press_sequentially("h200")
    expect(page.locator("#gpus tbody")).not_to_contain_text("A100")
    expect(page.locator("#gpus tbody")).to_contain_text("H200")


def test_first_page_weighs_little(open_page: Open, served: Served) -> None:
    page = open_page(f"/plans/{CANCELLED}")
    sizes: list[int] = []
    page.on("response", lambda r: sizes.append(len(r.body())))
    page.goto(served.url + "/?example=qwen3-30b-a3b-moe")
    page.wait_for_load_state("networkidle")
    assert len(sizes) > 3
    assert sum(sizes) < 400_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_barrier(open_page: Open, name: str, scheme: str) -> None:
    page = open_page(PAGES[name], color_scheme=scheme, bypass_csp=True)
    page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.evaluate(AXE + "; undefined")
    found = page.evaluate(
        "() => axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => [v.impact, v.id, v.nodes[0].html]))"
    )
    assert [v for v in found if v[0] in ("serious", "critical")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_fits_the_width(open_page: Open, served: Served, width: int, scheme: str) -> None:
    page = open_page("/", viewport={"width": width, "height": 900}, color_scheme=scheme)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name, path in PAGES.items():
        page.goto(served.url + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than {width} px"
        page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
