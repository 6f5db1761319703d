"""A modest stemmer: one result for the forms and spellings of a word, with as few accidents as possible."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from penstock.gateway.cache.verify.lexicon import words

# Forms that no ending below may be taken from.
_WHOLE: Final = words(
    """news physics politics economics business process series species always perhaps gas bus plus less
    unless across access address success loss boss class glass pass canvas christmas atlas bias texas
    kansas paris jesus virus campus status focus bonus census morning evening nothing something anything
    everything during ceiling wedding sibling darling pudding need seed speed feed breed exceed indeed
    hundred united embed proceed succeed windows aws ios analysis basis crisis thesis diabetes james mars
    sales beijing boeing only family reply supply july italy early fly apply ally assembly belly rally
    jelly bully lily indians americans germans russians africans europeans australians canadians
    pakistanis israelis does goods thanks means arms glasses"""
)
# Words and their forms, one word after the other.
_FORMS: Final = """
    go went gone goes | buy bought | think thought | bring brought | teach taught | make made
    take took taken | give gave given | write wrote written | speak spoke spoken | know knew known
    see saw seen | eat ate eaten | drink drank | find found | begin began begun | run ran | win won
    lose lost | sell sold | tell told | say said | send sent | spend spent | build built | feel felt
    keep kept | sleep slept | meet met | break broke broken | choose chose chosen
    forget forgot forgotten | get got gotten | hold held | become became | come came | grow grew grown
    draw drew drawn | drive drove driven | ride rode ridden | steal stole stolen | wear wore worn
    learn learnt | pay paid | die dying | lie lying | fall fell fallen | fight fought | catch caught
    hide hid hidden | child children | man men | woman women | foot feet | tooth teeth | life lives
    wife wives | knife knives | mouse mice | shoot shot | swim swam | sing sang sung
    throw threw thrown | use used using | fly flew flown flies | beat beaten | bite bit bitten
    have has had
"""
_IRREGULAR: Final = {
    form: forms.split()[0]
    for line in _FORMS.strip().splitlines()
    for forms in line.split("|")
    for form in forms.split()[1:]
}
_SPELLINGS: Final = {
    "colour": "color", "favourite": "favorite", "favour": "favor", "behaviour": "behavior",
    "honour": "honor", "labour": "labor", "humour": "humor", "neighbour": "neighbor", "flavour": "flavor",
    "rumour": "rumor", "centre": "center", "theatre": "theater", "programme": "program",
    "cheque": "check", "licence": "license", "defence": "defense", "offence": "offense", "grey": "gray",
    "tyre": "tire", "aeroplane": "airplane", "jewellery": "jewelry", "catalogue": "catalog",
    "dialogue": "dialog", "analyse": "analyze", "enrol": "enroll", "fulfil": "fulfill",
    "practise": "practice", "judgement": "judgment", "ageing": "aging", "mould": "mold",
    "whilst": "while", "till": "until", "untill": "until", "thru": "through", "bcoz": "because",
    "becuase": "because", "recieve": "receive", "seperate": "separate", "definately": "definitely",
    "tommorow": "tomorrow", "tomorow": "tomorrow", "goverment": "government", "beautifull": "beautiful",
    "succesful": "successful", "successfull": "successful", "pronounciation": "pronunciation",
}  # fmt: skip
# "-ise" that is no "-ize" anywhere.
_ISE: Final = words(
    """exercise otherwise promise advise surprise precise compromise enterprise expertise franchise
    paradise premise disguise revise supervise televise likewise concise merchandise comprise treatise"""
)
_VOWEL: Final = re.compile("[aeiouy]")
_TWICE: Final = re.compile(r"([a-z])\1")
_DOUBLED: Final = re.compile(r"([bdgklmnprt])\1$")


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """What is left of a lower-case word without its endings; not always a word."""
    word = _SPELLINGS.get(word, word)
    if word in _WHOLE or len(word) < 4 or not word.isalpha():
        return _ended(_IRREGULAR.get(word, word))
    if word in _IRREGULAR:
        return _ended(_IRREGULAR[word])
    word = _plural(word)
    if word in _SPELLINGS or word in _IRREGULAR:
        word = _SPELLINGS.get(word, word)
        return _ended(_IRREGULAR.get(word, word))
    if word.endswith("ly") and len(word) > 5:
        word = word[:-2] if not word.endswith("ily") else f"{word[:-3]}y"
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and word not in _WHOLE and len(root) >= 3 and _VOWEL.search(root):
            word = _DOUBLED.sub(r"\1", root) if not root.endswith(("ll", "ss")) else root
            break
    return _ended(word)


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _ended(word: str) -> str:
    """The same end for make and mak(ing), try and tri(ed), organise and organize."""
    if word.endswith("ise") and len(word) > 6 and word not in _ISE:
        word = f"{word[:-3]}ize"
    if len(word) > 6 and word.endswith("is") and f"{word}e" not in _ISE and word not in _WHOLE:
        word = f"{word[:-2]}iz"
    if len(word) > 2 and word.endswith("y"):
        word = f"{word[:-1]}i"
    if len(word) > 3 and word.endswith("e"):
        word = word[:-1]
    if word.endswith("ll") and len(word) > 5:
        word = word[:-1]
    # Of long words most have one spelling with a letter doubled and one slip without it.
    return _TWICE.sub(r"\1", word) if len(word) > 7 else word
