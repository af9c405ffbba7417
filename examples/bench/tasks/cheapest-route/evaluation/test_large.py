import os
import sys

sys.path[:0] = [os.getcwd(), os.path.dirname(os.path.abspath(__file__))]

import time

from maps import check_route, random_map
from route import cheapest


def test_a_large_map_is_solved_in_time():
    grid = random_map(200, 7)
    began = time.process_time()
    answer = cheapest(grid, (0, 0), (199, 199))
    seconds = time.process_time() - began
    check_route(grid, (0, 0), (199, 199), answer)
    assert answer[0] == 1369
    assert seconds < 5
