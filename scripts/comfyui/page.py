"""Opens and runs the example workflow in ComfyUI's page, in headless Chromium."""

import io
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from PIL import Image

from scripts.comfyui.server import PACK, Server, serve

EXAMPLES = "/api/workflow_templates/vendi-guidance"
SETTINGS = {"Comfy.TutorialCompleted": True, "Comfy.Minimap.Visible": False}
SIZE: Any = {"width": 1680, "height": 720}
FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "comfyui-workflow.webp"
THUMBNAIL = PACK / "example_workflows" / "Diverse Batch.jpg"

PROMPT = "app.graph.nodes.find(n => n.title === 'Prompt')"
SCORE = "app.graph.nodes.find(n => n.type === 'VendiGuidanceDiversityScore')"
BOXES = """() => app.graph.nodes.map(n => {
  const [left, top, width, height] = n.getBounding();
  return {type: n.type, left, top, right: left + width, bottom: top + height};
})"""


def open_example(page: Any, server: Server) -> None:
    """Load the example into a Playwright page, as the template browser does."""
    server.post("/settings", SETTINGS)
    page.goto(server.address)
    page.wait_for_function("() => window.app?.graph && window.app.extensionManager")
    page.evaluate(
        """async address => {
          const answer = await fetch(address);
          await app.loadGraphData(await answer.json(), true, true, 'Diverse Batch');
        }""",
        f"{EXAMPLES}/Diverse Batch.json",
    )


def run_example(page: Any) -> dict[str, Any]:
    """Queue the open workflow, and wait until its score is shown.

    Returns:
        The text on the score's node, the number of images it shows, and the box of each node.
    """
    page.evaluate("() => app.queuePrompt(0)")
    text = f"{SCORE}?.widgets?.find(w => w.name === '$$node-text-preview')?.value"
    page.wait_for_function(f"() => {text} && {SCORE}.imgs?.length", timeout=120_000)
    page.wait_for_timeout(1000)  # nodes grow when their images arrive
    return {
        "text": page.evaluate(f"() => {text}"),
        "images": page.evaluate(f"() => {SCORE}.imgs.length"),
        "boxes": page.evaluate(BOXES),
    }


def save_figures(checkout: Path) -> None:
    """Save the figure of docs/comfyui.md and the thumbnail of the example."""
    from playwright.sync_api import sync_playwright

    with serve(checkout) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium")
        page = browser.new_page(viewport=SIZE)
        open_example(page, server)
        page.evaluate(f"text => {{ {PROMPT}.widgets[0].value = text }}", "waving hand")
        run_example(page)
        page.keyboard.press(".")  # fits the view
        page.wait_for_timeout(2000)
        Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(FIGURE, quality=80, method=6)
        tiles = Image.new("RGB", (256, 128))
        saved = [*server.get("/history").values()][-1]["outputs"]["8"]["images"]
        for i, image in enumerate(saved):
            tile = Image.open(io.BytesIO(server.read(f"/view?{urlencode(image)}")))
            tiles.paste(tile, (i % 4 * 64, i // 4 * 64))
        tiles.resize((1024, 512)).save(THUMBNAIL, quality=60, optimize=True, progressive=True)
