"""The count of the fake."""

from __future__ import annotations

from foldline.testing.counting import IMAGE_TOKENS, count_body, count_text


def test_a_text_is_a_quarter_of_its_bytes_rounded_up() -> None:
    assert [count_text(text) for text in ("", "a", "abcd", "abcde", "上下", "\ud800")] == [0, 1, 1, 2, 2, 1]


def test_what_the_model_reads_is_counted_and_the_rest_is_not() -> None:
    messages = [{"role": "user", "content": "x" * 400}]
    alone = count_body({"messages": messages})
    assert alone == -(-len('[{"role":"user","content":""}]' + "x" * 400) // 4)
    assert count_body({"messages": messages, "model": "m" * 400, "max_tokens": 7, "metadata": {"a": "b"}}) == alone
    for name in ("system", "tools", "instructions"):
        assert count_body({"messages": messages, name: [{"text": "y" * 400}]}) > alone + 100


def test_an_image_costs_the_same_whatever_its_size() -> None:
    def request(data: str) -> dict[str, object]:
        source = {"type": "base64", "media_type": "image/png", "data": data}
        url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        return {"messages": [{"role": "user", "content": [{"type": "image", "source": source}, url]}]}

    small, large = count_body(request("QUJD")), count_body(request("QUJD" * 50_000))
    assert small == large
    assert 2 * IMAGE_TOKENS < small < 2 * IMAGE_TOKENS + 60
