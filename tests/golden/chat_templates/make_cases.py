#!/usr/bin/env python3
"""Writes cases.json: chat templates, messages, and the text that Jinja itself makes of them.

Needs jinja2 (3.1). The environment is the one that Hugging Face transformers sets up for chat templates.
"""
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %} … {% endgeneration %}: here it only prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    for name in ("lipsum", "cycler", "joiner"):
        del made.globals[name]
    return made


SHORT = [{"role": "user", "content": "Hello!"}]
TALK = [
    {"role": "system", "content": "  Be brief.\n"},
    {"role": "user", "content": "Héllo, wörld 你好 🙂"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi."},
    {"role": "user", "content": " And 'now' \"this\"?\\ \t"},
]
ENDS = TALK + [{"role": "assistant", "content": "Yes. "}]
TOOLS = [
    {"role": "user", "content": "What is 2+2?"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2.5, "c": [True, None, "é\n"], "d": {}, "e": []}}}]},
    {"role": "tool", "name": "add", "content": "4"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is "}, {"type": "image"}, {"type": "text", "text": "4."}]},
]

# In the manner of the families that Lockstep trains; written for these tests.
FAMILIES = {
    "inst": "{%- if messages[0]['role'] == 'system' %}\n    {%- set told = messages[0]['content'] | trim %}\n"
            "    {%- set rest = messages[1:] %}\n{%- else %}\n    {%- set told = none %}\n    {%- set rest = messages %}\n{%- endif %}\n"
            "{{- bos_token }}\n{%- for m in rest %}\n    {%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
            "        {{- raise_exception('roles must take turns') }}\n    {%- endif %}\n"
            "    {%- if m['role'] == 'user' %}\n        {%- if loop.last and told is not none %}\n"
            "            {{- '[INST] ' + told + '\\n\\n' + m['content'].strip() + ' [/INST]' }}\n        {%- else %}\n"
            "            {{- '[INST] ' ~ m['content'].strip() ~ ' [/INST]' }}\n        {%- endif %}\n"
            "    {%- else %}\n        {{- ' ' + m['content'] | trim + eos_token }}\n    {%- endif %}\n{%- endfor %}\n",
    "headers": "{%- set ns = namespace(first=true, count=0) -%}\n{{ bos_token }}\n"
               "{%- if not date_string is defined %}{%- if strftime_now is defined %}{% set date_string = strftime_now('%d') %}{% else %}"
               "{%- set date_string = '26 Jul 2024' %}{% endif %}{%- endif %}\n"
               "{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set messages = messages[1:] %}"
               "{%- else %}{% set system = '' %}{% endif %}\n"
               "{{- '<|start|>system<|end|>\\n\\nToday: ' + date_string + '\\n' + system + '<|eot|>' }}\n"
               "{%- for m in messages %}\n{%- set ns.count = ns.count + 1 %}\n"
               "{{- '<|start|>' + m.role + '<|end|>\\n\\n' }}\n"
               "{%- if m.content is string %}{{ m.content | trim }}{% elif m.content is iterable and m.content is not mapping and m.content is not none %}"
               "{%- for part in m.content if part.type == 'text' %}{{ part['text'] }}{% endfor %}{% endif %}\n"
               "{%- if m.tool_calls %}{% for call in m.tool_calls %}{{ call.function.arguments | tojson }}{% endfor %}{% endif %}"
               "{{- '<|eot|>' }}\n{%- endfor %}\n{%- if add_generation_prompt %}{{ '<|start|>assistant<|end|>\\n\\n' }}{% endif %}\n{{- ns.count }}",
    "im": "{%- for m in messages %}\n    {%- if loop.first and m.role != 'system' %}\n"
          "        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}\n    {%- endif %}\n"
          "    {%- set text = m.content %}\n    {%- if m.role == 'assistant' and m.content is string and '</think>' in m.content %}\n"
          "        {%- set text = m.content.split('</think>')[-1].lstrip('\\n') %}\n    {%- endif %}\n"
          "    {%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}{% generation %}{{ text }}<|im_end|>{% endgeneration %}{{ '\\n' }}\n"
          "    {%- else %}{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>' + '\\n' }}\n    {%- endif %}\n{%- endfor %}\n"
          "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "macro": "{% macro line(role, text, end='</s>') -%}\n<|{{ role }}|>\n{{ text }}{{ end }}\n{% endmacro -%}\n"
             "{% for m in messages %}{{ line(m.role, m.content) }}{% endfor %}{% if add_generation_prompt %}{{ line('assistant', '', end='') }}{% endif %}",
    "backwards": "{%- set ns = namespace(last=-1) %}\n{%- for m in messages[::-1] %}\n{%- if ns.last < 0 and m.role == 'user' %}"
                 "{%- set ns.last = messages|length - 1 - loop.index0 %}{%- endif %}\n{%- endfor %}\n{{ ns.last }}: {{ messages[ns.last].content }}",
}

# What the parts mean, each alone.
PARTS = r"""
{{ 1 + 2 * 3 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 6 / 3 }}
{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e5 if false else 10.0 ** 20 }} {{ 1 / 3 }} {{ 0.00001 * 1 }} {{ 100000.0 * 100000.0 }}
{{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 3 }} {{ 2 * 'xy' }} {{ [1] + [2, 'x'] }} {{ -1|abs }} {{ -3.5|abs }} {{ - 2 ** 2 }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == none }} {{ [1, 2] == [1, 2] }}
{{ not true }} {{ not not 'x' }} {{ true and 'x' }} {{ '' or 'y' }} {{ 0 and missing.field }} {{ 'a' if true }} [{{ 'a' if false }}]
{{ 'a' if false else 'b' if false else 'c' }} {{ ('a' if true else 'b') ~ 'c' }}
{{ 'el' in 'hello' }} {{ 'x' not in 'hello' }} {{ 2 in [1, 2] }} {{ 'k' in {'k': 1} }} {{ 'q' in missing }}
{{ 'hello'[1] }} {{ 'hello'[-1] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ 'hello'[:-1] }} {{ [1,2,3,4][1::2] }} {{ 'héllo你'[-1:] }} [{{ 'abc'[9:] }}]
{{ [1,2,3][-2:] }} {{ [1,2,3][:2] }} {{ [1,2,3][5] }} {{ [1,2,3][::-2] }} {{ 'abc'[9] }}|
{{ {'a': 1, 'b': [1, 'x', none, true, 1.5]} }} {{ ["it's", 'say "x"', 'a\\b', 'tab\t', 'é'] }} {{ {} }} {{ [] }} {{ {'a': {'b': 2}}.a.b }}
{{ {'a': 1}['a'] }} [{{ {'a': 1}['b'] }}] [{{ {'a': 1}.b }}] {{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 7) }}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %} {% for k in {'a': 1} %}{{ k }}{% endfor %} {{ {'a': 1}.keys()|list }} {{ {'a': 5}.values()|list }}
{% for k, v in {'a': 1}|items %}{{ k }}{{ v }}{% endfor %} {% for k, v in {'b': 1, 'A': 2}|dictsort %}{{ k }}{{ v }}{% endfor %}
{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in [] %}no{% else %}empty{% endfor %} {% for x in [1,2,3,4] if x % 2 == 0 %}{{ loop.index }}:{{ x }} {% else %}none{% endfor %} {% for x in [1,3] if x % 2 == 0 %}{{ x }}{% else %}none{% endfor %}
{% for x in 'ab' %}{{ x }}-{% endfor %} {% for x in missing %}x{% endfor %} {% for x in range(3) %}{{ x }}{% endfor %} {% for x in range(5, 0, -2) %}{{ x }}{% endfor %} {{ range(2, 4)|list }}
{% for a in [1,2] %}{% for b in 'xy' %}{{ a }}{{ b }}{{ loop.index }} {% endfor %}{{ loop.index }}{% endfor %}
{% for x in [1,2,3,4] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }} {% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set n = namespace(a=1, b='q') %}{% for i in [1,2] %}{% set n.a = n.a + i %}{% endfor %}{{ n.a }}{{ n.b }}[{{ n.c }}]
{% set t %}block {{ 1 + 1 }}{% endset %}[{{ t }}] {% set t = 'x', 'y' %}{{ t[1] }}
{% macro m(a, b=2, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m(a=7, b=8, c=9) }} {{ m(1)|upper }} {{ m() }}
{% set g = 'global' %}{% macro f() %}{{ g }}{{ l }}{% endmacro %}{% for l in [1] %}{{ f() }}{% endfor %}
{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(4) }}
{{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ '  a b '.strip() }}| {{ '\n\na'.lstrip('\n') }} {{ 'a--'.rstrip('-') }} {{ 'abcba'.strip('ab') }} {{ '\u00a0\u3000x\u2003'.strip() }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b\tc '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b  c '.split(none, 1) }} {{ ''.split(',') }} {{ ''.split() }} {{ 'a\nb\r\nc\n'.splitlines() }}
{{ 'Hello'.startswith('He') }} {{ 'Hello'.endswith('He') }} {{ 'hello wORLD'.upper() }} {{ 'HeLLo'.lower() }} {{ 'hello wORLD'.capitalize() }} {{ "they're bill's".title() }} {{ "they're o-k (yes) [no]"|title }}
{{ 'a-b-c'.replace('-', '+') }} {{ 'a-b-c'|replace('-', '') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'aaa'.replace('a', 'b', 1) }} {{ 'héllo'.find('l') }} {{ 'x'.find('y') }} {{ 'banana'.count('an') }} {{ ', '.join(['a', 'b']) }}
{{ [1,2,3]|length }} {{ 'héllo'|length }} {{ {'a': 1}|count }} {{ missing|length }} {{ [1,2]|first }} {{ [1,2]|last }} {{ 'abc'|first }} {{ [3,1,2]|max }} {{ [3,1,2]|min }} {{ [1,2,3.5]|sum }}
{{ ['a', 1, none]|join }} {{ ['a', 'b']|join(', ') }} {{ [{'x': 1}, {'x': 2}]|join('+', attribute='x') }} {{ [3,1]|reverse|list }} {{ 'abc'|reverse }} {{ 'abc'|list }} {{ ['a','A','b']|unique|list }}
{{ missing|default('d') }} {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ none|default('d') }} {{ none|d('d', boolean=true) }} {{ 5|default('d') }}
{{ '12'|int + 1 }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ '3.7'|int }} {{ 2.9|int }} {{ '1.5'|float }} {{ 3|float }} {{ 5|string + 'x' }} {{ true|int }} {{ ' 4 '|int }}
{{ [1,2,3,4]|select('odd')|list }} {{ [1,2,3,4]|reject('divisibleby', 2)|list }} {{ ['a', '', 'b']|select|list }} {{ [{'r': 'u', 'c': 1}, {'r': 'a', 'c': 2}]|selectattr('r', 'equalto', 'a')|list }} {{ [{'r': 1}, {}]|selectattr('r')|list }} {{ [{'r': 1}, {}]|rejectattr('r', 'defined')|list }}
{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|list }} {{ ['a', 'b']|map('upper')|list }} {{ [{'a': {'b': 3}}]|map(attribute='a.b')|join }} {{ [{}]|map(attribute='a', default='q')|list }} {{ ['x']|map('replace', 'x', 'y')|list }}
{{ 'a\nb\n\nc'|indent }}| {{ 'a\nb'|indent(2) }}| {{ 'a\nb'|indent(2, true) }}| {{ 'a\n\nb'|indent(width=1, blank=true) }}|
{{ {'a': [1, 'é"\\\n', none, true, 1.5, {}, []], 'b': {'c': 1e3 if false else 2.0}}|tojson }} {{ 'x'|tojson }} {{ none|tojson }} {{ [1, 2]|tojson(indent=2) }} {{ {'a': {'b': []}}|tojson(indent=4) }}
{{ 1 is odd }} {{ 2 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'x' is string }} {{ 1 is string }} {{ 1 is number }} {{ 1.5 is float }} {{ true is boolean }} {{ true is integer }} {{ none is none }} {{ missing is none }} {{ missing is defined }} {{ missing is undefined }}
{{ {} is mapping }} {{ [] is mapping }} {{ [] is iterable }} {{ 'x' is iterable }} {{ 1 is iterable }} {{ [] is sequence }} {{ 1 is eq 1 }} {{ 1 is ne(2) }} {{ 1 is equalto 1 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 is in [1] }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ 1 is not string }} {{ not 1 is string }}
{{ missing }}| {{ messages[9] }}| {{ messages[0].nothing }}| {{ messages[0]['nothing'] is defined }} {{ (messages[0].nothing or 'x') }} {{ missing is defined and missing.x }}
{{ dict(a=1, b='x') }} {{ dict(a=1).a }} {{ 'a' 'b' "c" }} {{ 'tab\there \x41 \u00e9 \\ \'' }} {{ "it's" }} {{ (1,)[0] }} {{ ()|length }} {{ (1, 2)[1] }}
{{ [1, 2,]|length }} {{ {'a': 1,}.a }} {{ [[1, 2], [3, 4]][1][0] }} {{ messages|map(attribute='role')|join(',') }} {{ messages|selectattr('role', 'eq', 'user')|list|length }}
{% if 0 %}a{% elif '' %}b{% elif [] %}c{% elif {} %}d{% elif none %}e{% elif 0.0 %}f{% else %}g{% endif %} {% if missing %}x{% else %}y{% endif %}
  {% if true %}
    kept
  {% endif %}
end
a  {%- if true -%}  b  {%- endif -%}  c   {{- ' d ' -}}   e {# comment #} f
  {# a comment alone on its line #}
after
x {% if true +%}
y{% endif %}
   {%+ if true %}z{% endif %}
{{ 'a' }}
{{ 'b' }}   
	{% set q = 1 %}	
w{# c -#}   v   {#- c #}u
{{ '{{ not a tag }}' }} {{ '%}' }} {{ "}}" }} { x } {% set d = {'a': {'b': {}}} %}{{ d }} } %
{{ messages[0]['content'] }}{{ messages[-1].role }} {{ messages|length }} {{ loop }}| {{ 'x' if messages[0].role == 'system' else 'y' }}
{{ add_generation_prompt }} {{ tools is none }} {{ bos_token }}{{ eos_token }} {{ unk_token is defined }}
{{ raise_exception('Only user and assistant roles are ' ~ 'supported!') }}
{{ missing.field }}
{{ missing() }}
{{ 1 + 'a' }}
{{ 'a' + missing }}
{{ 1 // 0 }}
{{ none.x }}|{{ none[0] }}|{{ 5.x if false }}
{{ none|length }}
{{ 1 < 'a' }}
{% for a, b in [[1, 2, 3]] %}x{% endfor %}
{{ messages.append(1) }}
""".strip("\n").split("\n")


def joined(parts):
    """Lines that belong together: the white space cases are one template."""
    begin = next(i for i, line in enumerate(parts) if line == "  {% if true %}")
    end = next(i for i, line in enumerate(parts) if line.startswith("w{# c"))
    return parts[:begin] + ["\n".join(parts[begin:end + 1]) + "\n", "\n".join(parts[begin:end + 1]) + "\n\n"] + parts[end + 1:]


def cases():
    conversations = {"short": SHORT, "talk": TALK, "ends": ENDS, "tools": TOOLS}
    for name, source in FAMILIES.items():
        for about, messages in conversations.items():
            for prompt in (False, True):
                yield f"{name} of {about}", source, messages, prompt
    for source in joined(PARTS):
        yield source.strip().split("\n")[0][:40], source, TALK, True
    yield "line ends", "a\r\nb{% if true %}\r\nc{% endif %}\r\n", SHORT, False


def main():
    made = []
    for name, source, messages, prompt in cases():
        case = {"name": name, "template": source, "messages": messages, "add_generation_prompt": prompt}
        try:
            case["text"] = environment().from_string(source).render(
                messages=messages, tools=None, documents=None, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>")
        except Exception as error:  # what it refuses, we refuse; the words differ
            case["refused"] = type(error).__name__
        made.append(case)
    here = pathlib.Path(__file__).parent
    (here / "cases.json").write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n")
    print(len(made), "cases,", sum("refused" in case for case in made), "refused")


main()
