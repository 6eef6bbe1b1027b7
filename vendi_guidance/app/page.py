"""The layout of the page, and the events of its components."""

from typing import Any

import gradio as gr

from vendi_guidance.app.actions import Actions, status
from vendi_guidance.app.studio import LONGEST_PROMPT, MOST_PROMPTS
from vendi_guidance.guidance.settings import DIVERSITY

LARGEST_SEED = 2**31 - 1

INTRO = """# Vendi Guidance

The same prompts and seeds, generated **without** guidance and **with** it. Guidance remembers
the images that it generated, and makes each new image of a prompt differ from them."""

GALLERY: dict[str, Any] = {
    "fit_columns": False,
    "object_fit": "contain",
    "height": "auto",
    "interactive": False,
    "visible": False,  # until there are images
    "buttons": ["fullscreen"],
    "elem_classes": "images",
}
AT_ONCE: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden"}
IN_TURN: dict[str, Any] = {"concurrency_id": "model", "concurrency_limit": 1}
"""For events that wait until no images are being generated."""

READY = [gr.update(interactive=True), gr.update(interactive=False)]  # Generate and Stop
BUSY = READY[::-1]

KEYS_AND_WARNING = """() => {
  document.addEventListener("keydown", event => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    document.querySelector("#generate").click();
  });
  addEventListener("beforeunload", event => {
    if (document.querySelector(".images .thumbnail-item")) event.preventDefault();
  });
}"""
"""Ctrl+Enter generates. A reload ends the session, so the browser asks first if images would go."""


class Page(gr.Blocks):
    """Prints no traceback of values that Gradio refuses."""

    async def process_api(self, *args: Any, **named: Any) -> dict[str, Any]:
        try:
            return await super().process_api(*args, **named)
        except gr.Error as error:
            error.print_exception = False
            raise


def build(actions: Actions, examples: str) -> gr.Blocks:
    old = (600, 86_400)  # seconds between clean-ups of displayed files, and the age of what goes
    with Page(title="Vendi Guidance", analytics_enabled=False, delete_cache=old) as page:
        gr.Markdown(INTRO)
        inputs = request_fields(examples)
        with gr.Row():
            generate = gr.Button("Generate", variant="primary", elem_id="generate")
            stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
        message = gr.HTML(elem_id="status")
        progress = gr.HTML(elem_id="progress")
        galleries = [
            gr.Gallery(label=f"{name} guidance", elem_id=name.lower(), **GALLERY)
            for name in ("Without", "With")
        ]
        scores = gr.HTML(elem_id="scores")
        gr.Markdown("## Memory and images")
        memory = gr.HTML("<p>No images are remembered.</p>", elem_id="memory")
        with gr.Row():
            forget = gr.Button("Forget", elem_id="forget")
            load = gr.UploadButton("Load memory", file_types=[".safetensors"], elem_id="load")
            save = gr.Button("Save images and memory", elem_id="save")
            file = gr.DownloadButton(visible="hidden", elem_id="file")

        page.load(None, js=KEYS_AND_WARNING)
        page.unload(actions.close)
        buttons = [generate, stop]
        outputs = [*galleries, message, scores, memory]
        generation = generate.click(lambda: BUSY, None, buttons, **AT_ONCE).then(
            actions.generate, inputs, outputs, show_progress_on=progress, **IN_TURN
        )
        generation.success(lambda: READY, None, buttons, **AT_ONCE)
        failed = [*READY, status("That did not work. Correct what the message names.")]
        generation.failure(lambda: failed, None, [*buttons, message], **AT_ONCE)
        stop.click(actions.stop, None, message, **AT_ONCE)
        forget.click(actions.forget, None, [message, memory], **IN_TURN)
        load.upload(actions.load, load, [message, memory], **IN_TURN)
        saved = save.click(actions.save, None, file, show_progress_on=message, **IN_TURN)
        saved.success(None, js="() => document.querySelector('#file').click()")
    return page


def request_fields(examples: str) -> list[Any]:
    """The fields of a request, in the order of `Actions.generate`."""
    with gr.Row():
        prompts = gr.Textbox(
            examples,
            label="Prompts, one per line",
            info=f"At most {MOST_PROMPTS}, of {LONGEST_PROMPT} characters. Ctrl+Enter generates.",
            lines=6,
            max_lines=10,
            scale=3,
            min_width=300,
            elem_id="prompts",
        )
        with gr.Column(scale=2, min_width=300):
            ends = "0 is the stock model, 1 the most variety."
            diversity = gr.Slider(
                0, 1, DIVERSITY, step=0.05, label="Diversity", info=ends, elem_id="diversity"
            )
            with gr.Row():
                images = whole_number("Images per prompt", 8, 1, 16, "images")
                seed = whole_number("Seed", 0, 0, LARGEST_SEED, "seed")
    return [prompts, images, diversity, seed]


def whole_number(label: str, value: int, least: int, most: int, key: str) -> gr.Number:
    ends: dict[str, Any] = {"minimum": least, "maximum": most, "info": f"{least} to {most}"}
    return gr.Number(value, label=label, precision=0, min_width=120, elem_id=key, **ends)
