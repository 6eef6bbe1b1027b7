"""Opens and runs the example workflow in ComfyUI's page, in headless Chromium."""

from typing import Any

from scripts.comfyui.server import Server

EXAMPLES = "/api/workflow_templates/vendi-guidance"
SETTINGS = {"Comfy.TutorialCompleted": True, "Comfy.Minimap.Visible": False}

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
