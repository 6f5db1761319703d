"""Templates that come with model files: the honest ones work, the others end quickly."""

from __future__ import annotations

from datetime import datetime

import jinja2
import pytest

from penstock.text.filters import TemplateRefusalError
from penstock.text.limits import TemplateLimitError
from penstock.text.sandbox import compile_template

DOUBLING = (
    "{% set ns = namespace(x=SEED) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x }}"
)


def doubling(seed: str, step: str) -> str:
    return DOUBLING.replace("SEED", seed).replace("STEP", step)


def render(source: str, **variables: object) -> str:
    return compile_template(source)(**variables)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [1] * 10**9 }}",
        "{{ (1, x) * 10**9 }}",
        "{{ 10 ** 99999 ** 99 }}",
        "{{ '%999999999d' % 5 }}",
        "{{ '%*d' % (999999999, 5) }}",
        "{{ '{:999999999}'.format(5) }}",
        "{{ '{:{}}'.format(5, 999999999) }}",
        "{{ strftime_now('%999999999Y') }}",
        "{{ 'a\n' * 9999 | indent(10**9) }}",
        "{{ 'a' | indent('a' * 9999999 * 9, true) }}",
        "{{ [[1]] | tojson(indent=10**9) }}",
        "{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for i in [1, x] recursive %}{{ loop([i, i]) if loop.depth < 60 }}{% endfor %}",
        "{{ range(99999) | map('replace', '1', 'a' * 9999) | list | length }}",
        "{{ range(99999) | map('string') | map('replace', '1', 'a' * 9999) | join }}",
        "{{ 'a'.join(range(99999) | map('string') | map('replace', '1', 'b' * 99999)) }}",
        "{{ ('a' * 9999999).join(['b', 'c', 'd', x]) }}",
        "{{ ['b', 'c', 'd', x] | join('a' * 9999999) }}",
        "{{ ('a' * 9999999).replace('a', 'b' * 9999999) }}",
        "{{ ('a' * 9999999) | replace('a', 'b' * 9999999) }}",
        "{% set s = 'a' * 100 %}" + "{% for a in s %}" * 4 + "{% endfor %}" * 4,
        "{{ '%(a)999999999d' % {'a': 5} }}",
        "{{ '%(a(b)c)999999999d' % {'a(b)c': 5} }}",
        "{{ 1.5 | round(10**9, 'ceil') }}",
        "{{ ('f' * 4000000) | int(base=16) // ('f' * 2000000) | int(base=16) }}",
        "{{ ('a' * 4000000).rfind('ab' + 'a' * 100000) }}",
        "{{ ('a' * 4000000).rsplit('ab' + 'a' * 100000) }}",
        "{{ ('a' * 4000000).strip('b' * 100000 + 'a') }}",
        "{{ ('é' * 9999999) | tojson(ensure_ascii=true) }}",
        "{% set s = 'ab ' * 4999999 %}{% for i in range(255) %}{% set y = s.title() %}{% endfor %}",
        "{% set s = 'ab' * 7999999 %}{% for i in range(60) %}{{ s.isalpha() }}{% endfor %}",
        "{% set s = 'ab ' * 4999999 %}{% for i in range(255) %}{% set y = s[::-1] %}{% endfor %}",
        (
            "{% set s = 'ab ' * 4999999 %}{% set t = 'ab ' * 4999999 %}"
            "{% for i in range(255) %}{{ s == t }}{{ s < t }}{{ t == s }}{{ 'no' in s }}{% endfor %}"
        ),
        (
            "{% macro f(n) %}{% set s = '😀' * (9999999 + n) %}{{ f(n - 1) if n }}{{ s | length }}"
            "{% endmacro %}{{ f(90) }}"
        ),
        doubling("'ab'", "ns.x + ns.x"),
        doubling("'ab'", "ns.x ~ ns.x"),
        doubling("'ab'", "ns.x * 2"),
        doubling("'ab'", "ns.x | replace('a', ns.x)"),
        doubling("'ab'", "ns.x.replace('a', ns.x)"),
        doubling("'ab'", "'%s%s' % (ns.x, ns.x)"),
        doubling("'ab'", "'{0}{0}'.format(ns.x)"),
        doubling("[1]", "ns.x + ns.x"),
        doubling("[1]", "[ns.x, ns.x]"),
        doubling("[1]", "(ns.x, ns.x)"),
        doubling("[1]", "{'a': ns.x, 'b': ns.x}"),
        doubling("[1]", "dict(a=ns.x, b=ns.x)"),
        doubling("3", "ns.x * ns.x"),
        doubling("'ab'", "ns.x %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y"),
    ],
)
def test_a_greedy_template_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the limits each of these takes days, or all of the memory."""
    monkeypatch.setattr("penstock.text.limits.MAX_SECONDS", 0.2)
    with pytest.raises(TemplateLimitError):
        render(source, x="x")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.re }}",
        "{{ messages.append(1) }}",
        "{{ (5).to_bytes(10**9) }}",
        "{{ 'a'.center(10**9) }}",
        "{{ '{0.__class__.__mro__}'.format(5) }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{% include 'other' %}",
        "{% import 'os' as os %}{{ os.getcwd() }}",
        "{{ lipsum(n=10**9) }}",
        "{{ range(10**9) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_curious_template_gets_nowhere(source: str) -> None:
    with pytest.raises((jinja2.TemplateError, TypeError, OverflowError, RecursionError)):
        render(source, messages=[])


def test_filters_that_make_much_out_of_little_do_not_exist() -> None:
    for name in ("center", "format", "wordwrap", "batch", "slice", "pprint", "xmlattr", "random", "attr"):
        with pytest.raises(jinja2.TemplateError, match=f"No filter named '{name}'"):
            compile_template(f"{{{{ x | {name} }}}}")


def test_an_endless_template_source_is_refused() -> None:
    with pytest.raises(TemplateLimitError, match="characters"):
        compile_template(" " * (1 << 21))


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ messages[0]['role'] + ':' + messages[0].content | trim }}", "user:Hi"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user, assistant"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ {'a': '<é>', 'b': [1, none]} | tojson }}", '{"a": "<é>", "b": [1, null]}'),
        ("{{ 'é😀' | tojson(ensure_ascii=true) }}", '"\\u00e9\\ud83d\\ude00"'),
        ("{{ {'b': 1, 'a': 2} | tojson(indent=1, sort_keys=true, separators=(',', ':')) }}",
         '{\n "a":2,\n "b":1\n}'),
        ("{% set n = namespace(x=1) %}{% for i in [1] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}", "2"),
        ("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "01345678"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}!", "Hello!"),
        ("{% macro m(x, y='b') %}[{{ x ~ y }}]{% endmacro %}{{ m('a') }}{{ m('a', y=1) }}", "[ab][a1]"),
        ("{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}", "a=1"),
        ("{% for k, v in {'b': 1, 'a': 2} | dictsort %}{{ k }}{% endfor %}", "ab"),
        ("{{ 'a-b'.split('-')[1].upper() }}{{ 'x'.join(['1', '2']) }}{{ 'a'.replace('a', 'b') }}", "B1x2b"),
        ("{{ '%s is %.1f' % ('pi', 3.14159) }} {{ '{:>4}'.format(7) }}", "pi is 3.1    7"),
        ("{{ 'a\nb' | indent(2) }}|{{ 'a\nb\n' | indent(2, first=true) }}", "a\n  b|  a\n  b\n"),
        ("{{ (2 ** 10) * 3 % 7 + 1 }}{{ 7 // 2 }}{{ [1] + [2] }}{{ [1, 2] | sum }}", "73[1, 2]3"),
        ("{{ messages[1:] | length }}{{ messages[-1].content[::-1] }}", "1olleH"),
        ("{%- if tools is defined and tools %}t{% else %}none{% endif -%}  \n", "none"),
        ("{{ missing }}{{ missing | default('d') }}{{ none is none }}", "dTrue"),
        ("{{ 'ab' | replace('a', 'x') | capitalize }}{{ 'abc' in ['abc', missing] }}", "XbTrue"),
        ("{% filter upper %}a{{ messages[0].role }}{% endfilter %}", "AUSER"),
        ("{% call(x) f() %}<{{ x }}>{% endcall %}", "<1>"),
    ],
)  # fmt: skip
def test_what_real_templates_use_works(source: str, text: str) -> None:
    messages = [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "Hello"}]
    if source.startswith("{% call"):
        source = "{% macro f() %}{{ caller(1) }}{% endmacro %}" + source
    assert render(source, messages=messages) == text


def test_long_conversations_are_looked_through_as_often_as_templates_do() -> None:
    source = (
        "{% for m in messages %}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}"
        "{% elif m.content == m.other %}same{% else %}{{ m.content.strip() }}{% endif %}{% endfor %}"
    )
    messages = [{"content": "word " * 20_000, "other": f"{n}"} for n in range(100)]
    assert len(render(source, messages=messages)) == 100 * (5 * 20_000 - 1)


def test_blocks_leave_no_lines_behind() -> None:
    assert render("  {% if true %}\nyes\n  {% endif %}\n") == "yes\n"


def test_dates_can_be_written() -> None:
    assert render("{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_a_template_can_refuse_in_its_own_words() -> None:
    with pytest.raises(TemplateRefusalError, match=r"^no$"):
        render("{{ raise_exception('no') }}")


def test_one_rendering_does_not_use_up_the_time_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.text.limits.MAX_SECONDS", 0.2)
    run = compile_template("{% for i in range(n) %}{% for j in range(n) %}{% endfor %}{% endfor %}done")
    with pytest.raises(TemplateLimitError):
        run(n=99999)
    assert run(n=2) == "done"
