from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin, features

from tests.helpers.batches_at_hand import save_tar
from vendi_guidance.storage.images import (
    MOST_BYTES,
    list_files,
    named_endings,
    open_image,
    read_bytes,
    to_rgb,
)

RED, WHITE = (255, 0, 0), (255, 255, 255)


def saved(image, kind="PNG", **options):
    file = BytesIO()
    image.save(file, format=kind, **options)
    return file.getvalue()


def plain(size=(4, 3), color=RED):
    return Image.new("RGB", size, color)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "GIF", "WEBP"])
def test_images_are_read_from_a_file_and_from_its_bytes(kind, tmp_path):
    content = saved(plain(), kind, **({"lossless": True} if kind == "WEBP" else {}))
    (tmp_path / "image").write_bytes(content)
    for image in (open_image(content), open_image(tmp_path / "image")):
        assert image.mode == "RGB" and image.size == (4, 3)
        assert image.getpixel((1, 1)) == RED


def test_whatever_pillow_opens_is_listed_and_the_rest_is_counted(tmp_path):
    kinds = {".jfif": "JPEG", ".JPE": "JPEG", ".jp2": "JPEG2000", ".ppm": "PPM", ".tga": "TGA"}
    kinds |= {"": "PNG", ".PNG": "PNG", ".qoi": "QOI", ".ico": "ICO"}
    kinds |= {".avif": "AVIF"} if features.check("avif") else {}
    for suffix, kind in kinds.items():
        (tmp_path / f"9f{suffix}").write_bytes(saved(plain((16, 16)), kind))
        assert np.allclose(open_image(tmp_path / f"9f{suffix}").getpixel((5, 5)), RED, atol=6)
    for name in ("a.HEIC", "c.mp4", "d.zip", "e.eps", "f.tar", "g.arrow", "metadata.parquet"):
        (tmp_path / name).write_text("%!PS-Adobe-3.0 EPSF-3.0")
    images, left_out = list_files(tmp_path)
    assert {file.suffix for file in images} == set(kinds)
    said = "6 files left out: .arrow (load it with datasets, and evaluate it in Python), .eps, "
    said += ".heic (needs pillow-heif), .mp4, .tar, .zip (unpack it)"
    assert named_endings(left_out) == said


def test_members_of_tar_files_are_read_in_place(tmp_path, monkeypatch):
    shard = tmp_path / "0.tar"
    names = ("a.jpg", "./b/c.PNG", "../up.png", "/etc/root.png", "a.txt", "a.cls")
    save_tar(shard, {name: saved(plain()) for name in names} | {"link.png": b"/etc/hostname"})
    (tmp_path / "1.tgz").write_bytes(b"")
    images, left_out = list_files(tmp_path)
    assert [str(file.relative_to(tmp_path)) for file in images] == ["0.tar/a.jpg", "0.tar/b/c.PNG"]
    assert {file.suffix for file in left_out} == {".cls", ".tgz"}
    assert list_files(shard)[0] == images
    assert [open_image(file).getpixel((1, 1)) for file in images] == [RED, RED]
    for name in ("../up.png", "/etc/root.png", "link.png", "absent.png"):
        with pytest.raises(OSError, match=r"0\.tar"):
            read_bytes(Path(f"{shard}/{name}"))
    shard.write_bytes(shard.read_bytes()[:1300])  # in the second member's header
    [left] = list_files(shard)[0]
    assert open_image(left).getpixel((1, 1)) == RED
    monkeypatch.setattr("vendi_guidance.storage.images.MOST_BYTES", 10)
    with pytest.raises(ValueError, match="too large"):
        open_image(left)


def test_transparency_becomes_white():
    half = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    half.putpixel((1, 0), (255, 0, 0, 128))
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, 0, 0, 255])
    palette.putpixel((1, 0), 1)
    assert [open_image(saved(half)).getpixel((x, 0)) for x in (0, 1)] == [WHITE, (255, 127, 127)]
    assert open_image(saved(Image.new("LA", (1, 1), (0, 0)))).getpixel((0, 0)) == WHITE
    clear = open_image(saved(palette, transparency=1))
    assert [clear.getpixel((x, 0)) for x in (0, 1)] == [RED, WHITE]
    assert open_image(saved(palette)).getpixel((1, 0)) == (0, 0, 255)
    keyed = open_image(saved(plain((1, 1)), transparency=RED))  # one color is transparent
    assert keyed.getpixel((0, 0)) == WHITE


def test_all_color_modes_become_rgb_and_grey_of_16_bits_keeps_its_range():
    levels = Image.fromarray(np.array([[0, 257, 32768, 65535]], np.uint16))
    for kind in ("PNG", "TIFF"):
        image = open_image(saved(levels, kind))
        assert [image.getpixel((x, 0))[0] for x in range(4)] == [0, 1, 128, 255]
    inks = Image.new("CMYK", (16, 16), (0, 255, 255, 0))  # magenta and yellow give red
    for content in (saved(inks, "JPEG", quality=95), saved(inks, "TIFF")):
        assert np.allclose(open_image(content).getpixel((8, 8)), RED, atol=6)
    profiles = [ImageCms.createProfile(name) for name in ("sRGB", "LAB")]
    lab = ImageCms.profileToProfile(plain(), *profiles, outputMode="LAB")
    for image in (plain().convert("HSV"), plain().convert("YCbCr"), lab):
        assert np.allclose(to_rgb(image).getpixel((0, 0)), RED, atol=5)
    assert to_rgb(Image.new("L", (1, 1), 77)).getpixel((0, 0)) == (77, 77, 77)
    assert to_rgb(Image.new("1", (1, 1), 1)).getpixel((0, 0)) == WHITE


@pytest.mark.parametrize(("orientation", "corner"), [(1, (0, 0)), (3, (3, 2)), (6, (2, 0))])
def test_exif_orientation_is_applied(orientation, corner):
    image = plain(color=WHITE)
    image.putpixel((0, 0), RED)
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = open_image(saved(image, exif=exif))
    assert upright.size == ((3, 4) if orientation == 6 else (4, 3))
    assert upright.getpixel(corner) == RED
    assert (np.asarray(upright) == RED).all(axis=2).sum() == 1


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "MPO"])
def test_the_first_frame_page_or_preview_is_read(kind):
    content = saved(plain(), kind, save_all=True, append_images=[plain(color=WHITE)])
    first = open_image(content)
    assert first.size == (4, 3) and np.allclose(first.getpixel((1, 1)), RED, atol=5)


def test_other_files_are_refused_with_a_reason(tmp_path):
    whole, hole = saved(Image.effect_noise((64, 64), 50)), tmp_path / "hole.png"
    with hole.open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # takes no space on disk
    for source, reason in (
        (b"", "the file is empty"),
        (b"GIF89a", "it is not an image of a format that Pillow can open"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is not an image"),
        (whole[: len(whole) // 2], "truncated"),
        (whole[:60] + bytes(100) + whole[160:], "."),
        (tmp_path, "it is not a regular file"),
        (hole, f"{MOST_BYTES + 1} bytes is too large"),
        (saved(Image.new("F", (2, 2), 0.5), "TIFF"), "floats of unknown range"),
        (saved(Image.new("I", (2, 2), 70_000), "TIFF"), "beyond 16 bits"),
    ):
        with pytest.raises(ValueError, match=reason):
            open_image(source)
    with pytest.raises(FileNotFoundError):
        open_image(tmp_path / "nothing.png")


def test_decompression_bombs_are_refused(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    assert open_image(saved(plain((10, 10)))).size == (10, 10)
    for times in (1, 3):
        with pytest.raises(ValueError, match="exceeds limit"):
            open_image(saved(plain((11 * times, 10))))


def test_metadata_that_are_broken_or_too_long_cost_an_image_nothing_else():
    image, exif, notes = plain(color=WHITE), Image.Exif(), PngImagePlugin.PngInfo()
    image.putpixel((0, 0), RED)
    exif[0x0112] = 6
    notes.add_text("note", "fine")
    notes.add_text("long", "x" * 10_000_000, zip=True)
    png = saved(image, exif=exif, pnginfo=notes)
    jpeg = saved(image, "JPEG", quality=100, subsampling=0, exif=exif)
    profile = b"\xff\xe2\0\x0eICC_PROFILE\0"  # ends before its number
    for content, is_upright in (
        (png, True),
        (png.replace(b"fine", b"fime"), True),  # against the checksum
        (png.replace(b"MM\0*", b"\0\0\0*"), False),
        (saved(image, exif=b"\0" * 40), False),
        (jpeg[:2] + profile + jpeg[2:], True),
        (jpeg.replace(b"MM\0*", b"\0\0\0*"), False),
        (saved(image, "WEBP", lossless=True, exif=b"Exif\0\0" + b"\xff" * 40), False),
    ):
        found = open_image(content)
        assert found.size == ((3, 4) if is_upright else (4, 3))
        assert np.allclose(found.getpixel((2 * is_upright, 0)), RED, atol=20)
