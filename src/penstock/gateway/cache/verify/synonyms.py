"""Words that make the same question, and phrases that one word stands for; written by hand.

A group holds what may be exchanged in nearly every question; what often means something else is left out,
since a miss costs a call, and a false hit gives an answer to another question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.gateway.cache.verify.stems import stem

# The first word of a line stands for all of them.
_GROUPS: Final = """
best good great top ideal finest nice
worst bad terrible
fast quick rapid speedy faster quicker
easy simple effortless easier
difficult hard tough
big large huge
small little tiny
buy purchase
start begin commence
stop quit cease
remove delete erase eliminate
fix repair solve resolve
help assist
need require
use utilize usage
make create build
display show
choose select pick
happen occur
attempt try
answer reply
improve enhance boost improvement
reduce decrease lessen lower
growth grow
learn study
prepare preparation
develop development
invest investment
manage management
invent invention inventor
educate education
explain explanation
discover discovery discoverer
motivate motivation
concentrate concentration focus
decide decision
recover recovery retrieve restore
loss lose
meditate meditation
register registration
install installation
communicate communication
achieve achievement
treat treatment cure
important importance significance significant
effect impact affect influence
advantage benefit merit
disadvantage drawback demerit downside
kind type sort
movie film
career profession
company firm corporation
photo picture photograph image pic
phone mobile cellphone smartphone telephone
laptop notebook
computer pc
app application
website site
internet web
child kid
doctor physician
lawyer attorney
people person human someone somebody anyone anybody
man guy
woman lady
boyfriend bf
girlfriend gf
mother mom mum
father dad
country nation
car automobile
house home
price cost fee charge
exam examination
subject topic
mathematics math maths
programming coding
developer programmer coder
beginner newbie novice
pimple acne zit
stomach belly tummy
disease illness sickness
medicine medication
trip tour
travel visit
vacation holiday
place location spot
funny hilarious humorous
beautiful pretty gorgeous
intelligent smart clever
rich wealthy
sad unhappy
afraid scared
crazy insane
strange weird odd
stupid dumb
dangerous harmful risky
wrong incorrect
main major primary
cheap inexpensive
expensive costly
daily everyday
often frequently
kill murder
death die
birth born
marry marriage
talk speak
think believe
hate dislike
want desire
when if while whether
allow permit
ban prohibit forbid
avoid prevent
protect defend
convert transform
join enroll
hire recruit
find locate
get obtain have
real exist existence
close shut
pass clear
government govt
india indian
america american usa
china chinese
pakistan pakistani
japan japanese
germany german
russia russian
france french
britain british uk
australia australian
canada canadian
europe european
africa african
israel israeli
rupee rs inr
dollar usd buck
euro eur
percent percentage
second sec
minute min
hour hr
year yr
kilogram kg kgs kilo
gram g
kilometer km kms kilometre
centimeter cm
meter metre
liter litre
foot feet ft
mile mi
january jan
february feb
april apr
august aug
september sep sept
october oct
november nov
december dec
television tv
facebook fb
javascript js
engineer engineering
many lots
symptom sign
function work
opinion view thought
rude impolite
quote quotation
rule regulation
weigh weight
tall height
deep depth
strong strength
long length
heal healing
author writer
founder founded
winner won
owner owned
director directed
gift present
job employment
mistake error
sleep asleep
smell odor
tired exhausted
yearly annual annually
ad advertisement advert
info information
doc document
sick ill
abroad overseas
advice suggestion tip recommendation
annoying irritating
apartment flat
bathroom toilet restroom washroom
bicycle bike
calculate compute
clothes clothing
colleague coworker
complete finish
couch sofa
damage harm
delicious tasty
device gadget
employee worker
enough sufficient
evidence proof
exercise workout
refrigerator fridge
garbage trash rubbish
petrol gasoline
goal aim objective
hobby pastime
homework assignment
hurt injure
immediately instantly
interesting fascinating
jail prison
elevator lift
lucky fortunate
luggage baggage
essential necessary
noisy loud
penalty punishment
pharmacy drugstore
airplane aeroplane
poem poetry
predict forecast prediction
pregnant pregnancy
problem issue trouble
quiet silent
relax unwind
rent lease
replace substitute
result outcome
schedule timetable
sex intercourse
slim thin skinny
stay remain
street road
surgery operation
taxi cab
teenager teen adolescent
truck lorry
understand comprehend
useful helpful
useless pointless
shout yell scream
argue argument
behave behavior
belief faith
choice choosing
compare comparison
complain complaint
connect connection
create creation
depressed depression
describe description
destroy destruction
different difference differ
employ employment
exist existence
fail failure
happy happiness
healthy health
imagine imagination
intelligent intelligence
introduce introduction
lonely loneliness
perform performance
popular popularity
produce production
protect protection
react reaction
reduce reduction
sell sale
solve solution
success succeed successful
suggest suggestion
true truth
addicted addiction addict
anxious anxiety
attractive attraction attract
beautiful beauty
bored boredom boring
confident confidence
creative creativity
evolve evolution
immigrate immigration
jealous jealousy
lazy laziness
pollute pollution
poor poverty
procrastinate procrastination procrastinating
religion religious
violent violence
economy economic
politics political
history historical
science scientific
music musical
finance financial
chemistry chemical
biology biological
psychology psychological
philosophy philosophical
emotion emotional
effective efficient
duty responsibility
suitable appropriate
biggest largest
overcome conquer
"""
# A word or two for each phrase, looked for between blanks and in this order; brackets only group. Phrases
# that make a question are in `phrases.py`.
_PHRASES: Final = r"""
remove <- get(ting)? rid of
improve <- (get|getting|become|becoming|be) better(?= (at|in) )
sleep <- (fall|falling|fell) asleep|(get|go|going|getting) to sleep
stop <- (give|giving|gave) up
lose weight <- (reduc(e|ing)|drop(ping)?|shed(ding)?|cut(ting)?) (my |your |body |the )*weight
gain weight <- put(ting)? on weight
earn money <- (make|making|made|earn|earning|generate) money
handle <- (deal|dealing|cope|coping) with
know <- (tell|find out|be sure|figure out|check|see)(?= (if|whether) )
find <- look(ing)? for|search(ing)? for|find(ing)? out|figure out
learn <- (start|begin|get started|started) (learning|to learn|with learning)
register <- sign(ing)? up( for)?
login <- (log|sign)(ging|ing)? (in|into|on)
logout <- (log|sign)(ging|ing)? (out|off)
setup <- set(ting)? up
wifi <- wi fi
phone <- (smart|mobile|cell) phone
phones <- (smart|mobile|cell) phones
website <- web (site|page)
email <- e mail
many <- (a )?(lot|lots|bunch|plenty) of
to <- in order to
and <- as well as
because <- due to|because of|owing to
usa <- united states( of america)?|u\.s(\.a)?|the states
uk <- united kingdom|u\.k|great britain
advantage and disadvantage <- pros? and cons?
advantage <- pros
disadvantage <- cons
 <- (right|as of|just) now|at (the|this) moment|at present|nowadays|these days|currently|presently
 <- of all times?|all time|ever made|ever written|ever|till date|so far
can <- able to|capable of
must <- (have|has|had|need|needs|needed|ought|supposed) to
will <- going to|gonna
want to <- would (like|love) to|wish to|wanna
 <- (have|has|had)(?= (been|ever|already|\w+ed|gone|done|seen|made|become|taken|got|never) )
daily <- day by day|day to day|every day|each day|everyday|on a daily basis
percent <- per cent
like <- such as
 <- (different|various)(?= (kind|type|sort|way|method)s? )
kind <- (kind|type|sort)s? of
first time <- for the first time
\g<best> <- (?P<best>(best|most|top|greatest|\w{3,}est)( \w+)*?) (in|of) (the|this) (whole |entire )?world
c++ <- c plus plus
c# <- c sharp
"""


def _phrases() -> Iterator[tuple[re.Pattern[str], str]]:
    for line in _PHRASES.strip("\n").splitlines():
        word, _, pattern = line.partition(" <- ")
        grouping = re.sub(r"\((?!\?)", "(?:", pattern)
        yield re.compile(rf"(?<= )(?:{grouping})(?= )"), word


def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for line in _GROUPS.strip().splitlines():
        first, *others = line.split()
        target = table.get(stem(first), stem(first))
        for word in (first, *others):
            table.setdefault(word, target)
            table.setdefault(stem(word), target)
    return table


_TABLE: Final = _table()
_PATTERNS: Final = tuple(_phrases())


def shorten(words: str) -> str:
    """Words between single blanks, with one word for each known phrase."""
    for pattern, word in _PATTERNS:
        words = pattern.sub(word, words)
    return words


def meaning(word: str) -> str:
    """The word that stands for this one: its group's, else its stem."""
    root = stem(word)
    return _TABLE.get(word) or _TABLE.get(root) or root
