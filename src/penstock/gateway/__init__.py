"""The front door: HTTP in, token requests out, answers streamed back.

Speaks the wire formats of `protocol`, turns text into token ids with `text`, and hands
requests to a backend (`backends/`). Never imports torch: the engine is another process.
"""
