"""The layout of the page, and the events of its components."""

import logging
from pathlib import Path
from typing import Any

import gradio as gr

from vendi_guidance.app.actions import Actions
from vendi_guidance.app.request import LONGEST_PROMPT, MOST_IMAGES, MOST_PROMPTS
from vendi_guidance.guidance.settings import DIVERSITY
from vendi_guidance.runs.options import RunOptions

logger = logging.getLogger(__name__)

STYLE = Path(__file__).with_name("style.css")
IMAGES = 8  # per prompt, by default
LARGEST_SEED = 2**31 - 1
MOST_STEPS = 100
LARGEST_SCALE = 30

INTRO = """# Vendi Guidance

The same prompts and seeds, generated **without** guidance and **with** it. Guidance remembers
the images that it generated, and makes each new image of a prompt differ from them."""

GALLERY: dict[str, Any] = {
    "columns": IMAGES,
    "fit_columns": False,
    "object_fit": "contain",
    "height": "auto",
    "interactive": False,
    "visible": False,  # until there are images
    "buttons": ["fullscreen"],
    "elem_classes": "images",
}
AT_ONCE: dict[str, Any] = {"concurrency_limit": None, "show_progress": "hidden"}
"""For events that wait for no other visitor. They still use Gradio's queue, because it shows only
errors of queued events."""

STOPPING = """() => '<p role="status">Stopping.</p>'"""
RANDOM_SEED = f"() => Math.floor(Math.random() * {LARGEST_SEED})"
KEYS_AND_WARNING = """() => {
  document.addEventListener("keydown", event => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    document.querySelector("#generate").click();
  });
  addEventListener("beforeunload", event => {
    const is_busy = document.querySelector("#stop:not(:disabled)");
    if (is_busy || document.querySelector(".images .thumbnail-item")) event.preventDefault();
  });
}"""
"""Ctrl+Enter generates. A reload ends the session, so the browser asks first if images would go."""

CACHE = (600, 86_400)
"""Seconds between clean-ups of displayed files, and the age at which these are deleted."""


def theme() -> gr.themes.Base:
    """A theme with system fonts, so that the page loads nothing from other servers."""
    return gr.themes.Default(
        primary_hue="blue",
        font=["system-ui", "sans-serif"],
        font_mono=["ui-monospace", "monospace"],
    ).set(
        # the default contrasts are too low to read
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_cancel_background_fill="#b91c1c",
        button_cancel_background_fill_hover="#991b1b",
    )


class Page(gr.Blocks):
    """Answers calls that Gradio cannot process, such as those with too few values, with a sentence,
    and prints no traceback to the terminal."""

    async def process_api(self, *args: Any, **named: Any) -> dict[str, Any]:
        try:
            return await super().process_api(*args, **named)
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception as error:
            logger.warning("an invalid call was rejected: %s", type(error).__name__)
            logger.debug("the error of the invalid call", exc_info=True)
            text = "The page does not send such values: reload it, or see its API for their types."
            raise gr.Error(text, title="Not done", print_exception=False) from None


def build(actions: Actions, options: RunOptions, examples: str) -> gr.Blocks:
    """Build the page for a model.

    Args:
        actions: the event handlers.
        options: the model's defaults.
        examples: initial prompts.
    """
    with Page(title="Vendi Guidance", analytics_enabled=False, delete_cache=CACHE) as page:
        gr.Markdown(INTRO)
        inputs = request_fields(options, examples)
        with gr.Row():
            generate = gr.Button("Generate", variant="primary", elem_id="generate")
            stop = gr.Button("Stop", variant="stop", interactive=False, elem_id="stop")
        status = gr.HTML(elem_id="status")
        progress = gr.HTML(elem_id="progress")
        about = gr.HTML(elem_id="about")
        with gr.Row():
            galleries = []
            for name in ("Without", "With"):
                with gr.Column(min_width=300):
                    label, key = f"{name} guidance", name.lower()
                    galleries.append(gr.Gallery(label=label, elem_id=key, **GALLERY))
        with gr.Row():
            more = gr.Button("More like this", elem_id="more")
            less = gr.Button("Not like this", elem_id="less")
        scores = gr.HTML(elem_id="scores")
        memory = memory_and_downloads(actions, status)

        page.load(actions.open, None, memory, **AT_ONCE)
        page.load(None, js=KEYS_AND_WARNING)
        outputs = [*galleries, about, status, scores, memory]
        generation = generate.click(actions.begin, None, [generate, stop], **AT_ONCE).success(
            actions.generate, inputs, outputs, show_progress_on=progress
        )
        generation.success(actions.end, None, [generate, stop], **AT_ONCE)
        generation.failure(actions.fail, None, [generate, stop, status], **AT_ONCE)
        stop.click(None, None, status, js=STOPPING)
        stop.click(actions.stop, **AT_ONCE)
        choices = actions.choose_without, actions.choose_with
        for gallery, choose in zip(galleries, choices, strict=True):
            # "multiple": another image can be selected before the server has answered
            gallery.select(choose, None, status, trigger_mode="multiple", **AT_ONCE)
        more.click(actions.more_like_it, None, [status, memory], **AT_ONCE)
        less.click(actions.not_like_it, None, [status, memory], **AT_ONCE)
        page.unload(actions.close)
    return page


def request_fields(options: RunOptions, examples: str) -> list[Any]:
    """The fields of a request, in the order of `Actions.generate`."""
    with gr.Row():
        with gr.Column(scale=3, min_width=300):
            prompts = gr.Textbox(
                examples,
                label="Prompts, one per line",
                info=f"At most {MOST_PROMPTS}, each of up to {LONGEST_PROMPT} characters. "
                "Ctrl+Enter generates.",
                lines=7,
                max_lines=10,
                elem_id="prompts",
            )
        with gr.Column(scale=2, min_width=300):
            strength = gr.Slider(
                0,
                1,
                DIVERSITY,
                step=0.05,
                label="The dial",
                info="0 is the model without guidance, 1 gives the most variety.",
                elem_id="dial",
            )
            with gr.Row():
                images = whole(IMAGES, 1, MOST_IMAGES, label="Images per prompt", elem_id="images")
                seed = whole(0, 0, LARGEST_SEED, label="Seed", elem_id="seed")
            random = gr.Button("Random seed", size="sm", elem_id="random")
            random.click(None, None, seed, js=RANDOM_SEED)
    scale = options.guidance_scale
    about = {"visible": scale is not None, **limits(scale, 0, LARGEST_SCALE)}
    with gr.Accordion("Expert settings", open=False, elem_id="expert"), gr.Row():
        expert = [
            whole(options.steps, 1, MOST_STEPS, label="Steps"),
            gr.Number(scale, label="Guidance scale (CFG)", **about),
            whole(options.batch_size, 1, MOST_IMAGES, label="Batch size"),
        ]
    return [prompts, images, strength, seed, *expert]


def whole(value: int | None, least: int, most: int, **about: Any) -> gr.Number:
    """A field for a whole number."""
    return gr.Number(value, precision=0, min_width=120, **limits(value, least, most), **about)


def limits(value: float | None, least: int, most: int) -> dict[str, Any]:
    """The range of a field, widened to include the value chosen on the command line."""
    numbers: list[Any] = [number for number in (least, value, most) if number is not None]
    least, most = min(numbers), max(numbers)
    return {"minimum": least, "maximum": most, "info": f"{least} to {most}"}


def memory_and_downloads(actions: Actions, status: gr.HTML) -> gr.HTML:
    """The lower part of the page; returns the component that describes the memory."""
    with gr.Row():
        with gr.Column(scale=3, min_width=300):
            gr.Markdown("## Memory")
            memory = gr.HTML(elem_id="memory")
            with gr.Row():
                forget = gr.Button("Forget", elem_id="forget", min_width=80)
                save = gr.Button("Save", elem_id="save", min_width=80)
                load = gr.UploadButton(
                    "Load", file_types=[".safetensors"], elem_id="load", min_width=80
                )
        with gr.Column(scale=2, min_width=300):
            gr.Markdown("## Download")
            text = "<p>A zip file: two imagefolders, without and with guidance, and a report.</p>"
            gr.HTML(text, elem_id="take")
            get = gr.Button("Download images and report", elem_id="get")
    forget.click(actions.forget, None, [status, memory], **AT_ONCE)
    load.upload(actions.load, load, [status, memory], **AT_ONCE)
    for button, make in ((save, actions.save), (get, actions.pack)):
        file = gr.DownloadButton(visible="hidden", elem_id=f"{button.elem_id}-file")
        made = button.click(make, None, file, show_progress_on=status)
        made.success(None, js=f"() => document.querySelector('#{file.elem_id}').click()")
    return memory
