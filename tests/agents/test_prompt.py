from typing import Any

import pytest

from assay.agents.prompts import make_system_message, make_tools
from assay.crafter import rules_text


def system(prompt: str | None = None, **changes: Any) -> str:
    options = {"short": False, "actions_per_turn": 5, "history": 8} | changes
    return make_system_message(prompt, **options).text


@pytest.mark.parametrize("short", [False, True])
def test_the_rules_describe_the_chosen_view(short: bool) -> None:
    assert system(short=short).startswith(rules_text(short=short))


def test_the_instructions_follow_the_options() -> None:
    assert "a list of 1 to 5 actions" in system()
    assert "last 8 turns" in system()
    alone = system(actions_per_turn=1)
    assert "a list of 1 action." in alone
    assert "Give several actions" not in alone


def test_a_custom_prompt_replaces_the_instructions_but_not_the_rules() -> None:
    prompt = system("Be brave.")
    assert prompt == f"{rules_text()}\n\nBe brave."


def test_the_tool_description_gives_the_action_limit() -> None:
    interact, terminate = (tool["function"] for tool in make_tools(3).value)
    assert (interact["name"], terminate["name"]) == ("interact", "terminate")
    actions = interact["parameters"]["properties"]["actions"]
    assert (actions["minItems"], actions["maxItems"]) == (1, 3)
    assert make_tools(3) is make_tools(3)
