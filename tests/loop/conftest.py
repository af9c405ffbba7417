"""The service that speaks the protocol of fine-tuning, for loops."""

from tests.finetune.conftest import finetuning as finetuning
from tests.finetune.conftest import service as service
