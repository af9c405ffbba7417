"""Maps for the tests, and what any right answer on them has in common."""

import random


def random_map(size, seed, walls=0.2):
    """A square map whose corners are free; random numbers of one seed are the same anywhere."""
    source = random.Random(seed)
    grid = [
        [None if source.random() < walls else source.randint(1, 9) for _ in range(size)]
        for _ in range(size)
    ]
    grid[0][0] = grid[-1][-1] = 1
    return grid


def least_cost(grid, start, goal):
    """The least cost, by going over the whole map until nothing changes any more."""
    least = {start: 0}
    changed = True
    while changed:
        changed = False
        for row, cells in enumerate(grid):
            for column, cost in enumerate(cells):
                if cost is None:
                    continue
                near = ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
                known = [least[field] for field in near if field in least]
                if known and min(known) + cost < least.get((row, column), float("inf")):
                    least[row, column] = min(known) + cost
                    changed = True
    return least.get(goal)


def check_route(grid, start, goal, answer):
    """That the fields of an answer are a route, and have the cost that it names."""
    cost, fields = answer
    fields = [tuple(field) for field in fields]
    assert fields[0] == start
    assert fields[-1] == goal
    for (row, column), (next_row, next_column) in zip(fields, fields[1:]):
        assert abs(row - next_row) + abs(column - next_column) == 1
    assert sum(grid[row][column] for row, column in fields[1:]) == cost
