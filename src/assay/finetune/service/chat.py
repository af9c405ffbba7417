"""The local models behind the chat API: loaded on demand, with requests answered in batches.

Waiting requests for one model are answered together, in one thread, because a CPU computes a
batch in little more time than a single request.
"""

import asyncio
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from assay.errors import ModelRejected, UsageError
from assay.finetune.service.jobs import JobStore
from assay.types import ChatModel, ChatReply, ChatRequest, Message, Usage

if TYPE_CHECKING:
    from assay.finetune.local.generate import Generator, ModelReply, ModelRequest
    from assay.models.serving.chat_wire import ParsedRequest

_MAX_BATCH: Final = 32
_MAX_LOADED: Final = 2
"""Maximum number of models kept in memory."""


class _PendingRequest(NamedTuple):
    model: str
    request: "ModelRequest"
    answer: "asyncio.Future[ModelReply]"
    loop: asyncio.AbstractEventLoop


class _LocalModel:
    """One of the models, as an entry of the model table."""

    provider = "local"

    def __init__(self, name: str, models: "LocalModels") -> None:
        self.name, self._models = name, models

    async def reply(self, request: ChatRequest) -> ChatReply:
        return await self._models.reply(request)

    async def close(self) -> None:
        """Do nothing; no resources are open."""


class LocalModels(Mapping[str, ChatModel]):
    """The base models and the trained models.

    Args:
        bases: Base models by name.
        jobs: The jobs, which have the trained models.
        constrained: Whether tool calls are restricted to the schemas of their tools.
        threads: CPU threads for one batch.
    """

    def __init__(
        self, bases: Mapping[str, object], jobs: JobStore, *, constrained: bool, threads: int
    ) -> None:
        self._bases, self._jobs = bases, jobs
        self._constrained, self._threads = constrained, threads
        self._loaded: OrderedDict[str, Generator] = OrderedDict()
        self._pending: queue.SimpleQueue[_PendingRequest | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="local-models", daemon=True)
        self._thread.start()

    def __getitem__(self, name: str) -> ChatModel:
        if self._find_name(name) is None:
            raise KeyError(name)
        return _LocalModel(name, self)

    def _find_name(self, name: str) -> str | None:
        """Find a model by name, with or without its provider, ignoring case."""
        wanted = name.casefold()
        return next(
            (model for model in self if model.casefold() in (wanted, f"local/{wanted}")), None
        )

    def __iter__(self) -> Iterator[str]:
        yield from self._bases
        yield from self._jobs.find_models()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def close(self) -> None:
        """Stop answering requests."""
        self._pending.put(None)

    async def answer(self, parsed: "ParsedRequest") -> ChatReply:
        """Answer a parsed request; if it demands a tool, that tool is called."""
        return await self.reply(parsed.request, parsed.demanded)

    async def reply(
        self, chat_request: ChatRequest, demanded_tools: Sequence[Mapping[str, Any]] = ()
    ) -> ChatReply:
        """Answer a request.

        Raises:
            ModelRejected: The model cannot answer it: another head, too long, or invalid tools.
        """
        from assay.finetune.local.generate import ModelRequest

        demanded = [function["name"] for function in demanded_tools]
        tools = chat_request.tools.value
        choice: Any = None
        if len(demanded) == 1 and len(tools) > 1:
            choice = {"type": "function", "function": {"name": demanded[0]}}
        elif demanded:
            choice = "required"
        request = ModelRequest(
            messages=[message.value for message in chat_request.messages],
            tools=tools,
            temperature=chat_request.temperature or 0.0,
            seed=chat_request.seed or 0,
            max_tokens=chat_request.max_tokens,
            tool_choice=choice,
            constrained=self._constrained,
        )
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ModelReply] = loop.create_future()
        model = self._find_name(chat_request.model) or chat_request.model
        self._pending.put(_PendingRequest(model, request, answer, loop))
        try:
            reply = await answer
        except UsageError as error:
            raise ModelRejected(str(error)) from error
        usage = Usage(
            prompt=reply.prompt_tokens,
            completion=reply.completion_tokens,
            cached=reply.cached_tokens,
        )
        return ChatReply(Message(dict(reply.message)), reply.finish_reason, usage, cost_usd=0.0)

    def _serve(self) -> None:
        later: list[_PendingRequest] = []
        while True:
            first = later.pop(0) if later else self._pending.get()
            if first is None:
                return
            batch = [first]
            rest, later = later, []
            while len(batch) < _MAX_BATCH:
                try:
                    other = rest.pop(0) if rest else self._pending.get_nowait()
                except queue.Empty:
                    break
                if other is None:
                    return
                (batch if other.model == first.model else later).append(other)
            later += rest
            self._answer_batch(batch)

    def _answer_batch(self, batch: list[_PendingRequest]) -> None:
        batch = [pending for pending in batch if not pending.answer.cancelled()]
        if not batch:
            return
        try:
            generator = self._get_generator(batch[0].model)
            replies = generator.generate_replies([pending.request for pending in batch])
        except Exception as error:
            if len(batch) > 1:
                # Retry one by one, so that only the request that causes the error fails.
                for pending in batch:
                    self._answer_batch([pending])
            else:
                _notify(batch[0], partial(_set_error, error))
            return
        for pending, reply in zip(batch, replies, strict=True):
            _notify(pending, partial(_set_reply, reply))

    def _get_generator(self, name: str) -> "Generator":
        import torch

        from assay.finetune.local.generate import load, load_base

        if name not in self._loaded:
            torch.set_num_threads(self._threads)
            job = self._jobs.find_models().get(name)
            self._loaded[name] = load_base(name) if job is None else load(job.training)
            while len(self._loaded) > _MAX_LOADED:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(name)
        return self._loaded[name]


def _set_reply(reply: "ModelReply", answer: "asyncio.Future[ModelReply]") -> None:
    answer.set_result(reply)


def _set_error(error: Exception, answer: "asyncio.Future[ModelReply]") -> None:
    answer.set_exception(error)


def _notify(
    pending: _PendingRequest, set_answer: Callable[["asyncio.Future[ModelReply]"], None]
) -> None:
    def answer_pending() -> None:
        if not pending.answer.done():
            set_answer(pending.answer)

    try:
        pending.loop.call_soon_threadsafe(answer_pending)
    except RuntimeError:
        return  # the server has stopped
