"""What a LangChain user does, run inside the client's own environment: `python ... URL MODEL`.

Prints one JSON object: for each thing done its outcome, or the exception that it ended with.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI, OpenAI

URL, MODEL = sys.argv[1:3]
QUESTION = "Name three colours."
SCHEMA = {"title": "Answer", "type": "object", "properties": {"colour": {"type": "string"}}}

chat = ChatOpenAI(
    model=MODEL,
    base_url=f"{URL}/v1",
    api_key="any",
    temperature=0,
    max_tokens=12,
    max_retries=0,
    stream_usage=True,
)
unknown = ChatOpenAI(model="gpt-5", base_url=f"{URL}/v1", api_key="any", max_retries=0)
completion = OpenAI(
    model=MODEL, base_url=f"{URL}/v1", api_key="any", temperature=0, max_tokens=8, max_retries=0
)


def told(message: Any) -> dict[str, Any]:
    return {
        "content": message.content,
        "usage": message.usage_metadata,
        "finish_reason": message.response_metadata.get("finish_reason"),
        "model": message.response_metadata.get("model_name"),
    }


def streamed(chunks: list[Any]) -> dict[str, Any]:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return told(whole) | {"pieces": [chunk.content for chunk in chunks]}


async def in_the_loop() -> dict[str, Any]:
    asked = chat.ainvoke(QUESTION)
    together = chat.abatch(["Hello", "Name a river."])
    one, several = await asyncio.gather(asked, together)
    chunks = [chunk async for chunk in chat.astream(QUESTION)]
    return {"invoke": told(one), "batch": [told(message) for message in several], "stream": streamed(chunks)}


def conversation() -> dict[str, Any]:
    history = [SystemMessage("Be brief."), HumanMessage(QUESTION)]
    answer = chat.invoke(history)
    return told(chat.invoke([*history, AIMessage(answer.content), HumanMessage("Why?")]))


def chain() -> str:
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "Name a {thing}.")])
    return str((prompt | chat | StrOutputParser()).invoke({"thing": "river"}))


def logprobs() -> list[dict[str, Any]]:
    answer = chat.bind(logprobs=True, top_logprobs=3).invoke(QUESTION)
    return list(answer.response_metadata["logprobs"]["content"])


def choices() -> list[str]:
    varied = ChatOpenAI(
        model=MODEL, base_url=f"{URL}/v1", api_key="any", temperature=1.5, seed=1, n=3, max_tokens=8
    )
    return [generation.text for generation in varied.generate([[HumanMessage(QUESTION)]]).generations[0]]


SESSION: dict[str, Callable[[], Any]] = {
    "invoke": lambda: told(chat.invoke(QUESTION)),
    "stream": lambda: streamed(list(chat.stream(QUESTION))),
    "batch": lambda: [told(message) for message in chat.batch(["Hello", "Name a river.", QUESTION])],
    "async": lambda: asyncio.run(in_the_loop()),
    "conversation": conversation,
    "chain": chain,
    "stop": lambda: told(chat.invoke(QUESTION, stop=["Red", "red"])),
    "logprobs": logprobs,
    "choices": choices,
    "completion": lambda: completion.invoke("The capital of France is"),
    "completion stream": lambda: list(completion.stream("The capital of France is")),
    "unknown model": lambda: unknown.invoke(QUESTION),
    "bad temperature": lambda: chat.bind(temperature=9).invoke(QUESTION),
    "too long": lambda: chat.invoke("word " * 9000),
    "too long in a stream": lambda: list(chat.stream("word " * 9000)),
    "structured output": lambda: chat.with_structured_output(SCHEMA).invoke(QUESTION),
    "tools": lambda: chat.with_structured_output(SCHEMA, method="function_calling").invoke(QUESTION),
}


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        families = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__]
        details = {name: getattr(error, name, None) for name in ("status_code", "code", "param")}
        return {"raised": families, "message": str(error), **details}


if __name__ == "__main__":
    print(json.dumps({name: outcome(act) for name, act in SESSION.items()}))
