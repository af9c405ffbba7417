"""Pages in one file: what is in them, and that every change of one is found."""

import base64
import gzip
import json
import random
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.api.viewer import _rebuilt
from assay.cli import main
from assay.errors import UsageError
from assay.report.viewer.export import first_difference, read_record
from assay.report.viewer.modules import join_modules, page_modules

SEED = 20261118


@pytest.fixture(scope="session")
def page(database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    made = assay.export_view("latest", output=path, database=database)
    assert made.episodes == 6
    assert made.size == path.stat().st_size
    return path


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'id="assay-data">(.*?)</script>', text, re.DOTALL)
    assert found
    data: dict[str, Any] = json.loads(found[1])
    return data


def with_data(text: str, data: dict[str, Any]) -> str:
    """Return the page with other data, written as the exporter writes it."""
    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    for char in "<>&":
        plain = plain.replace(char, f"\\u{ord(char):04x}")
    return re.sub(
        r'(id="assay-data">).*?(</script>)',
        lambda found: found[1] + plain + found[2],
        text,
        flags=re.DOTALL,
    )


def test_a_page_is_verified_and_says_what_it_repeats(page: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.html"
    changed.write_text(page.read_text("utf-8").replace("<title>", "<title>!"), "utf-8")
    other = assay.verify_page(changed)
    assert not other.is_same
    assert "<title>!" in (other.difference or "")
    found = other._replace(difference=None)
    assert found.is_same
    assert len(found.episodes) == 6
    assert "builtin/forager" in found.repeated[0]
    assert data_of(page.read_text("utf-8"))["repeated"] == list(found.repeated)


def test_a_page_names_no_place_and_no_secret_of_this_machine(
    page: Path, database: Path
) -> None:
    text = page.read_text("utf-8")
    answers = json.dumps(data_of(text)["json"])
    assert str(database) not in answers
    assert "/tmp/" not in answers
    assert data_of(text)["json"]["/api/session"]["page_token"] == ""


def test_the_policy_of_a_page_allows_its_own_script_alone(page: Path) -> None:
    text = page.read_text("utf-8")
    scripts = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src &#x27;sha256-{digest}&#x27;" in text
    assert "default-src &#x27;none&#x27;" in text
    assert text.count("<script") == 2


def test_a_changed_byte_is_found_wherever_it_is(page: Path) -> None:
    text, draws = page.read_text("utf-8"), random.Random(SEED)
    record = read_record(text)
    for _ in range(200):
        place = draws.randrange(len(text))
        other = draws.choice([char for char in "aZ09<&\n" if char != text[place]])
        changed = text[:place] + other + text[place + 1 :]
        try:
            same_record = read_record(changed) == record
        except UsageError:
            continue
        # With the same record the page is rebuilt as it was, which differs from the change.
        assert not same_record or first_difference(changed, text) is not None


def test_a_shown_number_that_was_changed_is_found(page: Path) -> None:
    text, draws = page.read_text("utf-8"), random.Random(SEED)
    rebuilt = text  # a clean page is what its record gives
    for _ in range(100):
        data = data_of(text)
        key = draws.choice([path for path in data["json"] if "/messages" not in path])
        if not _change_number(data["json"][key], draws):
            continue
        changed = with_data(text, data)
        assert read_record(changed) == read_record(text)
        assert first_difference(changed, rebuilt) is not None


def _change_number(value: Any, draws: random.Random) -> bool:
    """Change one number somewhere in a value; return whether there was one."""
    places: list[tuple[Any, Any]] = []

    def visit(part: Any) -> None:
        pairs = part.items() if isinstance(part, dict) else enumerate(part)
        for name, each in pairs:
            if isinstance(each, dict | list):
                visit(each)
            elif isinstance(each, int | float) and not isinstance(each, bool):
                places.append((part, name))

    visit(value)
    if places:
        part, name = draws.choice(places)
        part[name] += 1
    return bool(places)


def test_a_changed_record_is_found_even_if_the_page_follows_from_it(
    page: Path, tmp_path: Path
) -> None:
    lines = read_record(page.read_text("utf-8")).decode().splitlines()
    traces = [json.loads(line) for line in lines]
    steps = [[step for turn in trace["played"] for step in turn["steps"]] for trace in traces]
    next(step for step in steps[0] if step["action"] != "noop")["action"] = "noop"
    steps[1][3]["reward"] += 1
    traces[2]["end"]["outcomes"]["achievements"] += 1
    traces[3]["end"]["outcomes"]["invalid_rate"] += 0.25
    steps[4][5]["digest"] = "0" * 16
    record = "".join(f"{json.dumps(trace)}\n" for trace in traces).encode()
    text, found, _ = _rebuilt(record)
    assert read_record(text) == record
    assert [each.finding for each in found] == [*["different"] * 5, "same"]
    assert [each.difference.field for each in found if each.difference] == [
        *("digest", "reward", "outcome achievements", "outcome invalid_rate", "digest"),
    ]


@pytest.mark.parametrize(
    "text", ["", "<html></html>", '<script type="application/json" id="assay-data">{}</script>']
)
def test_another_file_is_not_a_page(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.html"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a page"):
        assay.verify_page(path)


def test_a_record_that_unpacks_to_too_much_is_refused(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.report.viewer.export._MOST_RECORD", 1000)
    with pytest.raises(UsageError, match="too large"):
        read_record(page.read_text("utf-8"))


def test_the_command_verifies_pages_databases_and_folders(
    page: Path, database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def verify(path: Path) -> tuple[int, str]:
        code = main(["verify", str(path)])
        return code, capsys.readouterr().out

    code, out = verify(page)
    assert code == 0
    assert "6 identical" in out
    assert "only repeated: " in out
    assert verify(database)[0] == 0
    assay.export("best", output=tmp_path / "one.json", database=database)
    assert "1 identical" in verify(tmp_path / "one.json")[1]
    assert verify(tmp_path / "none.html")[0] == 2


def test_the_modules_of_the_page_can_be_joined() -> None:
    modules = page_modules()
    for entry in ("main.js", "player.js"):
        if entry in modules:
            assert "import " not in join_modules(modules, entry).split("\n", 1)[0]


MODULES = {
    "main.js": 'import {a} from "./one.js";\nimport {\n  b,\n} from "./two.js";\na(b);\n',
    "one.js": 'import {b} from "./two.js";\nexport function a() {\n  return b;\n}\n',
    "two.js": "export const b = 1;\nconst player = {b};\nexport default player;\n",
}


def test_modules_are_joined_those_that_are_needed_first() -> None:
    joined = join_modules(MODULES, "main.js")
    assert joined.index("const b = 1") < joined.index("function a()") < joined.index("a(b)")
    assert "import" not in joined
    assert "export" not in joined
    assert join_modules(MODULES, "two.js", keep_default=True).endswith(
        "export default player;\n"
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("two.js", "export const b = 1;\nfunction a() {}\n", "'a' is defined in two.js and in"),
        ("two.js", 'import {a} from "./one.js";\n', "import each other"),
        ("one.js", 'import {z} from "./three.js";\n', "no module 'three.js'"),
        ("two.js", 'import * as z from "./one.js";\n', "cannot be joined"),
        ("two.js", "export {b};\n", "cannot be joined"),
        ("two.js", 'export const b = import("x");\n', "cannot be joined"),
    ],
    ids=["twice", "cycle", "missing", "namespace", "list", "dynamic"],
)
def test_modules_that_cannot_be_joined_are_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        join_modules({**MODULES, name: text}, "main.js")


def test_a_page_grows_little_with_an_episode(page: Path) -> None:
    packed = gzip.compress(page.read_bytes())
    assert len(packed) < 2_000_000
