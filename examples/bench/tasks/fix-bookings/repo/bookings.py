"""When a room is taken, from the bookings that were made for it."""


def merge(bookings):
    """The times at which the room is taken, as pairs of hours."""
    taken = []
    for start, end in bookings:
        if taken and start < taken[-1][1]:
            taken[-1] = (taken[-1][0], end)
        else:
            taken.append((start, end))
    return taken


def free_hours(bookings, opens=8, closes=20):
    """The times between `opens` and `closes` at which nobody has the room."""
    free = []
    at = opens
    for start, end in merge(bookings):
        if start > at:
            free.append((at, min(start, closes)))
        at = max(at, end)
    if at < closes:
        free.append((at, closes))
    return free
