"""From a request's body to what the engine is asked for: parsed, checked, rendered, tokenized."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from penstock.engine.beam import BeamSearchParams
from penstock.engine.request import Request, SamplingParams
from penstock.gateway.local.model import ServedModel
from penstock.gateway.local.prompt import Prompt, Shown
from penstock.protocol.chat import parse_chat
from penstock.protocol.completion import (
    CompletionRequest,
    check_prompt_ids,
    check_total_choices,
    parse_completion,
)
from penstock.protocol.fitting import check_context, check_prompt_scores, truncated
from penstock.protocol.generation import GenerationRequest
from penstock.text.constraints import bad_word_ids, guided_ids
from penstock.text.reasoning import Reasoning, reasoning_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One HTTP request, ready to run."""

    request: GenerationRequest
    params: SamplingParams  # with as many choices of each prompt as the engine makes
    returned: int  # of these
    prompts: list[Prompt]
    bad_words: tuple[tuple[int, ...], ...] = ()
    guided: tuple[tuple[int, ...], ...] = ()
    beam: BeamSearchParams | None = None
    reasoning: Reasoning | None = None
    shown: Shown = field(default_factory=Shown)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(prompt.ids) for prompt in self.prompts)

    @property
    def choices(self) -> int:
        """How many the engine computes, over all prompts."""
        return self.params.n * len(self.prompts)

    def output_tokens(self, context: int) -> int:
        """The most that all choices together can have."""
        limit = self.params.max_tokens
        room = [context - len(prompt.ids) for prompt in self.prompts]
        return self.params.n * sum(left if limit is None else min(left, limit) for left in room)

    def requests(
        self, name: str, eos_token_ids: tuple[int, ...], salt: str, priority: int, *, scored: bool = False
    ) -> list[Request]:
        """For the engine: one for each prompt. `scored`: with each token's log-probability, shown or not."""
        params = self.params
        if scored and params.logprobs is None:
            params = replace(params, logprobs=0)
        return [
            Request(
                id=f"{name}-{number}",
                prompt=prompt.ids,
                params=params,
                eos_token_ids=eos_token_ids,
                bad_words=self.bad_words,
                guided=self.guided,
                priority=priority + (self.request.priority or 0),
                salt=salt,
            )
            for number, prompt in enumerate(self.prompts)
        ]


def prepare_chat(model: ServedModel, body: bytes) -> Prepared:
    request = parse_chat(body)
    limit, field_name = request.output_limit
    params = request.sampling()
    params.check_vocabulary(model.vocab_size)
    model.check_messages(len(request.messages))
    messages = request.template_messages()
    model.check_characters(messages, "messages")
    options = request.template_options()
    ids = truncated(model.encode_chat(messages, options), request, model.context, limit)
    check_context(len(ids), limit, model.context, prompt="messages", field=field_name)
    if request.prompt_logprobs is not None:
        check_prompt_scores(len(ids), request.prompt_logprobs + 1, "prompt_logprobs")
    # A guided answer is one of the texts as it stands.
    family = None if params.guided_choice else model.reasoning
    continued = messages[-1] if options["continue_final_message"] else None
    reasoning = reasoning_of(family, model.tokenizer, ids, continued)
    return _prepared(
        model,
        request,
        params,
        request.beam(),
        [Prompt(ids)],
        reasoning=reasoning,
        wants_reasoning=request.include_reasoning is not False,
    )


def prepare_completion(model: ServedModel, body: bytes) -> Prepared:
    request = parse_completion(body)
    params = request.sampling()
    params.check_vocabulary(model.vocab_size)
    given = request.prompts()
    check_total_choices(len(given), params.n)
    check_total_choices(len(given), request.best_of or 1, "best_of")
    prompts: list[Prompt] = []
    for number, prompt in enumerate(given):
        where = "prompt" if len(given) == 1 else f"prompt[{number}]"
        if isinstance(prompt, str):
            model.check_characters(prompt, where)
            whole = model.tokenizer.encode(prompt, add_bos=request.add_special_tokens)
        else:
            whole = prompt
        ids = truncated(whole, request, model.context, request.output_limit)
        # Only a limit that was asked for must fit; the default ends where the context does.
        check_context(len(ids), request.max_tokens, model.context, prompt=where, field="max_tokens")
        check_prompt_ids(ids, model.vocab_size, where)
        prompts.append(Prompt(ids, _echoed(model, request, prompt, ids, whole)))
    tokens = sum(len(prompt.ids) for prompt in prompts)
    if request.prompt_logprobs is not None:
        check_prompt_scores(tokens, (request.prompt_logprobs + 1) * params.n, "prompt_logprobs")
    if request.echo and request.logprobs is not None:
        check_prompt_scores(tokens, (request.logprobs + 1) * params.n, "logprobs")
    return _prepared(model, request, params, request.beam(), prompts)


def _prepared(
    model: ServedModel,
    request: GenerationRequest,
    params: SamplingParams,
    beam: BeamSearchParams | None,
    prompts: list[Prompt],
    *,
    reasoning: Reasoning | None = None,
    wants_reasoning: bool = True,
) -> Prepared:
    shown = Shown(
        logprobs=params.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        token_ids=bool(request.return_token_ids),
        as_ids=bool(request.return_tokens_as_token_ids),
        reasoning=wants_reasoning,
    )
    return Prepared(
        request=request,
        params=params.for_engine(),
        returned=params.n,
        prompts=prompts,
        bad_words=bad_word_ids(model.tokenizer, params.bad_words),
        guided=guided_ids(model.tokenizer, params.guided_choice),
        beam=beam,
        reasoning=reasoning,
        shown=shown,
    )


def _echoed(
    model: ServedModel, request: CompletionRequest, prompt: str | list[int], ids: list[int], whole: list[int]
) -> str | None:
    """The prompt's text, if it is to be shown: as it came, unless it came as ids or has been cut."""
    if not request.echo:
        return None
    if isinstance(prompt, str) and len(ids) == len(whole):
        return prompt
    return model.tokenizer.decode(ids, skip_special=False)
