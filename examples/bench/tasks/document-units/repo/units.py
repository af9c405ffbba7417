"""Units, and how to write them."""

_STEPS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_SIZES = ("B", "kB", "MB", "GB", "TB")


def celsius(fahrenheit):
    return round((fahrenheit - 32) * 5 / 9, 2)


def kilometres(miles, digits=1):
    return round(miles * 1.609344, digits)


def duration(seconds):
    if seconds < 0:
        raise ValueError(f"a duration is not negative: {seconds}")
    parts, left = [], int(seconds)
    for name, length in _STEPS:
        count, left = divmod(left, length)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts) or "0 s"


def size(count, binary=False):
    if count < 0:
        raise ValueError(f"a size is not negative: {count}")
    step = 1024 if binary else 1000
    for name in _SIZES[:-1]:
        if count < step:
            return _written(count, name)
        count /= step
    return _written(count, _SIZES[-1])


def _written(count, name):
    return f"{count:.3g} {name}"
