"""The little words of English, by what they do in a question. All lists here are written by hand."""

from __future__ import annotations

from typing import Final


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Without meaning of their own in a question: left out of what is compared.
EMPTY: Final = words(
    """a an the of in on at for to with about as that which it its there so also too just really
    actually very quite exactly basically simply literally truly honestly etc own some any such then
    itself among regarding concerning usually generally typically well oh ok okay properly correctly
    successfully effectively completely totally absolutely fully definitely certainly possibly located
    situated become becoming becomes thing things way ways using is are be been being am was were s do
    does did doing done will would can could should shall may might and or vs versus , . ? ! :"""
)
# Persons a question may be about, besides others: who asks, and who is asked. Compared by themselves.
SELF: Final = words("i me my mine we us our ours")
YOU: Final = words("you your yours u ur")
ONESELF: Final = words("myself yourself oneself ourselves yourselves themselves")
# Beside these an auxiliary only asks for advice: "what should I", "which one can you".
ANYBODY: Final = words("i you we one to")
PREPOSITIONS: Final = words("in on at for with about as")
# Auxiliaries that change what is asked.
PAST: Final = words("did was were had")
PRESENT: Final = words("is are am do does")
MODALS: Final = {
    "will": "will", "shall": "will", "would": "will", "should": "should", "must": "should", "may": "may",
    "might": "may", "can": "can", "could": "can",
}  # fmt: skip
NEGATIONS: Final = words("not no never none nobody nothing neither nor without cannot nowhere hardly")
# What a single word may not differ by, however alike two texts are.
WEIGHTY: Final = words(
    """all every each both most many few only more less least half first last next previous before after
    above below over under up down off out during until since still already again against between this
    always sometimes than who where why how alone together around near in on at for with about as do
    oneself me you"""
)
# Nor by these, however many words were changed: persons, and classes whose members exclude each other.
STRICT: Final = words(
    """he she him her his hers they them their boy girl man woman male female men women oneself still
    already again free red black white blue green yellow brown pink purple orange gray blonde golden
    silver monday tuesday wednesday thursday friday saturday sunday january february april june july
    august september october november december spring summer autumn winter north south east west left
    right"""
)
SUPERLATIVES: Final = words("most least best worst")  # and all in -est but for these
NO_SUPERLATIVES: Final = words(
    """interest request forest protest contest harvest honest modest digest suggest manifest everest
    conquest invest arrest tempest"""
)
# Joins whose two sides may change places.
SYMMETRIC: Final = words("and or vs versus ,")
# Where a part of a sentence begins that may also stand elsewhere in it.
BOUNDARIES: Final = words(
    "in on at for with about of from to into by as during using through when if while , ."
)
# "convert X to Y" is not "convert Y to X"; the value says whether the right side is where things go.
DIRECTIONS: Final = {"to": True, "into": True, "onto": True, "towards": True, "than": True, "over": True,
                     "against": True, "of": True, "from": False, "in": True, "on": True, "for": True,
                     "with": True, "as": True, "at": True, "about": True}  # fmt: skip
# Words about words: what they are said of is meant as it is spelt, so nothing is folded into anything.
MENTIONS: Final = words(
    """mean means meaning meanings meant define definition definitions synonym synonyms antonym antonyms
    opposite spell spelled spelt spelling pronounce pronounced pronunciation word words phrase phrases
    sentence sentences rhyme rhymes plural abbreviation acronym translate translated translation say
    grammar idiom slang etymology verb noun adjective pronoun typo regex anagram palindrome rewrite
    rephrase paraphrase proofread correct"""
)
# English beyond doubt: without one of them in a text these rules are not used on it.
ENGLISH: Final = words(
    """the is are what how why where who which does of my your and with for can should would about from
    did was were have has this that these i you it there be when do a to"""
)
# Common words of other languages: with two of them in a text these rules are not used on it.
FOREIGN: Final = words(
    """der das und ist nicht ein eine ich wie wo warum für mit el los las que por como para una es en le
    les des est une pas je vous il di che non sono qual onde um uma não het een van hoe wat waarom kya
    hai ka ki ke hota kaise aur nahi jest nie jak czy och att det som är del lo se su la de"""
)


def _sides(text: str) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    lines = (line.partition("|") for line in text.strip().splitlines())
    return tuple((words(left), words(right)) for left, _, right in lines)


# Two questions may never differ by these: a word of the left in one, a word of the right in the other.
OPPOSITES: Final = _sides(
    """
    login | logout
    enable activate | disable deactivate
    increase gain grow improve bigger larger enlarge | decrease reduce lose shrink lower worsen smaller
    free | paid
    more | less fewer
    buy purchase | sell
    best good better | worst bad worse
    before | after
    start begin | stop end finish quit
    open | close shut
    add insert attach put | remove delete detach
    install | uninstall
    lock | unlock
    block | unblock
    follow | unfollow
    subscribe | unsubscribe
    encrypt | decrypt
    encode | decode
    compress | decompress
    mount | unmount
    connect | disconnect
    import | export
    upload | download
    push | pull
    send | receive
    give | take
    lend | borrow
    win | lose
    remove treat cure fix | avoid prevent
    pass | fail
    accept approve | reject decline refuse deny
    allow permit | deny ban forbid prohibit
    love like | hate dislike
    first | last
    old | new young
    male man boy men | female woman girl women
    husband boyfriend | wife girlfriend
    father dad son | mother mom daughter
    brother | sister
    high higher highest | low lower lowest
    hot | cold
    maximum max most | minimum min least
    up | down
    upgrade | downgrade
    left | right
    inside | outside
    on | off
    in | out
    with | without
    above over | below under
    rich | poor
    cheap cheaper cheapest | expensive costly
    legal | illegal
    safe | unsafe dangerous
    possible | impossible
    true | false
    public | private
    always | never
    all | none
    married | single divorced
    alive | dead
    attack | defend
    advantage benefit | disadvantage drawback
    tall taller tallest long longer longest | short shorter shortest
    fast faster fastest | slow slower slowest
    hire | fire
    show | hide
    can | cannot
    positive | negative
    right correct | wrong incorrect
    modern | ancient
    local | remote
    internal | external
    professional | amateur
    adult | child kid
    senior | junior
    raw | cooked
    indoor indoors | outdoor outdoors
    online | offline
    real | fake
    natural | artificial
    direct | indirect
    active | passive
    formal | informal
    early | late
    permanent | temporary
    domestic | international
    national | international
    introvert | extrovert
    same | different
    easy | difficult hard
    strong | weak
    major | minor
    cause | effect
    question | answer
    parent | child
    employer | employee
    teacher | student
    acid | base
    input | output
    client | server
    north | south
    east | west
    day | night
    summer | winter
    morning | evening
    asset | liability
    """
)
# Words of such a pair narrow what is asked, so one of them cannot simply be added; a wish for the good can.
CONTRASTS: Final = frozenset(word for sides in OPPOSITES for side in sides for word in side) - words(
    "best good better start begin question answer cause effect teacher student like love fast improve buy"
)
