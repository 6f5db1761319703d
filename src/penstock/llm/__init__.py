"""The Python API: the engine in this process, without a server.

from penstock import LLM, SamplingParams

with LLM() as llm:
    for output in llm.generate(["The sky is"], SamplingParams(max_tokens=20)):
        print(output.outputs[0].text)
"""

from penstock.llm.llm import LLM
from penstock.llm.outputs import CompletionOutput, RequestOutput, StreamChunk

__all__ = ["LLM", "CompletionOutput", "RequestOutput", "StreamChunk"]
