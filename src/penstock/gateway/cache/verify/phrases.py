"""How a question is put: polite frames, which say nothing, and its kind, which says what would answer it.

Patterns see one sentence, lower-case words between single blanks. In the tables each line is a pattern, or a
kind and a pattern: `<WHO>` stands for a pattern of that name, brackets only group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_NAMED: Final = {
    "WHO": "(i|you|we|one|someone|somebody|anyone|anybody|people|a person|a beginner|a student)",
    "ASKED": "(you|anyone|anybody|someone|somebody|u)",
    "BE": "(is|are|was|were|s|would be|will be|could be|can be|might be)",
    "GOOD": (
        "((the|a|an|some|some of the|your|few|any|best|good|right|correct|proper|ideal|perfect|better|"
        "possible|effective|great|top|most effective|really|very|other|different|various) )*"
    ),
    "WAY": (
        "(ways?|methods?|steps?|procedures?|techniques?|tricks?|tips?|tips and tricks|approach(es)?|"
        "strateg(y|ies)|hacks?|means|manner)"
    ),
    "TO": "(to|of|for|in which|by which|that|on|about|how to|in order to|<WHO> (can|could|should))",
    "WH": "(how|what|why|when|where|who|which)",
    "DEGREE": (
        "(much|many|long|often|far|big|large|fast|deep|high|heavy|hard|difficult|easy|safe|likely|accurate|"
        "important|soon|good|bad|strong|rich|true|effective|common|well|powerful|reliable|dangerous|late|early|"
        "close|different|smart|hot|cold|tall|old|rare|useful|successful|popular|serious|thick|wide|loud|bright)"
    ),
}

# Left out wherever they stand.
_SAYS_NOTHING: Final = """
please|pls|plz|kindly|thanks( in advance)?|thank you( in advance)?
in your opinion|according to you|in your view|in your experience|as per you|personally
do you think(?! of | about )|(?<!do )you think(?! of | about )
any (help|ideas?|suggestions?)|guys|sir|dear|if possible|if any|anyway|by the way
"""
# Left out at the end: what a good answer says anyhow.
_TAILS: Final = """
(( ,| and| or| if so| if yes| if not)+) (why|how|why not|what is it|what are they|why or why not|how so)
"""
# Left out at the beginning, again and again.
_FRAMES: Final = """
(hi|hello|hey|so|and|also|but|ok|okay|well|just|question)( there| all| everyone)?
(can|could|would|will) <ASKED> help( me)?( to| with| by| understand| find out)?
(can|could|would|will) <ASKED> (tell|explain to|explain|give|show|advise) me
(can|could|would|will) <ASKED> (let me know|share|tell|clarify|elaborate( on)?)
(can|could|would|will) <ASKED> (explain|describe)(?= <WH> )
tell me|let me know|explain to me|explain me|show me|help me understand|give me
explain(?= <WH> )
i (want|need|would like|would love|am trying|wish|wanna|am looking)( to)? (know|understand|find out|ask)
i (was|am) (just )?(wondering|curious|confused|asking)|i wonder|just curious|just wondering
(do|does) <ASKED> (happen to )?(know|have any idea)|<ASKED> knows?|does anyone have (any )?(idea|experience)
what i want to know is|my question is|the question is|is there anyone who knows
(about|of|that|if|whether|as to)(?= (<WH>|if|whether|is|are|do|does|can) )
"""
# What a question asks for: the first line that fits its beginning names its kind. What stands behind the kind
# is kept as words; an O says that somebody else does what is asked about.
_KINDS: Final = r"""
HOWTO <- how (do|does|can|could|should|would|might|may|shall|must|will|did) <WHO><ABLE>
HOWTO <- how <WHO> (can|could|should|would|might|must|do)<ABLE>
HOWTO <- how to( (best|properly|actually))?|how can be|how is it possible to|how (about|do) (?=\w+ing )
HOWTO <- (what|which) <BE> <GOOD><WAY> <TO>( <WHO> (can|could|should))?
HOWTO <- (what|which) <BE> <GOOD>(process|procedures?) (to|of|for)
HOWTO fast <- (what|which) <BE> the (fastest|quickest) <WAY> <TO>
HOWTO easy <- (what|which) <BE> the (easiest|simplest) <WAY> <TO>
HOWTO cheap <- (what|which) <BE> the cheapest <WAY> <TO>
HOWTO easy <- (what|which) <BE> (an?|some) (easy|simple) <WAY> <TO>
HOWTO <- what (can|could|should) be done( to| in order to)
HOWTO <- (what|which) <GOOD><WAY> (can|should|could|do|are there)( <WHO>)?( use| to| for)*
HOWTO <- what (should|can|could|must|do|would|shall) <WHO> (do|need to do|must do|have to do)<SO>
HOWTO <- what (steps|measures|things) (should|can|do) <WHO> (take|do|follow|need to take) to
HOWTO <- (is|are) there <GOOD><WAY> <TO>( <WHO> (can|could))?
HOWTO <- what does it take to|what (do|must|should) <WHO> (need|have) to( do to)?(?= be)
HOWTO <- (the )?(best |good |easy |some )*<WAY> (to|for|on)
COST <- how (much|expensive) (does it cost|would it cost|will it cost|is it|do <WHO> pay)( to| for)?
COST <- what <BE> (the )?((average|approximate|total|actual) )*(cost|price|fees?|charges?)( of| for| to)?
AGE <- how old (is|are|was|were)|what (is|was) the age of
HEIGHT <- how tall (is|are|was)|what (is|was) the height of
POPULATION <- how many people (live|are there|are) in|what is the population of
DISTANCE <- how far (is( it)?)|what is the distance
DURATION <- how (long|much time) (does it|will it|would it|did it|does|will|it)( usually)? takes?( for| to)*
DURATION <- how many (days|hours|months|weeks|years) does it take( to| for)*
HOWMUCH many <- what <BE> (the )?(total |exact )?number of
HOWMUCH often <- how many times (a|per)? ?(day|week|month)?(?= (should|do|does|can) )
HOWMUCH big <- what <BE> the size of
HOWMUCH fast <- what <BE> the speed of
HOWMUCH \g<degree> <- how (?P<degree><DEGREE>)
USE <- what <BE> (the |some )?((main|common|practical) )*(uses?|applications?) of
WHY important <- what <BE> (the )?(importance|significance) of
WHY <- what <BE> (the |some |a |some of the )*(<REAL> )*(reasons?|causes?)( for| behind| of| why| that)*
WHY <- why|how come|what (causes|caused)|for what reason
FEEL <- what does it feel like( to( be)?)?|how does it feel( like)?( to( be)?)?
FEEL <- what <BE> it like( to( be)?)?|how is it like to
OPINION <- what do you think( of| about)?|how do you feel about|your (thoughts|views|opinion) on
OPINION <- what (is|are) your (opinions?|views?|thoughts?|take)( of| on| about| regarding)?
HAPPEN <- what if|what (happens|would happen|will happen|happened|does happen)( if| when| to)?
SALARY <- what <BE> (the )?((average|typical|starting|monthly|annual) )*(salary|income|pay)( of| for)?
DIFFER <- what <BE> (the |some |a |main |major |key |basic |exact )*differences?( of| between| in)*
DIFFER <- (the )?differences? between
BETTER <- (what|which|who) (one )?is (the )?better( option| choice)?
WHEN best <- when should <WHO>|(what|when) <BE> the (best|right|good|ideal|perfect) time (to|for)
WHERE best <- where should <WHO>|(what|which|where) <BE> <GOOD>places? (to|for|where <WHO> can)
WHEN <- when|(at )?what time|what date|on (which|what) (date|day)|(in )?(which|what) year
WHERE <- where|at which place|in (which|what) place
WHO <- who|whom|whose
WHAT best \g<x> <- (what|which) (?P<x>\w+( \w+)??) should <WHO>
WHAT \g<how> \g<x> <- (what|which) (?P<x>(\w+ ){1,3}?)(is|are|was|were)( the| considered)* (?P<how><MOST>)
WHAT \g<what> <- (what|which) (?P<what>\w+( \w+)??) (is|are|was|were)
WHAT <- (what|which)( one)? <BE>( (some|the|a|an|of|few|examples of|meant by|one of|list of|there))*
WHAT <- (list|name|suggest|recommend|can <ASKED> (suggest|recommend|list|name)|any)( me)?( some| a| a few)*
WHAT <- (<CAN> <ASKED> )?(define|describe|explain|about)( (the|a|an|some|what is))*
WHAT <- (what do you mean by|definition of|(the )?meaning of)( (the|a|an))*
WHICH <- what|which
HOW <- how (is|are|was|were|do|does|did|can|could|will|would|should|has|have)|how
NEED <- do <WHO> (need|have) to|is it (necessary|required|mandatory|compulsory) to
POSSIBLE <- is it ((really|even|actually) )*possible (to|for <WHO> to|that <WHO> can|that)
POSSIBLE <- (can|could) <WHO>( really| actually| ever| still)*
POSSIBLE O <- can|could
SHOULD <- should <WHO>
SHOULD O <- should
YESNO <- will|would|shall|is|are|am|was|were|do|does|did|has|have|had
"""
_MORE_NAMED: Final = {
    "ABLE": "( (be able to|go about|best|possibly|actually|manage to|can|really|ever|go on to))*",
    "CAN": "(can|could|would|will)",
    "SO": "( to| in order to| so that <WHO> can| so <WHO> can| if <WHO> want to)",
    "REAL": "(main|real|possible|actual|exact|primary|major|common|biggest)",
    "MOST": r"best|worst|\w{3,}est|most \w+",
}
# Kinds whose words stand around what is asked about.
_AROUND: Final = r"""
DIFFER \g<x> and \g<y> <- how (is|are|do|does|did) (?P<x>.+?) (different|differs?)( from| than| to)? (?P<y>.+)
USE \g<x> <- what (is|are) (?P<x>.+?) used for
WHAT \g<x>\g<y> <- what (do|does|did) ((the|a|an) )*(?P<x>.+?) (means?|stand for)(?P<y>( .*)?)
COST \g<x>\g<y> <- how much (do|does|would|will|is|are) (?P<x>.+?) (costs?|charge)(?P<y>( .*)?)
SALARY \g<x>\g<y> <- how much (money )?(do|does|can|will) (?P<x>.+?) (earns?|make|get paid)(?P<y>( .*)?)
"""
# Kinds in which a word may stand elsewhere in the sentence: nobody does something to somebody else in them.
FREE_ORDER: Final = frozenset(
    {
        "HOWTO",
        "WHAT",
        "COST",
        "AGE",
        "HEIGHT",
        "POPULATION",
        "DURATION",
        "SALARY",
        "DIFFER",
        "BETTER",
        "OPINION",
    }
    | {"WHERE"}
)


def _expanded(pattern: str) -> str:
    named = {**_NAMED, **_MORE_NAMED}
    while (named_again := re.sub(r"<([A-Z]+)>", lambda match: named[match[1]], pattern)) != pattern:
        pattern = named_again
    return re.sub(r"\((?!\?)", "(?:", pattern)


def _any_of(table: str) -> str:
    return "|".join(_expanded(line) for line in table.strip().splitlines())


def _kinds(table: str, shape: str) -> Iterator[tuple[re.Pattern[str], str]]:
    for line in table.strip().splitlines():
        kind, _, pattern = line.partition(" <- ")
        yield re.compile(shape.format(_expanded(pattern))), f" {kind} "


_NOTHING_PATTERN: Final = re.compile(rf"(?<= )(?:{_any_of(_SAYS_NOTHING)})(?= )")
_TAIL_PATTERN: Final = re.compile(rf"(?:{_any_of(_TAILS)})(?= $)")
_FRAME_PATTERN: Final = re.compile(rf"^ (?:{_any_of(_FRAMES)})(?= )")
_KIND_PATTERNS: Final = (*_kinds(_AROUND, "^ (?:{}) $"), *_kinds(_KINDS, "^ (?:{})(?= )"))


def without_frames(sentence: str) -> str:
    """The sentence without what only makes it polite."""
    sentence = _TAIL_PATTERN.sub("", " ".join(_NOTHING_PATTERN.sub("", sentence).split()).join("  "))
    for _ in range(4):
        shorter = _FRAME_PATTERN.sub("", sentence)
        if shorter == sentence or not shorter.strip():
            break
        sentence = shorter
    return sentence


def with_kind(sentence: str) -> str:
    """The sentence with an upper-case word in place of those that say what is asked for."""
    for pattern, kind in _KIND_PATTERNS:
        if pattern.match(sentence):
            return " ".join(pattern.sub(kind, sentence, count=1).split()).join("  ")
    return sentence
