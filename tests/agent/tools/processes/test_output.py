from __future__ import annotations

import asyncio
import os

import pytest

from foldline.agent.tools.processes.output import ProcessOutput, reading


def test_a_small_output_is_kept_as_it_is() -> None:
    output = ProcessOutput(100)
    for piece in (b"one\n", b"two", b"\n"):
        output.data_received(piece)
    assert output.text == "one\ntwo\n"


def test_of_a_large_output_the_ends_are_kept_with_the_figures_of_the_rest() -> None:
    output = ProcessOutput(20)
    for number in range(1_000):
        output.data_received(f"{number:04}".encode())
    assert output.text == "0000000100\n[… 3,980 of 4,000 bytes are left out here …]\n9709980999"
    assert output.total_bytes == 4_000


def test_memory_stays_bounded() -> None:
    output = ProcessOutput(1_000)
    for _ in range(10_000):
        output.data_received(b"x" * 999)
    assert len(output._head) + len(output._tail) < 5_000


@pytest.mark.parametrize("kept", range(8, 24))
def test_no_character_is_cut_in_two(kept: int) -> None:
    output = ProcessOutput(kept)
    output.data_received("aé€😀".encode() * 20)
    assert "\ufffd" not in output.text


def test_bytes_that_are_no_text_are_replaced() -> None:
    output = ProcessOutput()
    output.data_received(b"a\xffb\0c")
    assert output.text == "a\ufffdb\ufffdc"


def test_a_pipe_is_read_until_all_its_writers_have_closed() -> None:
    async def piped() -> str:
        output = ProcessOutput()
        async with reading(output) as write_end:
            with os.fdopen(write_end, "wb") as writer:
                writer.write(b"written")
            await output.ended.wait()
        return output.text

    assert asyncio.run(piped()) == "written"
