"""Sizes of networks; a sequence gives the same output as its single steps."""

from itertools import product

import numpy as np
import pytest

from assay.training.architectures import ARCHITECTURES, architecture_named, matching_width
from assay.training.crafter_worlds import SPACE, CrafterWorlds
from assay.training.curricula import CURRICULA, list_held_out_worlds


def test_the_width_for_a_given_capacity_is_found_within_ten_percent() -> None:
    for name, other in product(ARCHITECTURES, repeat=2):
        wanted = architecture_named(other).capacity(SPACE, architecture_named(other).width)
        match = matching_width(architecture_named(name), SPACE, wanted.parameters)
        assert match.close, (name, other, match)
        assert match.width % architecture_named(name).step == 0


def test_a_size_that_no_width_reaches_is_not_reported_as_close() -> None:
    mlp = architecture_named("mlp")
    assert not matching_width(mlp, SPACE, 100).close
    assert matching_width(mlp, SPACE, 1_000_000, "flops").close


def test_control_and_candidate_have_matching_sizes_by_default() -> None:
    control, candidate = (
        architecture_named(name).capacity(SPACE, architecture_named(name).width)
        for name in ("vit_reset", "trxl")
    )
    assert abs(candidate.parameters / control.parameters - 1) < 0.1
    assert abs(candidate.flops / control.flops - 1) < 0.1


@pytest.mark.local
@pytest.mark.parametrize("name", ["mlp", "trxl", "vit_reset"])
@pytest.mark.parametrize("width", [16, 64])
def test_a_network_has_the_size_that_its_architecture_reports(name: str, width: int) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    architecture = architecture_named(name)
    capacity = architecture.capacity(SPACE, width)
    network = architecture.network(SPACE, width, torch.Generator().manual_seed(1))
    assert sum(weight.numel() for weight in network.parameters()) == capacity.parameters

    def flops(worlds: int) -> int:
        tokens = torch.from_numpy(CrafterWorlds(worlds, 10).observe()).unsqueeze(0)
        with FlopCounterMode(display=False) as counter:
            network(
                tokens,
                torch.ones(1, worlds, dtype=torch.bool),
                network.make_blank_memory(worlds),
            )
        return int(counter.get_total_flops())

    # Work shared by all observations is not counted.
    assert flops(3) - flops(2) == capacity.flops


@pytest.mark.local
@pytest.mark.parametrize("name", ["mlp", "trxl", "vit_reset"])
def test_a_sequence_equals_its_single_steps_and_episodes_are_independent(
    name: str,
) -> None:
    import torch

    worlds, steps = 3, 50
    environment = CrafterWorlds(worlds, 500)
    environment.begin(
        range(worlds), list_held_out_worlds(CURRICULA["crafter"]["classic"], worlds)
    )
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(steps):
        seen.append(environment.observe())
        environment.step(rng.integers(0, 17, worlds))
    tokens = torch.from_numpy(np.stack(seen))
    starts = torch.zeros(steps, worlds, dtype=torch.bool)
    starts[0] = True
    starts[20, 1] = starts[33, 2] = True
    network = architecture_named(name).network(SPACE, 16, torch.Generator().manual_seed(1))
    with torch.no_grad():
        whole = network(tokens, starts, network.make_blank_memory(worlds))
        memory, values = network.make_blank_memory(worlds), []
        for step in range(steps):
            output = network(tokens[step : step + 1], starts[step : step + 1], memory)
            memory = output.memory
            values.append(output.values[0])
        late = network(tokens[20:, 1:2], starts[20:, 1:2], network.make_blank_memory(1) + 1)
    torch.testing.assert_close(whole.values, torch.stack(values))
    torch.testing.assert_close(whole.memory, memory)
    torch.testing.assert_close(whole.values[20:, 1:2], late.values)
    if name != "mlp":
        alone = network(tokens[40:41], starts[40:41] | True, network.make_blank_memory(worlds))
        assert not torch.allclose(alone.values[0], whole.values[40])
