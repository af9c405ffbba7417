"""The shortest check of a data file a user would write: JSON, roles, tool calls."""

import json
import sys
import time

ROLES = {"system", "user", "assistant", "tool"}


def main(source: str) -> None:
    started, rows = time.perf_counter(), 0
    with open(source, encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            tools = {tool["function"]["name"]: tool["function"] for tool in row["tools"]}
            for message in row["messages"]:
                assert message["role"] in ROLES
                assert message["content"] or message.get("tool_calls")
                for call in message.get("tool_calls") or ():
                    schema = tools[call["function"]["name"]]["parameters"]
                    arguments = json.loads(call["function"]["arguments"])
                    assert (
                        set(schema["required"]) <= set(arguments) <= set(schema["properties"])
                    )
            assert row["messages"][-1]["role"] == "assistant"
            rows += 1
    print(json.dumps({"seconds": time.perf_counter() - started, "rows": rows}))


main(*sys.argv[1:])
