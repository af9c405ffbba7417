"""The trained text of a row, as a chat template renders it."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.errors import UsageError
from assay.finetune.datasets.chat_template import ChatTemplate, find_template, has_jinja
from assay.finetune.datasets.formats import read_row
from assay.finetune.datasets.message_checks import RowFault

BLANKED = """\
{%- for message in messages %}
<|im_start|>{{ message.role }}
{% if message.content %}{{ message.content | trim }}{% endif %}
{%- for call in message.tool_calls or () %}

<tool_call>{{ call.function.name }} {{ call.function.arguments }}</tool_call>
{%- endfor %}
<|im_end|>
{%- endfor %}
{%- if add_generation_prompt %}
<|im_start|>assistant
{% endif %}"""
"""ChatML, as many models use it, without generation marks."""
MARKED = """\
{%- for message in messages %}
<|im_start|>{{ message.role }}
{% if message.role == "assistant" %}
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}
{% else %}
{{ message.content }}<|im_end|>
{%- endif %}
{%- endfor %}"""


def message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def called(actions: str) -> dict[str, Any]:
    function = {"name": "act", "arguments": json.dumps({"actions": [actions]})}
    calls = [{"id": "1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def template(path: Path, source: str) -> ChatTemplate:
    path.write_text(source, "utf-8")
    return ChatTemplate(path)


def trained(path: Path, source: str, *messages: dict[str, Any], **more: Any) -> list[str]:
    """Return the trained texts in order."""
    row = read_row({"messages": list(messages), **more})
    rendered = template(path / "chat_template.jinja", source).render(row)
    return [rendered.text[first:last] for first, last in rendered.trained]


@pytest.mark.local
@pytest.mark.parametrize("source", [BLANKED, MARKED], ids=["blanked", "marked"])
def test_only_replies_and_their_end_marks_are_trained(tmp_path: Path, source: str) -> None:
    found = trained(
        tmp_path,
        source,
        message("system", "You play."),
        message("user", "Go."),
        message("assistant", "I go."),
        message("user", "And now?"),
        message("assistant", "I go."),
    )
    assert found == ["I go.<|im_end|>", "I go.<|im_end|>"]


@pytest.mark.local
@pytest.mark.parametrize("source", [BLANKED, MARKED], ids=["blanked", "marked"])
def test_a_reply_of_weight_zero_is_not_trained(tmp_path: Path, source: str) -> None:
    messages = [
        message("user", "Go."),
        message("assistant", "Never.", weight=0),
        message("user", "Please."),
        message("assistant", "I go."),
    ]
    assert trained(tmp_path, source, *messages) == ["I go.<|im_end|>"]
    assert trained(tmp_path, source, *messages[:2]) == []


@pytest.mark.local
def test_a_reply_that_resembles_the_end_mark_is_located(
    tmp_path: Path,
) -> None:
    found = trained(tmp_path, BLANKED, message("user", "<|im_"), message("assistant", "<|im_e"))
    assert found == ["<|im_e<|im_end|>"]


@pytest.mark.local
def test_tool_calls_are_part_of_a_reply(tmp_path: Path) -> None:
    found = trained(
        tmp_path,
        BLANKED,
        message("user", "Go."),
        called("left"),
        message("tool", "You went left.", tool_call_id="1"),
        called("right"),
    )
    begin, end = '\n<tool_call>act {"actions": ["', '"]}</tool_call><|im_end|>'
    assert found == [f"{begin}left{end}", f"{begin}right{end}"]


@pytest.mark.local
def test_a_prompt_is_never_trained(tmp_path: Path) -> None:
    row = read_row(
        {
            "prompt": [message("user", "a"), message("assistant", "b"), message("user", "c")],
            "completion": [message("assistant", "d")],
        }
    )
    for source in (BLANKED, MARKED):
        rendered = template(tmp_path / "chat_template.jinja", source).render(row)
        assert [rendered.text[a:b] for a, b in rendered.trained] == ["d<|im_end|>"]
        assert rendered.marked is (source is MARKED)


@pytest.mark.local
def test_a_reply_that_the_template_drops_is_an_error(
    tmp_path: Path,
) -> None:
    source = "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}"
    assert trained(tmp_path, source, message("user", "a"), message("assistant", "b")) == []
    data = tmp_path / "data.jsonl"
    messages = [message("user", "a"), message("assistant", "b")]
    data.write_text(json.dumps({"messages": messages}) + "\n", "utf-8")
    report = assay.sft_validate(data, chat_template=tmp_path / "chat_template.jinja")
    (finding,) = report.findings
    assert (finding.kind, finding.count, report.templated) == (RowFault.NOTHING, 1, 1)
    template(tmp_path / "chat_template.jinja", "{{ raise_exception('no system message') }}")
    report = assay.sft_validate(data, chat_template=tmp_path / "chat_template.jinja")
    (finding,) = report.findings
    assert finding.kind is RowFault.TEMPLATE
    assert "no system message" in finding.first[0][1]
    assert not report.ok


def words(text: str) -> Sequence[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+\s*", text)]


@pytest.mark.local
def test_a_partly_trained_token_counts_as_trained(tmp_path: Path) -> None:
    source = "{% for m in messages %}[{{ m.role }}]{{ m.content }} {% endfor %}"
    row = read_row({"messages": [message("user", "go on"), message("assistant", "I do")]})
    rendered = template(tmp_path / "chat_template.jinja", source).render(row)
    assert rendered.text == "[user]go on [assistant]I do "
    (whole,) = rendered.trained
    assert rendered.text[slice(*whole)] == "I do"
    parts = rendered.split_parts(words)
    assert [(part.text, part.trained, part.tokens) for part in parts] == [
        ("[user]go on ", False, 2),
        ("[assistant]I do ", True, 2),
    ]
    estimates = rendered.split_parts()
    assert [part.text for part in estimates] == ["[user]go on [assistant]", "I do", " "]


@pytest.mark.local
def test_the_template_is_found_next_to_the_tokenizer_with_its_special_tokens(
    tmp_path: Path,
) -> None:
    tokenizer, config = tmp_path / "tokenizer.json", tmp_path / "tokenizer_config.json"
    assert find_template(tokenizer) is None
    config.write_text("{}", "utf-8")
    assert find_template(tokenizer) is None
    with pytest.raises(UsageError, match="has no chat template"):
        ChatTemplate(config)
    plain = "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
    templates = [
        {"name": "default", "template": plain},
        {"name": "tool_use", "template": "with tools {{ tools | tojson }}" + plain},
    ]
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    config.write_text(json.dumps({"chat_template": templates, **tokens}), "utf-8")
    assert find_template(tokenizer) == config
    messages = [message("user", "a"), message("assistant", "b")]
    rendered = ChatTemplate(config).render(read_row({"messages": messages}))
    assert rendered.text == "<s>a</s>b</s>"
    assert rendered.trained == ((8, 13),)
    with_tools = ChatTemplate(config).render(read_row({"messages": messages, "tools": [{}]}))
    assert with_tools.text == "with tools [{}]<s>a</s>b</s>"
    (tmp_path / "chat_template.jinja").write_text(plain, "utf-8")
    assert find_template(tokenizer) == tmp_path / "chat_template.jinja"
    beside = ChatTemplate(tmp_path / "chat_template.jinja")
    assert beside.render(read_row({"messages": messages})).text == rendered.text


@pytest.mark.local
@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{ messages[7].content }}", "{{ messages[0].content + 1 }}", "{{ 1 / 0 }}"],
)
def test_an_invalid_template_is_rejected_with_the_reason(tmp_path: Path, source: str) -> None:
    with pytest.raises(UsageError, match="rejects this row"):
        trained(tmp_path, source, message("user", "a"), message("assistant", "b"))


@pytest.mark.skipif(has_jinja(), reason="jinja2 is installed")
def test_a_missing_template_library_is_named(tmp_path: Path) -> None:
    data, path = tmp_path / "data.jsonl", tmp_path / "chat_template.jinja"
    messages = [message("user", "a"), message("assistant", "b")]
    data.write_text(json.dumps({"messages": messages}) + "\n", "utf-8")
    path.write_text(BLANKED, "utf-8")
    with pytest.raises(UsageError, match="pip install jinja2"):
        assay.sft_validate(data, chat_template=path)
    with pytest.raises(UsageError, match="pip install jinja2"):
        assay.sft_show(data, 1, chat_template=path)


@pytest.mark.local
def test_tool_calls_written_as_text_are_rendered_unchanged(tmp_path: Path) -> None:
    data, path = tmp_path / "data.jsonl", tmp_path / "chat_template.jinja"
    call = '<tool_call>\n{"name": "act", "arguments": {}}\n</tool_call>'
    messages = [
        message("system", "You play.\n\n# Tools\n\n<tools>\n{}\n</tools>"),
        message("user", "Go."),
        message("assistant", call),
    ]
    data.write_text(json.dumps({"messages": messages}) + "\n", "utf-8")
    # Like the template of SmolLM2, it ignores tool calls and rejects replies without content.
    path.write_text("{% for m in messages %}[{{ m.role }}]{{ m.content + '|' }}{% endfor %}")
    rendering = assay.sft_show(data, 1, chat_template=path).rendering
    assert rendering is not None
    assert [part.text for part in rendering.parts if part.trained] == [call + "|"]
    assert assay.sft_validate(data, chat_template=path).ok
