"""The default model against transformers: same GGUF file, dequantized, float32."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import torch

from penstock.engine.request import SamplingParams
from penstock.llm import LLM

QUESTIONS = [
    "What is the capital of France?",
    "Explain gravity to a child in two sentences.",
    "Write a haiku about rivers.",
    "List three uses of a hammer.",
    "Translate 'good morning' into Spanish.",
    "What is 17 plus 25?",
    "Write a Python function that reverses a string.",
    "Who wrote Hamlet?",
    "Give me a recipe for pancakes.",
    "Why is the sky blue?",
    "Name five animals that live in the sea.",
    "What does HTTP stand for?",
    "Summarize the plot of Cinderella.",
    "How do I boil an egg?",
    "What is the largest planet?",
    "Tell me a joke about computers.",
    "Compare cats and dogs as pets.",
    "What happened in 1969?",
    "Write an email that declines a meeting.",
    "What is a prime number?",
]
TOKENS = 64


def test_greedy_answers_equal_those_of_transformers(default_reference: Any) -> None:
    """Each token is what transformers finds likeliest after all tokens before it; by induction the
    whole answer is transformers' greedy answer."""
    with LLM(precision="float32") as llm:
        conversations = [[{"role": "user", "content": question}] for question in QUESTIONS]
        answers = llm.chat(conversations, SamplingParams(temperature=0.0, max_tokens=TOKENS))
    assert sum(len(answer.outputs[0].token_ids) for answer in answers) > 600
    for question, answer in zip(QUESTIONS, answers, strict=True):
        prompt, output = answer.prompt_token_ids, answer.outputs[0].token_ids
        with torch.no_grad():
            logits = default_reference(torch.tensor([prompt + output])).logits[0]
        likeliest = logits[len(prompt) - 1 : -1].argmax(dim=-1).tolist()
        assert output == likeliest, question


def test_loading_keeps_no_second_copy_of_the_weights() -> None:
    """Peak memory of a process that loads the model stays near what the model needs in the end."""
    script = (
        "import resource, torch\n"
        "from penstock.engine.models.loader import build_decoder, checked_weights\n"
        "from penstock.hub import resolve\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "path = resolve('default').path\n"
        "before = peak()\n"
        "model = build_decoder(checked_weights(path), torch.device('cpu'), 'float32')\n"
        "print(peak() - before, model.weight_bytes + model.embedding.nbytes, path.stat().st_size)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    grown, weights, file = map(int, done.stdout.split())
    # The file's own pages are mapped in while it is read.
    assert grown < 1.2 * weights + file
