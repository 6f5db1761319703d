"""What a LangChain user does with embeddings, run inside the client's environment: `python ... URL MODEL`.

Prints one JSON object: for each thing done its outcome, or the exception that it ended with.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import tiktoken
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

URL, MODEL = sys.argv[1:3]
TEXTS = ["A cat sits on the mat.", "A kitten is sitting on a rug.", "The stock market fell sharply."]


def embeddings(**options: Any) -> OpenAIEmbeddings:
    options = {"check_embedding_ctx_length": False, **options}
    return OpenAIEmbeddings(model=MODEL, base_url=f"{URL}/v1", api_key="any", max_retries=0, **options)


def as_ids(first: int) -> list[list[float]]:
    """Unless told not to, LangChain sends ids of OpenAI's tokenizers; of this one, a byte plus `first`."""
    ranks = {bytes([value]): first + value for value in range(256)}
    encoding = tiktoken.Encoding("bytes", pat_str=r"(?s:.)", mergeable_ranks=ranks, special_tokens={})
    tiktoken.encoding_for_model = lambda name: encoding
    return embeddings(check_embedding_ctx_length=True).embed_documents(["cat", "dog"])


SESSION: dict[str, Callable[[], Any]] = {
    "query": lambda: embeddings().embed_query(TEXTS[0]),
    "documents": lambda: embeddings(chunk_size=2).embed_documents(TEXTS),
    "async": lambda: asyncio.run(embeddings().aembed_documents(TEXTS)),
    "shorter": lambda: embeddings(dimensions=64).embed_query(TEXTS[0]),
    "ids": lambda: as_ids(2000),
    "unknown ids": lambda: as_ids(100_000),
    "chat": lambda: ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key="any", max_retries=0).invoke("x"),
}


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        families = [f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__]
        return {"raised": families, "message": str(error), "status_code": getattr(error, "status_code", None)}


if __name__ == "__main__":
    print(json.dumps({name: outcome(act) for name, act in SESSION.items()}))
