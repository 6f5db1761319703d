"""Answers that decline to answer, in the languages that people ask in.

A refusal may be right. A model that costs more then says the same, which is money lost; a weak one that says
no to what it merely cannot do is the commoner case.
"""

from __future__ import annotations

import re
from typing import Final

_LOOKED_AT: Final = 240  # characters: a refusal comes first, what is said later is part of an answer
_LONGEST: Final = 1200  # characters: whoever goes on for longer has answered after all

_NO: Final = r"(?:can't|cannot|can not|won't|will not|(?:am |'m )?(?:unable|not able) to|must decline to)"
_HELP: Final = (
    r"(?:assist|help|provide|answer|fulfill?|comply|do (?:that|this)|continue|discuss|share|create|generate"
    r"|engage|give|offer|access|browse|support|process|complete|participate|respond|tell you)"
)
_SO: Final = r"[^.。\n]{0,60}"  # the rest of a sentence
_PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    "English": (
        rf"\bI(?: am|'m)? ?{_NO} (?:\w+ )?{_HELP}\b",
        rf"^\W*(?:I(?:'m| am) (?:\w+ )?(?:sorry|afraid)|sorry|unfortunately|my apologies)\b{_SO}\b{_NO}",
        r"\b(?:as|I(?:'m| am)) (?:just |only )?an? (?:AI|artificial intelligence|(?:\w+ )?language model)\b",
        r"\bI (?:must|have to) decline\b",
        r"\bI (?:do not|don't) (?:have (?:access|the ability|enough information)|feel comfortable)\b",
    ),
    "German": (
        r"\bals (?:eine? )?(?:KI|künstliche Intelligenz|Sprachmodell)\b",
        rf"\b(?:tut mir leid|leider|entschuldigung)\b{_SO}\b(?:kann|darf)\b{_SO}\bnicht\b",
        rf"^\W*ich kann (?:dir|ihnen|das|diese|dabei)\b{_SO}\bnicht\b",
    ),
    "Dutch": (r"\bals (?:een )?(?:AI|taalmodel)\b", rf"\bhet spijt me\b{_SO}\bkan\b{_SO}\bniet\b"),
    "French": (
        r"\ben tant qu(?:e |')(?:IA|intelligence artificielle|modèle)\b",
        rf"\bje (?:suis désolée?|regrette)\b{_SO}\bne (?:peux|puis)\b",
        r"^\W*je ne (?:peux|puis) (?:pas|malheureusement)\b",
    ),
    "Spanish": (
        r"\bcomo (?:una? )?(?:IA|inteligencia artificial|modelo de lenguaje)\b",
        rf"\blo siento\b{_SO}\bno puedo\b",
        r"^\W*no puedo (?:\w+ )?(?:ayudar|proporcionar|responder|cumplir)",
    ),
    "Portuguese": (
        r"\bcomo (?:uma? )?(?:IA|inteligência artificial|modelo de linguagem)\b",
        rf"\b(?:desculpe|sinto muito)\b{_SO}\bnão posso\b",
        r"^\W*não posso (?:\w+ )?(?:ajudar|fornecer|responder)",
    ),
    "Italian": (
        r"\b(?:come|in quanto) (?:un'?)?(?:IA|intelligenza artificiale|modello linguistico)\b",
        rf"\b(?:mi dispiace|spiacente)\b{_SO}\bnon posso\b",
        r"^\W*non posso (?:\w+ )?(?:aiutar|fornir|rispondere)",
    ),
    "Russian": (
        rf"(?:извините|к сожалению|прошу прощения){_SO}не могу",
        r"как (?:ИИ|искусственный интеллект|языковая модель)",
    ),
    "Chinese": (
        rf"(?:抱歉|对不起|對不起|很遗憾){_SO}(?:无法|無法|不能)",
        r"作为一?个?(?:人工智能|AI|语言模型)",
    ),
    "Japanese": (rf"(?:申し訳|すみません|残念ながら){_SO}(?:できません|お答えでき|いたしかね)",),
    "Korean": (rf"(?:죄송|미안){_SO}(?:없습니다|어렵습니다)",),
}
_REFUSAL: Final = re.compile("|".join(sum(_PATTERNS.values(), ())), re.IGNORECASE)


def refuses(text: str) -> bool:
    """Whether a text, or the beginning of one, declines to answer."""
    text = text.strip()
    if len(text) > _LONGEST:
        return False
    return bool(_REFUSAL.search(text[:_LOOKED_AT].replace("\u2019", "'")))
