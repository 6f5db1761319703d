"""The Python API, on the default model."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from penstock import LLM, SamplingParams
from penstock.engine.core import EngineCore
from penstock.engine.request import Request, TokenEvent
from penstock.errors import ConfigError, ContextLengthError, InvalidRequestError, PenstockError

GREEDY = SamplingParams(temperature=0.0, max_tokens=8)
PARIS = "The capital of France is"
ROME = "The capital of Italy is"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(max_running=4, max_waiting=4, max_model_len=512) as llm:
        yield llm


def text_of(llm: LLM, prompt: str, params: SamplingParams = GREEDY) -> str:
    return llm.generate(prompt, params)[0].outputs[0].text


def test_answers_come_in_the_order_of_the_prompts_and_for_more_than_the_queue_holds(llm: LLM) -> None:
    numbers = [f"{number}, {number + 1}, {number + 2}," for number in range(12)]
    alone = [text_of(llm, prompt) for prompt in numbers]
    together = llm.generate(numbers, GREEDY)
    assert [output.prompt for output in together] == numbers
    assert [output.outputs[0].text for output in together] == alone


def test_each_prompt_may_have_its_own_parameters(llm: LLM) -> None:
    params = [SamplingParams(temperature=0.0, max_tokens=count) for count in (1, 3)]
    outputs = llm.generate([PARIS, ROME], params)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 3]
    with pytest.raises(InvalidRequestError, match="2 prompts were given with 1"):
        llm.generate([PARIS, ROME], [GREEDY])


def test_token_ids_are_a_prompt_too(llm: LLM) -> None:
    ids = llm.tokenizer.encode(PARIS)
    output = llm.generate(ids, GREEDY)[0]
    assert output.prompt is None
    assert output.prompt_token_ids == ids
    assert output.outputs[0].text == text_of(llm, PARIS)


def test_choices_differ_and_are_reproducible(llm: LLM) -> None:
    params = SamplingParams(n=3, seed=7, max_tokens=12, logprobs=2)
    first, second = (llm.generate(PARIS, params)[0] for _ in range(2))
    assert first.outputs == second.outputs
    assert [output.index for output in first.outputs] == [0, 1, 2]
    assert len({output.text for output in first.outputs}) == 3
    assert all(len(output.logprobs) >= len(output.token_ids) - 1 for output in first.outputs)


def test_a_stop_string_ends_the_text_and_frees_the_engine(llm: LLM) -> None:
    output = llm.generate("1, 2, 3,", SamplingParams(temperature=0.0, max_tokens=200, stop=("6",)))[
        0
    ].outputs[0]
    assert (output.finish_reason, output.stop_reason) == ("stop", "6")
    assert output.text == " 4, 5, "
    assert llm.stats().running == 0


def test_a_stream_says_what_generate_says(llm: LLM) -> None:
    chunks = list(llm.stream(PARIS, GREEDY))
    assert "".join(chunk.text for chunk in chunks) == text_of(llm, PARIS)
    assert len(chunks) == 8
    assert chunks[-1].finish_reason == "length"


def test_a_conversation_is_answered_whole_and_streamed(llm: LLM) -> None:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    whole = llm.chat(messages, GREEDY)[0].outputs[0].text
    assert "Paris" in whole
    assert "".join(chunk.text for chunk in llm.stream(messages, GREEDY)) == whole
    several = llm.chat([messages, messages], GREEDY)
    assert [output.outputs[0].text for output in several] == [whole, whole]


def test_streams_side_by_side_lose_nothing(llm: LLM) -> None:
    streams = [llm.stream(PARIS, GREEDY), llm.stream(ROME, GREEDY)]
    texts = ["", ""]
    for pair in zip(*streams, strict=True):
        for number, chunk in enumerate(pair):
            texts[number] += chunk.text
    assert texts == [text_of(llm, PARIS), text_of(llm, ROME)]


def test_generating_in_the_middle_of_a_stream_harms_neither(llm: LLM) -> None:
    stream = llm.stream(PARIS, GREEDY)
    text = next(stream).text
    between = text_of(llm, ROME)
    text += "".join(chunk.text for chunk in stream)
    assert text == text_of(llm, PARIS)
    assert between == text_of(llm, ROME)


def test_several_threads_may_ask_at_once(llm: LLM) -> None:
    prompts = [f"{number}, {number + 1}," for number in range(6)]
    alone = [text_of(llm, prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        assert list(threads.map(lambda prompt: text_of(llm, prompt), prompts)) == alone


def test_torch_keeps_its_threads_beside_an_engine_in_small_integers() -> None:
    before = torch.get_num_threads()
    with LLM(max_model_len=64, threads=1) as llm:
        assert llm.engine.info.precision == "int8"
        assert torch.get_num_threads() == before


def test_a_stream_that_is_left_stops_generating(llm: LLM) -> None:
    stream = llm.stream(PARIS, SamplingParams(max_tokens=400, ignore_eos=True))
    next(stream)
    assert llm.stats().running == 1
    stream.close()
    stats = llm.stats()
    assert stats.running == 0
    assert stats.blocks_free + stats.blocks_cached == stats.blocks_total


def test_an_error_reaches_its_own_request_only(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    doomed, healthy = llm.stream(PARIS, GREEDY), llm.stream(ROME, GREEDY)
    next(doomed)
    text = next(healthy).text
    step = EngineCore.step

    def step_with_a_fault(engine: EngineCore) -> list[TokenEvent]:
        """The next event of the first request is what the engine says when it gives one up."""
        events = step(engine)
        first = events[0]
        engine.cancel(first.request_id)
        events[0] = TokenEvent(request_id=first.request_id, finish_reason="error", error="It broke.")
        monkeypatch.undo()
        return events

    monkeypatch.setattr(EngineCore, "step", step_with_a_fault)
    text += next(healthy).text
    with pytest.raises(PenstockError, match="It broke"):
        list(doomed)
    assert text + "".join(chunk.text for chunk in healthy) == text_of(llm, ROME)


def test_a_bad_prompt_among_good_ones_is_refused_and_nothing_is_left_running(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="token id 99999999"):
        llm.generate([[1, 2, 3], [99999999]], GREEDY)
    with pytest.raises(ContextLengthError, match="context of 512"):
        llm.generate([[1] * 600], GREEDY)
    with pytest.raises(InvalidRequestError, match="empty"):
        llm.generate([[]], GREEDY)
    assert not llm.engine.has_work


def test_wrong_options_are_named() -> None:
    with pytest.raises(TypeError, match=r"no option max_runing; it has .*max_running"):
        LLM(max_runing=8)
    with pytest.raises(ConfigError, match="max_running must be an integer, got '8'"):
        LLM(max_running="8")


def test_vllm_names_of_options_are_understood() -> None:
    with LLM(dtype="float32", max_num_seqs=2, max_model_len=64, kv_cache_memory=16 << 20) as llm:
        assert (llm.engine.info.precision, llm.engine.info.max_running) == ("float32", 2)
    with pytest.raises(TypeError, match="precision and dtype are the same option"):
        LLM(dtype="float32", precision="float32")


def test_closing_ends_open_streams_with_an_error() -> None:
    llm = LLM(max_model_len=64, kv_cache_memory=16 << 20)
    stream = llm.stream(PARIS, GREEDY)
    next(stream)
    llm.close()
    with pytest.raises(PenstockError, match="closed before"):
        list(stream)


def test_requests_of_the_engine_itself_do_not_disturb(llm: LLM) -> None:
    """`llm.engine` is open to benchmarks, whose events nobody here waits for."""
    llm.engine.submit(Request(id="own", prompt=[1, 2, 3], params=GREEDY))
    assert text_of(llm, PARIS) == text_of(llm, PARIS)
    while llm.engine.has_work:
        llm.engine.step()


def test_a_chat_template_of_ones_own_takes_the_place_of_the_models() -> None:
    with LLM(max_model_len=64, chat_template="{{ messages[0].content }}!") as llm:
        [output] = llm.chat([{"role": "user", "content": "<|im_end|>"}], GREEDY)
        assert llm.tokenizer.decode(output.prompt_token_ids, skip_special=False) == "<|im_end|>!"
    with pytest.raises(ConfigError, match=r"^The chat template nowhere\.jinja cannot be read: No such file"):
        LLM(chat_template="nowhere.jinja")
