from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.messages import Image
from foldline.tokens import image_size, image_size_of_base64
from foldline.tokens.pictures import image_tokens

SIZES = st.integers(1, 16_383)
ANTHROPIC = {"type": "image"}
OPENAI = {"type": "image_url"}


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06\0\0\0"


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\xf7\0\0"


def jpeg(width: int, height: int, profile: int = 0) -> bytes:
    before = b"\xff\xe1" + struct.pack(">H", profile + 2) + b"x" * profile
    frame = b"\xff\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 9
    return b"\xff\xd8\xff\xe0\0\x10JFIF" + b"\0" * 10 + before + frame


def webp(form: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + form + b"\0\0\0\0" + body + b"\0" * 10


def lossy(width: int, height: int) -> bytes:
    return webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def lossless(width: int, height: int) -> bytes:
    return webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def extended(width: int, height: int) -> bytes:
    return webp(b"VP8X", b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))


@given(SIZES, SIZES, st.sampled_from([png, gif, jpeg, lossy, lossless, extended]))
def test_a_header_says_the_size(width: int, height: int, form: object) -> None:
    assert callable(form)
    data = form(width, height)
    text = base64.b64encode(data).decode()
    assert image_size(data) == (width, height)
    assert image_size_of_base64(text) == (width, height)
    assert image_size_of_base64(f"data:image/any;base64,{text}") == (width, height)


@pytest.mark.parametrize("profile", [100, 65_000])
def test_a_jpeg_is_read_past_its_exif_block(profile: int) -> None:
    data = jpeg(640, 480, profile)
    assert image_size(data) == (640, 480)
    assert image_size_of_base64(base64.b64encode(data).decode()) == (640, 480)


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\xff\xd8", b"\xff\xd8\xff", png(3, 4)[:18], b"RIFF    WEBPVP8L"])
)
def test_broken_headers_have_no_size_or_one(data: bytes, start: bytes) -> None:
    width, height = image_size(start + data)
    assert width >= 0
    assert height >= 0


@given(st.text(alphabet=st.characters(codec=None, exclude_categories=()), max_size=300))
def test_text_that_is_no_base64_has_no_size(text: str) -> None:
    assert image_size_of_base64(f"!{text}") == (0, 0)


@pytest.mark.parametrize("text", ["", "A", "====", "data:", "data:image/png;base64,", "AAAA" * 1_000, "/9j/"])
def test_a_payload_without_header_has_no_size(text: str) -> None:
    assert image_size_of_base64(text) == (0, 0)


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    # Anthropic, "Vision": 200 x 200 takes about 54, 1,000 x 1,000 about 1,334, 1,092 x 1,092 about 1,590 tokens.
    [(200, 200, 53), (1_000, 1_000, 1_333), (1_092, 1_092, 1_589), (4_000, 3_000, 1_600), (3_136, 314, 328)],
)
def test_anthropic_counts_by_area(width: int, height: int, tokens: int) -> None:
    assert image_tokens(Image(width, height, raw=ANTHROPIC)) == tokens


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    # OpenAI, "Images and vision": 1,024 x 1,024 takes 765, 2,048 x 4,096 takes 1,105 tokens.
    [(1_024, 1_024, 765), (2_048, 4_096, 1_105), (1, 1, 255), (512, 512, 255)],
)
def test_openai_counts_by_tiles(width: int, height: int, tokens: int) -> None:
    assert image_tokens(Image(width, height, raw=OPENAI)) == tokens


def test_low_detail_takes_85() -> None:
    assert image_tokens(Image(4_096, 4_096, detail="low", raw=OPENAI)) == 85


def test_s2_09_an_image_of_unknown_size_takes_1200() -> None:
    assert image_tokens(Image(raw=OPENAI)) == 1_200
    assert image_tokens(Image(size_bytes=2_000_000)) == 1_200


@given(SIZES, SIZES)
def test_an_image_of_an_unknown_provider_takes_the_larger_figure(width: int, height: int) -> None:
    both = [image_tokens(Image(width, height, raw=raw)) for raw in (ANTHROPIC, OPENAI)]
    assert image_tokens(Image(width, height)) == max(both)
