"""Which questions the verifier takes for the same. All sentences are written for these tests."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.gateway.cache.verify import MAX_CHARACTERS, accept
from penstock.gateway.cache.verify.numbers import joined, number
from penstock.gateway.cache.verify.reading import read
from penstock.gateway.cache.verify.stems import stem
from penstock.gateway.cache.verify.synonyms import meaning

NEAR = 0.97  # a similarity at which a threshold alone would have accepted


def refused(a: str, b: str, similarity: float = NEAR) -> tuple[str, ...]:
    first, second = accept(a, b, similarity), accept(b, a, similarity)
    assert not first.accept, (a, b)
    assert not second.accept, (b, a)
    return first.reasons


def accepted(a: str, b: str, similarity: float = 0.85) -> None:
    assert accept(a, b, similarity).accept, (a, b, accept(a, b, similarity).reasons)
    assert accept(b, a, similarity).accept, (b, a, accept(b, a, similarity).reasons)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How do I reset my password?", "What is the best way to reset my password?"),
        ("How do I reset my password?", "how can you reset your password"),
        ("How do I reset my password?", "Please tell me how to reset my password."),
        ("How do I reset my password?", "Can you explain how one can reset a password?"),
        ("What is photosynthesis?", "Could you explain photosynthesis?"),
        ("What is the price of a tram ticket?", "How much does a tram ticket cost?"),
        ("How much does a nurse earn?", "What is the salary of a nurse?"),
        ("What is the difference between a crow and a raven?", "How is a raven different from a crow?"),
        ("Why do leaves fall?", "What is the reason why leaves fall?"),
        ("What are the best novels about Rome?", "Which novels about Rome are best?"),
        ("How do I sort a list in Python?", "In Python, how do I sort a list?"),
        ("How can I buy a used bike?", "How do I purchase a used bicycle?"),
        ("What colour is a ripe fig?", "What color is a ripe fig?"),
        ("How do I get rid of ants?", "How can I remove ants?"),
        ("What's the capital of Peru?", "What is the capital of Peru?"),
        ("Why don't penguins fly?", "Why do penguins not fly?"),
        ("Is it possible to freeze cheese?", "Can you freeze cheese?"),
        ("How do I lose 5 kg in two weeks?", "How can I lose five kilograms in 2 weeks?"),
        ("What did World War II cost?", "What did World War 2 cost?"),
        ("Who sells a phone for $200?", "Who sells a phone for 200 dollars?"),
        ("What is the fastest way to learn Welsh?", "How do I learn Welsh quickly?"),
        ("How do I organise a birthday party?", "How do I organize birthday parties?"),
        ("What is the smartphone market?", "What is the smart phone market?"),
    ],
)
def test_the_same_question_in_other_words_is_accepted(a: str, b: str) -> None:
    accepted(a, b)


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ("What dose is right for a 20 kg child?", "What dose is right for a 40 kg child?", "numbers"),
        ("How do I enable 2FA?", "How do I disable 2FA?", "opposites"),
        ("How do I lose 5 kg in 10 days?", "How do I lose 10 kg in 5 days?", "order"),
        ("What are the rules of the first round?", "What are the rules of the second round?", "numbers"),
        ("What is new in Python 3.11?", "What is new in Python 3.12?", "numbers"),
        ("What is a 5% tax on bread?", "What is a 5 dollar tax on bread?", "words"),
        ("Is aspirin safe for cats?", "Is aspirin not safe for cats?", "negated"),
        ("How do I cook rice with milk?", "How do I cook rice without milk?", "negated"),
        ("Should I eat before the gym?", "Should I eat after the gym?", "opposites"),
        ("How do I buy shares?", "How do I sell shares?", "opposites"),
        ("Can I take it to court?", "Can't I take it to court?", "negated"),
        ("What is the best hotel in Bonn?", "What is the worst hotel in Bonn?", "opposites"),
        ("How do I turn on dark mode?", "How do I turn off dark mode?", "opposites"),
        ("How do I log in to the portal?", "How do I log out of the portal?", "words"),
        ("What is the capital of Austria?", "What is the capital of Australia?", "names"),
        ("Who directs IT at Acme?", "Who directs HR at Acme?", "names"),
        ("What is the minimum wage in the US?", "What is the minimum wage?", "names"),
        ("How do I convert PDF to Word?", "How do I convert Word to PDF?", "direction"),
        ("How do I migrate from MySQL to Postgres?", "How do I migrate from Postgres to MySQL?", "direction"),
        ("Do dogs chase cats?", "Do cats chase dogs?", "order"),
        ("Is Java faster than Go?", "Is Go faster than Java?", "order"),
        ("Where are crabs caught?", "When are crabs caught?", "different questions"),
        ("How many bees live in a hive?", "How do bees live in a hive?", "different questions"),
        ("Can I grow rice?", "How can I grow rice?", "different questions"),
        ("Who won the cup?", "Who will win the cup?", "times or moods"),
        ("Does my cat like you?", "Does your cat like me?", "one is about"),
        ("What is the cheapest plan with roaming?", "What is the largest plan with roaming?", "superlatives"),
        ("What are the novels with the best ends?", "What are the best novels with ends?", "'best'"),
        ("What is a synonym of quick?", "What is a synonym of fast?", "words"),
        ('What does "sick" mean?', 'What does "ill" mean?', "quoted"),
        ("Is nitrate bad for babies?", "Is nitrite bad for babies?", "words"),
        (
            "What is the difference between oil and wax?",
            "What is the difference between oil, wax and fat?",
            "",
        ),
        ("How do I protect myself?", "How do I protect?", "words"),
        ("What is in catnip?", "What is catnip?", "words"),
        ("What are ferns?", "What are ferns used for?", "different questions"),
        ("How do I dye brown hair red for a party?", "How do I color gray hair red for a party?", "words"),
        ("What is this exam for?", "What is this exam?", "words"),
        ("Can a boy love a girl who left him?", "Can a girl love a boy who left her?", ""),
        ("How do I earn money without a job?", "How do I earn money without a degree?", "words"),
    ],
)
def test_questions_that_differ_in_what_embeddings_do_not_see_are_refused(a: str, b: str, reason: str) -> None:
    assert any(reason in each for each in refused(a, b)), accept(a, b, NEAR).reasons


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What is 12 - 4?", "What is 12 + 4?"),
        ("What is 12 / 4?", "What is 12 * 4?"),
        ("What is 3 - 5?", "What is 5 - 3?"),
        ("What is 3 minus 5?", "What is 5 minus 3?"),
        ("What is A - B?", "What is A + B?"),
        ("What is 6/3?", "What is 6 3?"),
        ("What is 5!?", "What is 5?"),
        ("What is -7 squared?", "What is 7 squared?"),
        ("What is 5 feet in meters?", "What is 5 meters in feet?"),
        ("How much is 7 miles in kilometers?", "How much is 7 kilometers in miles?"),
        ("What is 30 degrees celsius in fahrenheit?", "What is 30 degrees fahrenheit in celsius?"),
        ("How do I get from A to B?", "How do I get from B to A?"),
        ("How do I get from a to b?", "How do I get from b to a?"),
        ("How do I fly from New York to Los Angeles?", "How do I fly from Los Angeles to New York?"),
        ("What is the effect of smoking on cancer?", "What is the effect of cancer on smoking?"),
        ("How do I replace butter with oil?", "How do I replace oil with butter?"),
        ("Can I take aspirin and warfarin?", "Can I take aspirin or warfarin?"),
        ("Can I take aspirin and warfarin?", "Can I take warfarin or aspirin?"),
        ("Is it exactly five?", "Is it about five?"),
        ("Is it at least 5 km?", "Is it at most 5 km?"),
        ("Is it over 5 km?", "Is it under 5 km?"),
        ("How many Mb is a file?", "How many MB is a file?"),
        ("How many mW per hour?", "How many MW per hour?"),
        ("What is a mg of salt?", "What is a Mg of salt?"),
        ("How long is 5m?", "How long is 5M?"),
        ("What is us policy?", "What is US policy?"),
        ("What is AIDS?", "What is aids?"),
        ("What is grade A?", "What is a grade?"),
        ("What is Apple?", "What is an apple?"),
        ("Where is Turkey?", "Where is turkey?"),
        ("What is a .NET developer?", "What is a net developer?"),
        ("Who directed Alien?", "Who directed Aliens?"),
    ],
)
def test_signs_units_capitals_bounds_and_directions_make_another_question(a: str, b: str) -> None:
    refused(a, b, 1.0)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What is the capital of India?", "what is the capital of india"),
        ("What is NASA?", "what is nasa"),
        ("What is an SSD?", "what is an ssd"),
        ("What does a 20-year-old earn?", "What does a 20 year old earn?"),
        ("How do I treat COVID-19?", "How do I treat COVID 19?"),
        ("What is plan A?", "what is plan a?"),
        ("Which is better, oak and pine?", "Which is better, oak or pine?"),
        ("What is 3-5?", "what's 3 - 5"),
        ("HOW DO I USE IT?", "How do I use it?"),
        ("How Do I Bake A Cake?", "How do I bake a cake?"),
    ],
)
def test_hyphens_careless_capitals_and_spacing_make_none(a: str, b: str) -> None:
    accepted(a, b, 0.98)


def test_two_sides_that_are_the_same_may_change_places() -> None:
    accepted(
        "What is the difference between tea and coffee?", "What is the difference between coffee and tea?"
    )
    accepted("Which is better, oak or pine?", "Which is better, pine or oak?")


def test_one_word_more_is_accepted_only_where_the_vectors_hardly_differ() -> None:
    pair = ("How can I manage my time?", "How can I skilfully manage my time?")
    accepted(*pair, similarity=0.98)
    refused(*pair, similarity=0.93)


def test_one_word_among_many_needs_a_greater_likeness() -> None:
    short = ("How do I soothe a baby?", "How do I calm a baby?")
    long = (
        f"{short[0][:-1]} that cries on a long night train home?",
        f"{short[1][:-1]} that cries on a long night train home?",
    )
    accepted(*short, similarity=0.95)
    refused(*long, similarity=0.95)
    accepted(*long, similarity=0.99)


def test_several_changed_words_are_accepted_where_the_vectors_agree_all_the_same() -> None:
    pair = ("How do I make my hair grow faster?", "How can I speed up hair growth?")
    accepted(*pair, similarity=0.92)
    refused(*pair, similarity=0.79)


def test_synonyms_alone_do_not_make_another_kind_of_question_the_same() -> None:
    refused("Why do kids buy cars?", "How do children purchase automobiles?", 0.99)


@pytest.mark.parametrize("similarity", [0.99, 1.0])
def test_no_likeness_makes_up_for_a_number_a_name_or_a_negation(similarity: float) -> None:
    refused("Is 5 mg of it safe for me?", "Is 50 mg of it safe for me?", similarity)
    refused("Who runs the school in Ulm?", "Who runs the school in Bonn?", similarity)
    refused("Why does it rust?", "Why does it not rust?", similarity)


def test_what_is_the_same_but_for_case_and_marks_needs_no_likeness() -> None:
    assert accept("Wie spät ist es?", "wie  spät ist es", 0.0).accept


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Wie setze ich mein Passwort zurück?", "Wie ändere ich mein Passwort?"),
        ("¿Cómo cambio mi contraseña?", "¿Cómo cambio la contraseña?"),
        ("如何重置密码?", "如何修改密码?"),
        ("Comment changer le mot de passe ?", "Comment changer mon mot de passe ?"),
        ("como resetar a senha", "como resetar senha"),
    ],
)
def test_in_other_languages_only_the_same_text_is_accepted(a: str, b: str) -> None:
    refused(a, b, 0.999)
    accepted(a, a.upper())


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("What does print(x) do?", "What does print(X) do?"),
        ("Solve x = 3 for me", "solve X = 3 for me"),
        ("How do I call get_user?", "How do I call get_User?"),
        ("What is at https://a.example/x?", "What is at https://a.example/X?"),
    ],
)
def test_in_code_and_addresses_every_letter_counts(a: str, b: str) -> None:
    refused(a, b, 1.0)
    assert accept(a, f" {a}\n", 1.0).accept


def test_long_texts_are_refused_unread_unless_they_are_the_same() -> None:
    text = "How do I fix this log? " + "error in line 5, " * 12_000
    decision = accept(text, f"{text}!", 1.0)
    assert not decision.accept
    assert "long" in decision.reasons[0], decision.reasons  # and nothing else was looked at
    assert accept(text, str(text), 0.0).accept
    assert not accept("a" * (MAX_CHARACTERS + 1), "A" * (MAX_CHARACTERS + 1), 1.0).accept


def test_nothing_but_empty_words_is_nothing_to_compare() -> None:
    refused("What is it?", "Is it?", 1.0)
    assert not accept("", "?!", float("nan")).accept or accept("", "?!", 1.0).accept


@pytest.mark.parametrize("similarity", [0.5, float("nan")])
def test_texts_that_are_not_near_are_refused_whatever_their_words(similarity: float) -> None:
    refused("How do I reset my password?", "How can I reset my password?", similarity)


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=60)
def test_any_two_texts_are_judged_alike_in_both_directions(a: str, b: str) -> None:
    assert accept(a, b, NEAR).accept == accept(b, a, NEAR).accept
    assert accept(a, a, NEAR).accept


@pytest.mark.parametrize(
    ("forms", "one"),
    [
        (("make", "makes", "making", "made"), True),
        (("try", "tries", "trying", "tried"), True),
        (("organise", "organize", "organising", "organized"), True),
        (("travel", "travelling", "traveled"), True),
        (("run", "running", "ran"), True),
        (("news", "new"), False),
        (("king", "k"), False),
        (("speed", "spe"), False),
        (("desert", "dessert"), False),
        (("organ", "organize"), False),
    ],
)
def test_the_forms_of_a_word_have_one_stem_and_other_words_another(forms: tuple[str, ...], one: bool) -> None:
    assert (len({stem(form) for form in forms}) == 1) is one


def test_synonyms_have_one_meaning_in_all_their_forms() -> None:
    assert meaning("purchased") == meaning("buying") == meaning("bought")
    assert meaning("buy") != meaning("sell")


@pytest.mark.parametrize(
    ("word", "value"),
    [("20", "#20"), ("1,000", "#1000"), ("2.50", "#2.5"), ("seven", "#7"), ("3rd", "#3."), ("third", "#3."),
     ("15k", "#15000"), ("3.11.2", None), ("many", None)],
)  # fmt: skip
def test_numbers_are_read_from_digits_and_words(word: str, value: str | None) -> None:
    assert number(word) == value


def test_two_words_may_make_one_number() -> None:
    assert joined("twenty", "five") == "#25"
    assert joined("2.5", "million") == "#2500000"
    assert joined("20", "5") is None


def test_a_reading_says_what_was_asked_and_of_what() -> None:
    reading = read("Please tell me, how do I send 5 euros to Anna?")
    assert reading.kinds == {"HOWTO"}
    assert reading.numbers == ["#5"]
    assert reading.content == ["send", "#5", "euro", "anna"]
    assert reading.names == {"anna"}
    assert ("euro", "anna") in reading.directions
