"""Wire formats: what clients send, what they get back, and how errors look.

Pure: bytes in, checked structs out, and the reverse. Knows nothing of sockets,
tokenizers, engines or devices; of the engine only its plain data (`engine.request`).
"""
