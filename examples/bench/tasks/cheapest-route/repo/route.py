"""Ways over a map."""


def cheapest(grid, start, goal):
    """The cost of a route from start to goal, and its fields."""
    fields, cost, at = [start], 0, start
    while at != goal:
        near = [field for field in neighbours(grid, at) if field not in fields]
        if not near:
            return cost, fields
        at = min(near, key=lambda field: abs(field[0] - goal[0]) + abs(field[1] - goal[1]))
        cost += grid[at[0]][at[1]]
        fields.append(at)
    return cost, fields


def neighbours(grid, field):
    """The fields beside one that are no walls."""
    row, column = field
    for near in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
        if 0 <= near[0] < len(grid) and 0 <= near[1] < len(grid[0]):
            if grid[near[0]][near[1]] is not None:
                yield near
