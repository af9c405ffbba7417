"""`python -m perf`: measure all or selected rows, and print one table."""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from assay.bench.coders.installation import get_agents_folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; its exit code is 1 if something could not be measured, or is worse
    than the tree it was compared with.
    """
    asked = _make_parser().parse_args(arguments)
    # The engine gets an entry more here, and that must not reach the user's cache.
    with tempfile.TemporaryDirectory(prefix="assay-perf-cache-") as folder:
        (Path(folder) / "agents").symlink_to(get_agents_folder())
        if asked.quick:
            os.environ["ASSAY_PERF_QUICK"] = "1"
        os.environ["ASSAY_CACHE_DIR"] = folder
        return _run_measurements(asked)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m perf",
        description="Measure the speed of assay as ratios against named peers, or against "
        "another commit.",
    )
    parser.add_argument(
        "--rounds", type=_parse_count, help="turns of each side (10, with --against 5)"
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these rows or topics only"
    )
    parser.add_argument("--list", action="store_true", help="list topics and rows, and stop")
    parser.add_argument(
        "--no-peers", action="store_true", help="leave out Craftax, Inspect AI and rliable"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="only try every row out: one round, little work, nothing that must be installed",
    )
    parser.add_argument(
        "--against",
        metavar="COMMIT",
        help="compare this tree with another commit's instead, and fail where it is worse",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    return parser


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; give 1 or more")
    return int(text)


def _run_measurements(asked: argparse.Namespace) -> int:
    # Late, because all of them import assay, which must find its cache folder set.
    from . import rows_text
    from .machine import load_average, this_machine
    from .measure import measure
    from .table import as_json, format_verdict, print_results
    from .topics import TOPICS, choose_topics, find_unavailable_sides

    try:
        chosen = choose_topics(asked.only)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.list:
        for topic in TOPICS:
            for row in topic.rows:
                print(f"{topic.name:12}  {row.name:16}  {row.what} | {row.against}")
        return 0
    if asked.against is not None:
        return _compare_with_commit(asked)
    machine, load_before, started = this_machine(), load_average(), time.perf_counter()
    if not asked.json:
        print(*machine.lines(), f"load average before: {load_before}", sep="\n", flush=True)
    missing = find_unavailable_sides(asked.no_peers, asked.quick)
    rounds = 1 if asked.quick else asked.rounds or 10
    with _show_progress() as report:
        results = [
            (topic, measure(topic, rows, rounds, missing, report)) for topic, rows in chosen
        ]
    load_after, seconds = load_average(), time.perf_counter() - started
    if asked.json:
        document = {
            "machine": machine.as_dict(),
            "load_average": {"before": load_before, "after": load_after},
            "seconds": seconds,
            "rows": [as_json(topic, row) for topic, rows in results for row in rows],
        }
        print(json.dumps(document, indent=1))
    else:
        print(f"load average after: {load_after}; {seconds:.0f} s\n")
        print_results(results)
        if any(topic is rows_text.TOPIC for topic, _ in results):
            print("", *rows_text.format_token_lines(), sep="\n")
        print(f"\n{format_verdict(results)}")
    return int(any(row.problem for _, rows in results for row in rows))


def _compare_with_commit(asked: argparse.Namespace) -> int:
    from .against import ROUNDS, as_json, compare, print_comparisons

    try:
        with _show_progress() as report:
            compared = compare(asked.against, asked.only, asked.rounds or ROUNDS, report)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.json:
        print(json.dumps(as_json(asked.against, compared), indent=1))
    else:
        print_comparisons(asked.against, compared)
    return int(any(comparison.failed for comparison in compared))


@contextmanager
def _show_progress() -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being measured."""
    # No spinner: a thread that draws one would be measured, too.
    start, end = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    try:
        yield lambda line: print(start + line, end=end, file=sys.stderr, flush=True)
    finally:
        print(start, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
