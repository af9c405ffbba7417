"""Local models learn, resume, and reply with valid tool calls."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import TrainingStopped, UsageError
from assay.finetune.local.bases import find_smollm2_file
from assay.finetune.local.generate import ModelRequest, load, load_base
from assay.finetune.local.templates import format_message
from assay.finetune.local.tokens import WordTokenizer
from assay.finetune.local.train import (
    Settings,
    TrainedModel,
    TrainingStep,
    ValidationResult,
    train,
)

pytestmark = pytest.mark.local

COLOURS = ("red", "green", "blue", "grey")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "paint",
            "parameters": {
                "type": "object",
                "properties": {
                    "colour": {"type": "string", "enum": list(COLOURS)},
                    "why": {"type": "string"},
                },
                "required": ["colour"],
            },
        },
    }
]
SYSTEM = {"role": "system", "content": "You paint what you are shown."}
STEPS = 50


def make_messages(number: int) -> list[dict[str, Any]]:
    """Return a prompt that describes a picture and its colour."""
    shown = f"picture number {number}:\n-@--\nit is all {COLOURS[number % 4]}"
    return [SYSTEM, {"role": "user", "content": shown}]


def row(number: int) -> dict[str, Any]:
    colour = COLOURS[number % 4]
    arguments = json.dumps({"colour": colour}, separators=(",", ":"))
    call = {
        "id": "c",
        "type": "function",
        "function": {"name": "paint", "arguments": arguments},
    }
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"messages": [*make_messages(number), answer], "tools": TOOLS}


ROWS = [row(number) for number in range(64)]
HELD = [row(number) for number in range(64, 96)]
SETTINGS = Settings(epochs=STEPS, batch_size=32, learning_rate=3e-3, max_steps=STEPS)


def trained(folder: Path, **changed: Any) -> TrainedModel:
    given: dict[str, Any] = {"seed": 7, "validation_rows": HELD} | changed
    return train("local/tiny", ROWS, SETTINGS, folder=folder, **given)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    return trained(tmp_path_factory.mktemp("model"))


def weights(folder: Path) -> bytes:
    return (folder / "weights.safetensors").read_bytes()


def test_the_loss_falls_within_fifty_steps(model: TrainedModel) -> None:
    assert model.steps == STEPS == len(model.losses)
    assert model.losses[-1] < model.losses[0] / 4
    before, after = model.validated[0], model.validated[-1]
    assert (before.step, after.step) == (0, STEPS)
    assert after.loss < before.loss / 4
    assert after.accuracy > before.accuracy


def test_the_same_rows_and_seed_give_the_same_weights(
    model: TrainedModel, tmp_path: Path
) -> None:
    again = trained(tmp_path / "again")
    assert again.losses == model.losses
    assert weights(again.folder) == weights(model.folder)
    other = train("local/tiny", ROWS, Settings(max_steps=1), seed=8, folder=tmp_path / "other")
    assert other.losses[0] != model.losses[0]


def test_more_threads_give_the_same_losses_within_a_tenth_of_a_percent(
    model: TrainedModel, tmp_path: Path
) -> None:
    steps = 5
    settings = Settings(
        epochs=STEPS, batch_size=32, learning_rate=3e-3, max_steps=STEPS, threads=2
    )
    seen: list[float] = []
    with pytest.raises(TrainingStopped):
        train(
            "local/tiny",
            ROWS,
            settings,
            seed=7,
            folder=tmp_path,
            on_step=lambda done: seen.append(done.loss),
            should_stop=lambda: len(seen) == steps,
        )
    assert seen == pytest.approx(model.losses[:steps], rel=1e-3)


def test_a_stopped_training_resumes_to_the_same_weights(
    model: TrainedModel, tmp_path: Path
) -> None:
    seen: list[TrainingStep | ValidationResult] = []

    def after_twenty() -> bool:
        return sum(isinstance(event, TrainingStep) for event in seen) == 20

    with pytest.raises(TrainingStopped, match="after step 20 of 50"):
        trained(tmp_path, on_step=seen.append, should_stop=after_twenty)
    assert (tmp_path / "checkpoint.safetensors").exists()
    with pytest.raises(UsageError, match="is not a model of assay"):
        load(tmp_path)
    resumed = trained(tmp_path)
    assert len(resumed.losses) == STEPS - 20
    assert resumed.losses == model.losses[20:]
    assert resumed.validated == model.validated
    assert weights(tmp_path) == weights(model.folder)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_a_checkpoint_of_another_training_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TrainingStopped):
        trained(tmp_path, should_stop=lambda: True)
    with pytest.raises(UsageError, match="another training"):
        trained(tmp_path, seed=8)


def requests(count: int, **about: Any) -> Iterator[ModelRequest]:
    for number in range(count):
        about = {"messages": make_messages(100 + number), "tools": TOOLS} | about
        yield ModelRequest(**{**about, "messages": make_messages(100 + number), "seed": number})


def test_a_trained_model_gives_the_replies_it_learned(model: TrainedModel) -> None:
    replies = load(model.folder).generate_replies(list(requests(8)))
    calls = [json.loads(r.message["tool_calls"][0]["function"]["arguments"]) for r in replies]
    right = [COLOURS[(100 + number) % 4] for number in range(8)]
    assert [call["colour"] for call in calls] == right
    assert {reply.finish_reason for reply in replies} == {"tool_calls"}


def test_batched_requests_get_the_same_replies_as_single_ones(model: TrainedModel) -> None:
    generator = load(model.folder)
    asked_for = list(requests(5, temperature=0.7))
    together = [reply.message for reply in generator.generate_replies(asked_for)]
    assert together == [
        generator.generate_replies([request])[0].message for request in asked_for
    ]


def test_a_shared_prefix_is_not_computed_again(model: TrainedModel) -> None:
    generator = load(model.folder)
    [first] = generator.generate_replies(list(requests(1)))
    [second] = generator.generate_replies(list(requests(1)))
    assert first.cached_tokens == 0 < second.cached_tokens
    assert first.message == second.message


@pytest.mark.parametrize("most", [1, 3, 8, 200])
def test_constrained_calls_of_an_untrained_model_are_valid(most: int) -> None:
    generator = load_base("local/tiny")
    hot = list(requests(8, temperature=1.5, max_tokens=most))
    for reply in generator.generate_replies(hot):
        [call] = reply.message["tool_calls"]
        assert call["function"]["name"] == "paint"
        assert json.loads(call["function"]["arguments"])["colour"] in COLOURS


def test_unconstrained_replies_of_an_untrained_model_are_bounded_text() -> None:
    generator = load_base("local/tiny")
    free = list(requests(4, temperature=1.0, max_tokens=10, constrained=False))
    for reply in generator.generate_replies(free):
        assert "tool_calls" not in reply.message
        assert reply.completion_tokens <= 10


def test_a_request_with_an_unknown_head_is_rejected(model: TrainedModel) -> None:
    generator = load(model.folder)
    [known] = list(requests(1))
    assert generator.find_refusal(known) is None
    other = {"role": "system", "content": "You sing."}
    for changed in (
        ModelRequest(messages=[other, *known.messages[1:]], tools=TOOLS),
        ModelRequest(messages=known.messages, tools=[]),
    ):
        with pytest.raises(UsageError, match="another system message"):
            generator.generate_replies([changed])


def test_rows_with_different_heads_are_rejected_by_number(tmp_path: Path) -> None:
    other = {**ROWS[1], "messages": [{"role": "system", "content": "x"}, *make_messages(1)[1:]]}
    other["messages"].append(ROWS[1]["messages"][-1])
    with pytest.raises(UsageError, match="2 different heads"):
        train("local/tiny", [*ROWS, other], Settings(), seed=0, folder=tmp_path)


def test_most_tokens_are_the_head_and_only_replies_are_learned(model: TrainedModel) -> None:
    counts = model.tokens
    assert 0 < counts.learned < counts.total - counts.head
    assert 0 < counts.share_without_head < 1


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        pytest.param([], "no rows", id="none"),
        pytest.param([{"text": "x"}], "row 1", id="no messages"),
        pytest.param(
            [{"messages": make_messages(1), "tools": TOOLS}], "no answer", id="no answer"
        ),
    ],
)
def test_rows_without_a_trained_reply_are_rejected(
    rows: Any, match: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=match):
        train("local/tiny", rows, Settings(), seed=0, folder=tmp_path)


def test_a_model_with_damaged_files_is_rejected(model: TrainedModel, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes((model.folder / "model.json").read_bytes())
    (tmp_path / "weights.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path)


def test_a_text_is_restored_from_its_tokens() -> None:
    words = WordTokenizer.build(["the cat sat", "the cat ran"] * 3, [])
    text = 'the cat sat, 42 times {"x":["y"]}'
    assert words.decode(words.encode(text)) == text


def test_words_that_always_occur_together_are_one_token_and_map_rows_are_letters() -> None:
    written = [f"My goal is to {what}" for what in ("drink", "sleep")] * 5
    words = WordTokenizer.build(written, ["--- seen ---", "=T=", "near tree", "near cow"] * 5)
    assert len(words.encode("My goal is to drink")) == 1
    assert len(words.encode("My goal is to eat")) == 1 + len(" eat")
    assert len(words.encode_line("--- seen ---")) == 1
    assert len(words.encode_line("=T=")) == 3
    assert words.decode(words.encode("My goal is to eat")) == "My goal is to eat"


def test_the_reasoning_is_written_before_the_actions() -> None:
    call = {"function": {"name": "go", "arguments": '{"actions":["up"],"reasoning":"a tree"}'}}
    text = format_message({"role": "assistant", "content": None, "tool_calls": [call]})
    assert text.index("a tree") < text.index("up")


def test_smollm2_replies_from_pretraining_and_learns_with_low_rank_updates(
    tmp_path: Path,
) -> None:
    assert find_smollm2_file().suffix == ".gguf"
    question = [{"role": "user", "content": "What is the capital of France?"}]
    base = load_base("local/smollm2-135m")
    [reply] = base.generate_replies([ModelRequest(messages=question, max_tokens=8)])
    assert "Paris" in reply.message["content"]
    settings = Settings(epochs=3, batch_size=2, learning_rate=2e-3)
    short = [{"messages": row["messages"], "tools": TOOLS} for row in ROWS[:2]]
    learned = train("local/smollm2-135m", short, settings, seed=0, folder=tmp_path)
    assert learned.losses[-1] < learned.losses[0]
    assert (
        learned.parameters
        < 1_000_000
        < sum(
            tensor.numel()
            for tensor in base._model.parameters()
            if isinstance(tensor, torch.Tensor)
        )
    )
    [answer] = load(tmp_path).generate_replies(
        [ModelRequest(messages=make_messages(0), tools=TOOLS, max_tokens=40)]
    )
    assert answer.message["tool_calls"][0]["function"]["name"] == "paint"
