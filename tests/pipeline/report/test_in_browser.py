"""The page in a real browser: images, filters, order, folds, keyboard, narrow and wide, light and dark, axe-core."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from robustfeatures.pipeline.report.views import report
from tests.pipeline.report.made_up import IDS, made_up_study, words

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not here; Debian's package has this name")

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1440, "height": 900}
# One long word, as a name of a network may be.
LONG = "D_NR-" + "images" * 15


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Chromium's sandbox does not work as root.
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page, alone in a folder."""
    view = made_up_study(tmp_path_factory.mktemp("study"), said={"A1": words("A1", LONG)})
    path = tmp_path_factory.mktemp("mailed") / "index.html"
    path.write_bytes(report.make(view).contents[".html"])
    return path.as_uri()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    errors: list[str] = []
    page = browser.new_page(viewport=DESKTOP, offline=True)
    # Beside many other processes a page may take long to load.
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.goto(address)
    yield page
    page.close()
    assert errors == []


def shown_rows(page: Page) -> list[str]:
    """The claims that are shown, in order, without "Control: "."""
    cells = page.locator("#all-claims tbody tr:not([hidden]) .sentence").all_inner_texts()
    return [cell.replace("Control: ", "").partition(" (")[0] for cell in cells]


def test_every_image_loads(page: Page) -> None:
    images = page.locator("main img")
    assert images.count() == len(IDS) + 10
    for number in range(images.count()):
        image = images.nth(number)
        image.scroll_into_view_if_needed()
        page.wait_for_function("image => image.complete && image.naturalWidth > 0", arg=image.element_handle())
        assert image.get_attribute("alt")


SENTENCES = ["claim 0", "claim 1", "claim 2", "claim 3", "claim 4", "claim 5"]


def choose(page: Page, name: str, value: str) -> None:
    page.locator(f"#filter [name={name}]").select_option(value)


def test_filters(page: Page) -> None:
    assert shown_rows(page) == SENTENCES
    choose(page, "verdict", "held")
    assert shown_rows(page) == ["claim 0", "claim 3", "claim 4"]
    assert page.locator("#filter output").inner_text() == "3 of 6 shown"
    choose(page, "experiment", "A1")
    assert shown_rows(page) == ["claim 0", "claim 3"]
    choose(page, "kind", "control")
    assert shown_rows(page) == ["claim 3"]
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function("document.querySelector('#filter output').textContent.startsWith('6 ')")
    choose(page, "paper", "two-pathways-2021")
    assert shown_rows(page) == ["claim 5"]
    choose(page, "paper", "")
    page.get_by_label("Search").fill("CLAIM 2")
    assert shown_rows(page) == ["claim 2"]


def test_order(page: Page) -> None:
    heading = page.locator("#all-claims th", has_text="Measured")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "ascending"
    # 1.5, 31.5, 41.5, 51.5, 61.5; the sentence with two settings has no value of its own.
    assert shown_rows(page) == ["claim 0", "claim 2", "claim 3", "claim 4", "claim 5", "claim 1"]
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert shown_rows(page) == ["claim 5", "claim 4", "claim 3", "claim 2", "claim 0", "claim 1"]
    page.locator("#all-claims th", has_text="Claim").get_by_role("button").click()
    assert heading.get_attribute("aria-sort") is None
    # "Control: claim 3" comes last.
    assert shown_rows(page) == ["claim 0", "claim 1", "claim 2", "claim 4", "claim 5", "claim 3"]


def test_a_claim_leads_to_its_figure(page: Page) -> None:
    page.locator("#B1 > summary").click()
    assert not page.locator("#figure-B1").is_visible()
    page.locator("#all-claims tbody tr", has_text="claim 5").get_by_role("link").first.click()
    page.wait_for_function("document.getElementById('B1').open")
    assert page.locator("#figure-B1").is_visible()
    assert page.evaluate("document.getElementById('figure-B1').getBoundingClientRect().top") < DESKTOP["height"]


def test_a_figure_opens_large_with_the_keyboard(page: Page) -> None:
    page.locator("#figure-A2 button").focus()
    page.keyboard.press("Enter")
    large = page.locator("#large img")
    assert large.is_visible()
    assert large.get_attribute("alt") == "A2: bars of masked."
    small = page.locator("#figure-A2 img").bounding_box()
    assert small is not None
    assert (large.bounding_box() or small)["width"] > small["width"]
    page.keyboard.press("Escape")
    assert not large.is_visible()
    assert page.evaluate("document.activeElement.closest('figure').id") == "figure-A2"


def test_the_keyboard_reaches_the_content_first(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_nothing_overflows_and_the_navigation_stays(page: Page, viewport: dict[str, int]) -> None:
    page.set_viewport_size(viewport)  # type: ignore[arg-type]
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    box = page.locator("nav").bounding_box()
    assert box is not None
    assert abs(box["y"]) < 1
    if viewport is PHONE:
        assert box["height"] < 80


@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_titles_of_tables_are_read_without_scrolling(page: Page, viewport: dict[str, int]) -> None:
    page.set_viewport_size(viewport)  # type: ignore[arg-type]
    titles = page.locator("main caption span:visible")
    assert titles.count() > len(IDS)
    for number in range(titles.count()):
        box = titles.nth(number).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= viewport["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_axe_finds_no_serious_fault(page: Page, viewport: dict[str, int], scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size(viewport)  # type: ignore[arg-type]
    found = Axe().run(page).response["violations"]
    serious = [
        (each["id"], [node["html"] for node in each["nodes"]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_the_colours_follow_the_system(page: Page) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 26)"}
