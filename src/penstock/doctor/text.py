"""A model's tokenizer and chat template, loaded as the server loads them."""

from __future__ import annotations

from penstock.config import Settings
from penstock.doctor.finding import Finding
from penstock.errors import PenstockError
from penstock.hub.files import ModelFiles


def judge_text(files: ModelFiles, settings: Settings, section: str, *, chats: bool = True) -> Finding:
    """Without a tokenizer nothing is served; without a chat template, everything but chats is."""
    try:
        from penstock.text.chat import ChatTemplate
        from penstock.text.template_file import read_template
        from penstock.text.tokenizer import Tokenizer

        given = None if settings.chat_template is None else read_template(settings.chat_template)
        tokenizer = Tokenizer.load(files, chat_template=given)
        ChatTemplate(tokenizer.chat_template, tokenizer)
    except PenstockError as error:
        return Finding(section, "tokenizer", "problem", str(error))
    except Exception as error:  # a broken package, or a defect of ours: still one sentence
        sentence = f"It cannot be loaded: {type(error).__name__}: {error}."
        return Finding(section, "tokenizer", "problem", sentence)
    if not chats:
        return Finding(section, "tokenizer", "ok", f"{tokenizer.vocab_size:,} tokens.")
    if tokenizer.chat_template is None:
        sentence = f"{tokenizer.vocab_size:,} tokens, without a chat template: chat requests will be refused "
        sentence += "until --chat-template names a file with one."
        return Finding(section, "tokenizer", "note", sentence)
    return Finding(section, "tokenizer", "ok", f"{tokenizer.vocab_size:,} tokens, with a chat template.")
