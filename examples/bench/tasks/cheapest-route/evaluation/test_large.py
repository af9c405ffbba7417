import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from maps import check_route, random_map
from program import timed


def test_a_large_map_is_solved_in_time():
    grid = random_map(200, 7)
    answer, seconds = timed(grid, (0, 0), (199, 199))
    check_route(grid, (0, 0), (199, 199), answer)
    assert answer[0] == 1369
    assert seconds < 5
