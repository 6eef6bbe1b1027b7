"""The nodes that a user of ComfyUI sees."""

from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import folder_paths
from comfy.patcher_extension import WrappersMP
from comfy_api.latest import ComfyExtension, io, ui

from vendi_guidance.guidance.objectives import OBJECTIVES
from vendi_guidance.guidance.settings import DIVERSITY, Rounds

from .memory import BATCH, KINDS, MemoryStore
from .page import add_routes, record, show
from .sampling import DiverseSampling
from .schedule import KEY, keep_schedule
from .scoring import score


class DiverseBatch(io.ComfyNode):
    """Makes the images that a model generates differ from one another."""

    @classmethod
    def define_schema(cls) -> Any:
        return io.Schema(
            node_id="VendiGuidanceDiverseBatch",
            display_name="Diverse Batch",
            category="sampling/diversity",
            description="Makes images of similar prompts differ from one another and from those in "
            "memory. Connect it last, right before the sampler.",
            inputs=[
                io.Model.Input("model"),
                io.Float.Input(
                    "diversity",
                    default=DIVERSITY,
                    min=0.0,
                    max=1.0,
                    step=0.05,
                    tooltip="0 changes nothing, 1 gives the most variety.",
                ),
                io.Combo.Input(
                    "objective",
                    options=list(OBJECTIVES),
                    default=Rounds.objective,
                    tooltip="The score to raise. Conditional scores compare images of similar "
                    "prompts, the others compare all images.",
                ),
                io.Combo.Input(
                    "memory",
                    options=list(KINDS),
                    default=KINDS[0],
                    tooltip="What images should differ from, besides their batch: this session's "
                    "of the same prompt and model, none, or all in a file. With 'this batch', a "
                    "seed always gives the same images; with the others, further ones that differ "
                    "little from the first where the network needs CFG: change the seed there.",
                ),
                io.String.Input(
                    "memory_name",
                    default="default",
                    tooltip="Name of the session's or file's memory. A new name starts empty.",
                ),
                io.Model.Input(
                    "undistilled",
                    optional=True,
                    tooltip="For a model distilled to few steps (Lightning, Turbo, ...): the model "
                    "before the LoRA, or the one it was distilled from. It then decides how the "
                    "images differ. For a model tuned on a taste: the one before, which then makes "
                    "the first step.",
                ),
                io.String.Input(
                    "begin_with",
                    default="",
                    optional=True,
                    tooltip="Filled in where a workflow is opened from a saved image: what was "
                    "remembered when that was made, so that it is generated again. Clear it to "
                    "go on with what is remembered now.",
                ),
            ],
            outputs=[io.Model.Output()],
            hidden=[io.Hidden.unique_id, io.Hidden.prompt, io.Hidden.extra_pnginfo],
        )

    @classmethod
    def validate_inputs(
        cls,
        diversity: float = DIVERSITY,
        memory: str = BATCH,
        memory_name: str = "default",
        begin_with: str = "",
    ) -> bool | str:
        """True, or an error message. ComfyUI calls this before it runs a workflow, without the
        inputs that are linked: their values are not known yet."""
        try:
            Rounds(diversity=diversity)
            MemoryStore(memory if diversity else BATCH, memory_name, Path(), begin_with=begin_with)
        except ValueError as error:
            return str(error)
        return True

    @classmethod
    def fingerprint_inputs(
        cls, memory: str = "", diversity: float = DIVERSITY, **others: Any
    ) -> str:
        """A new value each time if the images depend on a lasting memory, so that ComfyUI does not
        reuse the images of the last run."""
        return "" if memory == BATCH or diversity == 0 else token_hex()

    @classmethod
    def execute(
        cls,
        model: Any,
        diversity: float,
        objective: str,
        memory: str,
        memory_name: str,
        undistilled: Any = None,
        begin_with: str = "",
    ) -> Any:
        # linked inputs were not checked before
        settings = Rounds(diversity=diversity, objective=objective)
        images, note = Path(folder_paths.get_output_directory()), partial(record, cls.hidden)
        kind = BATCH if settings.is_off else memory
        store = MemoryStore(kind, memory_name, _folder(), images, begin_with, note)
        patched = model.clone()
        for kind in (WrappersMP.OUTER_SAMPLE, WrappersMP.SAMPLER_SAMPLE):
            patched.remove_wrappers_with_key(kind, KEY)  # the last node replaces earlier ones
        if not settings.is_off:
            tell = partial(show, getattr(cls.hidden, "unique_id", None))
            wrapper = DiverseSampling(settings, store, undistilled, tell)
            patched.add_wrapper_with_key(WrappersMP.OUTER_SAMPLE, KEY, keep_schedule)
            patched.add_wrapper_with_key(WrappersMP.SAMPLER_SAMPLE, KEY, wrapper)
        return io.NodeOutput(patched)


class DiversityScore(io.ComfyNode):
    """Counts the different images of a batch."""

    @classmethod
    def define_schema(cls) -> Any:
        return io.Schema(
            node_id="VendiGuidanceDiversityScore",
            display_name="Diversity Score",
            category="image/analysis",
            description="The effective number of different images in a batch (Vendi score), and "
            "an image of their similarities: white for equal images, black for different ones.",
            inputs=[
                io.Image.Input("images"),
                io.ClipVision.Input(
                    "clip_vision",
                    optional=True,
                    tooltip="Compares what images show. Without it, only colours are compared.",
                ),
            ],
            outputs=[io.String.Output("text"), io.Image.Output("similarities")],
            is_output_node=True,
            hidden=[io.Hidden.unique_id],
        )

    @classmethod
    def execute(cls, images: Any, clip_vision: Any = None) -> Any:
        images = images.nan_to_num()  # a VAE that overflowed gives NaN, which is saved as black
        embeddings = None
        if clip_vision is not None:
            embeddings = clip_vision.encode_image(images)["image_embeds"]
        text, similarities = score(images, embeddings)
        show(getattr(cls.hidden, "unique_id", None), text)
        shown = {**ui.PreviewImage(similarities, cls=cls).as_dict(), "text": (text,)}
        return io.NodeOutput(text, similarities, ui=shown)


def _folder() -> Path:
    """Where the files of memories are."""
    return Path(folder_paths.get_user_directory(), KEY)


class VendiGuidanceExtension(ComfyExtension):
    """All nodes of this folder."""

    async def get_node_list(self) -> list[Any]:
        add_routes(_folder())
        return [DiverseBatch, DiversityScore]
