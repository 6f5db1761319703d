"""Text and token ids: tokenizer, incremental detokenizer with stop strings, chat templates.

Knows vocabularies and templates; must not know torch, scheduling, HTTP or wire formats.
Everything read from a model file, its template above all, is untrusted.
"""
