"""The shortest loop a user would write over `assay traces export --format jsonl`."""

import json
import sys
import time


def main(source: str, target: str) -> None:
    started, rows = time.perf_counter(), 0
    with open(source, encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as output:
        for line in lines:
            trace = json.loads(line)
            if trace["end"]["outcomes"].get("achievements", 0) < 1:
                continue
            messages = [record["message"] for record in trace["messages"]]
            for call in trace["calls"]:
                sent = [messages[position] for position in call["request"]]
                for message in sent:
                    if message["role"] == "assistant":
                        message["weight"] = 0
                answer = {**messages[call["reply"]]}
                answer.pop("weight", None)
                row = {"messages": [*sent, answer], "tools": trace["session"]["tools"]}
                output.write(json.dumps(row) + "\n")
                rows += 1
    print(json.dumps({"seconds": time.perf_counter() - started, "rows": rows}))


main(*sys.argv[1:])
