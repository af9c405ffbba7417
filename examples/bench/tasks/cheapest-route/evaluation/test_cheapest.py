import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from maps import check_route, least_cost, random_map
from program import cheapest


def test_a_way_round_that_is_cheaper():
    grid = [[1, 9, 1], [1, 9, 1], [1, 1, 1]]
    assert cheapest(grid, (0, 0), (0, 2)) == (
        6,
        [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2)],
    )


def test_out_of_a_dead_end():
    wall = None
    grid = [
        [1, 1, 1, 1, 1],
        [1, wall, wall, wall, 1],
        [1, 1, 1, wall, 1],
        [wall, wall, wall, wall, 1],
    ]
    answer = cheapest(grid, (2, 0), (2, 4))
    check_route(grid, (2, 0), (2, 4), answer)
    assert answer[0] == 8


def test_random_maps_against_a_slow_way_that_is_surely_right():
    compared = 0
    for seed in range(40):
        grid = random_map(9, seed)
        expected = least_cost(grid, (0, 0), (8, 8))
        if expected is not None:
            answer = cheapest(grid, (0, 0), (8, 8))
            check_route(grid, (0, 0), (8, 8), answer)
            assert answer[0] == expected
            compared += 1
    assert compared > 10
