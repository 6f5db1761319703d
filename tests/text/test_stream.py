"""TextStream against a reference that sees the whole text at once."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.engine.request import SamplingParams
from penstock.text.stream import TextStream
from penstock.text.tokenizer import Tokenizer


class Spelled:
    """A vocabulary of our own: token i stands for `tokens[i]`, whatever bytes these are."""

    def __init__(self, tokens: Sequence[bytes], special: frozenset[int] = frozenset()) -> None:
        self._tokens = tokens
        self.special_ids = special

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]


def run(tokens: Sequence[bytes], params: SamplingParams) -> tuple[list[str], TextStream]:
    """The pieces as a client would get them."""
    stream = TextStream(Spelled(tokens), params)  # type: ignore[arg-type]  # all that it uses of a Tokenizer
    pieces = []
    for token_id in range(len(tokens)):
        pieces.append(stream.push(token_id))
        if stream.stopped is not None:
            return pieces, stream
    pieces.append(stream.finish())
    return pieces, stream


def reference(tokens: Sequence[bytes], params: SamplingParams) -> tuple[str, str | None]:
    """The text cut at the stop string that ends first, the longest of those that end there."""
    free = b"".join(tokens[: max(0, params.min_tokens - 1)])
    text = b"".join(tokens).decode(errors="replace")
    # The text of the first tokens, without a character that is still incomplete, is out of reach.
    start = len(_complete(free)) if tokens else 0
    ends = [
        (text.find(stop, start) + len(stop), -len(stop), stop) for stop in params.stop if stop in text[start:]
    ]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end if params.include_stop_str_in_output else end - len(stop)], stop


def _complete(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")(errors="replace").decode(data)


def cut_anywhere(text: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in itertools.pairwise(borders)] or [b""]


alphabet = st.sampled_from(["a", "b", "ab", "é", "😀", "\n", "中", "."])
texts = st.lists(alphabet, max_size=30).map("".join)
stops = st.lists(st.lists(alphabet, min_size=1, max_size=4).map("".join), max_size=4).map(tuple)


@given(text=texts, places=st.lists(st.integers(0, 200), max_size=40), stop=stops, include=st.booleans())
@example(text="aab", places=[1, 2], stop=("ab",), include=False)
@example(text="abab.", places=[1, 2, 3, 4], stop=("abab!", "bab"), include=True)
@example(text="aaab", places=[1, 2, 3], stop=("aab", "b"), include=False)
def test_the_pieces_are_the_text_cut_at_the_first_stop_however_it_falls_into_tokens(
    text: str, places: list[int], stop: tuple[str, ...], include: bool
) -> None:
    params = SamplingParams(stop=stop, include_stop_str_in_output=include)
    tokens = cut_anywhere(text.encode(), places)
    pieces, stream = run(tokens, params)
    assert ("".join(pieces), stream.stopped) == reference(tokens, params)
    assert stream.text == "".join(pieces)
    assert "\ufffd" not in stream.text  # every character was completed in the end


@given(tokens=st.lists(st.binary(max_size=6), max_size=20), stop=stops, include=st.booleans())
def test_any_bytes_come_out_as_the_whole_would_and_never_as_surrogates(
    tokens: list[bytes], stop: tuple[str, ...], include: bool
) -> None:
    params = SamplingParams(stop=stop, include_stop_str_in_output=include)
    pieces, stream = run(tokens, params)
    assert ("".join(pieces), stream.stopped) == reference(tokens, params)
    "".join(pieces).encode()  # raises on a surrogate


@given(text=texts, places=st.lists(st.integers(0, 200), max_size=40), stop=stops, least=st.integers(1, 12))
def test_stops_are_not_looked_for_in_the_text_of_the_first_tokens(
    text: str, places: list[int], stop: tuple[str, ...], least: int
) -> None:
    params = SamplingParams(stop=stop, min_tokens=least)
    tokens = cut_anywhere(text.encode(), places)
    pieces, stream = run(tokens, params)
    if len(tokens) >= least:
        assert ("".join(pieces), stream.stopped) == reference(tokens, params)
    else:
        assert ("".join(pieces), stream.stopped) == (text, None)


@given(text=texts, places=st.lists(st.integers(0, 200), max_size=40), stop=stops)
def test_only_what_may_become_a_stop_or_a_character_is_held_back(
    text: str, places: list[int], stop: tuple[str, ...]
) -> None:
    tokens = cut_anywhere(text.encode(), places)
    stream = TextStream(Spelled(tokens), SamplingParams(stop=stop))  # type: ignore[arg-type]
    for number in range(len(tokens)):
        stream.push(number)
        if stream.stopped is not None:
            return
        so_far = _complete(b"".join(tokens[: number + 1]))
        assert so_far.startswith(stream.text)
        held = so_far[len(stream.text) :]
        assert held == "" or any(full.startswith(held) and full != held for full in stop)
        longer = [so_far[i:] for i in range(len(so_far) - len(held)) if len(so_far) - i <= 20]
        assert not any(full.startswith(end) for full in stop for end in longer)


def test_a_stop_inside_one_token_cuts_it() -> None:
    pieces, stream = run([b"one", b" two END three"], SamplingParams(stop=("END",)))
    assert pieces == ["one", " two "]
    assert stream.stopped == "END"


def test_a_stop_at_the_very_end_leaves_nothing_behind() -> None:
    pieces, stream = run([b"done", b".\n", b"\n"], SamplingParams(stop=("\n\n",)))
    assert "".join(pieces) == "done."
    assert stream.stopped == "\n\n"


def test_the_beginning_of_a_stop_comes_out_when_the_text_ends() -> None:
    pieces, stream = run([b"a", b"<", b"/"], SamplingParams(stop=("</s>",)))
    assert pieces == ["a", "", "", "</"]
    assert stream.stopped is None


def test_a_character_never_completed_comes_out_as_a_replacement_at_the_end() -> None:
    pieces, _ = run([b"a", "😀".encode()[:2]], SamplingParams())
    assert pieces == ["a", "", "\ufffd"]


def test_special_tokens_are_hidden_unless_wanted(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|im_end|>b")
    for skip, shown in ((True, "ab"), (False, "a<|im_end|>b")):
        stream = TextStream(tokenizer, SamplingParams(skip_special_tokens=skip))
        assert "".join(map(stream.push, ids)) + stream.finish() == shown


def test_a_stop_is_found_across_a_hidden_special_token(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer, SamplingParams(stop=("ab",)))
    for token_id in tokenizer.encode("xa<|im_end|>b"):
        stream.push(token_id)
    assert (stream.text, stream.stopped) == ("x", "ab")


def test_a_long_answer_costs_the_same_for_each_token(tokenizer: Tokenizer) -> None:
    """Counted, not timed: each token's bytes are asked for once, and only the tail is looked at again."""
    asked = 0
    spell = tokenizer.token_bytes

    class Counting:
        special_ids = tokenizer.special_ids

        def token_bytes(self, token_id: int) -> bytes:
            nonlocal asked
            asked += 1
            return spell(token_id)

    ids = tokenizer.encode("water falls on the wheel " * 500)
    stream = TextStream(Counting(), SamplingParams(stop=("never", "wheels")))  # type: ignore[arg-type]
    for token_id in ids:
        stream.push(token_id)
        assert len(stream._held) < len("wheels")
    assert asked == len(ids)


@pytest.mark.parametrize("stop", [("a",), ("a", "aa", "aaa"), tuple("abcdefghijklmnop")])
def test_many_or_nested_stops_end_at_the_first(stop: tuple[str, ...]) -> None:
    _, stream = run([b"xyz", b"aaa"], SamplingParams(stop=stop))
    assert (stream.text, stream.stopped) == ("xyz", "a")
