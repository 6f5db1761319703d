"""Writes a GGUF as the folder of float32 safetensors that others read: `python ... GGUF FOLDER`.

Runs inside the environment of transformers, which reads the file with its own code.
"""

from __future__ import annotations

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype="float32")
    model.hf_quantizer = None  # what it has read is in full precision by now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # `transformers serve` has no way to ignore the end of text; without one in this file it goes on.
    model.generation_config = GenerationConfig(do_sample=False)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)


main()
