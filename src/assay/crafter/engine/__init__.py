"""The compiled engine: the whole game as numba kernels on flat memory.

    jit        compiling once per machine, and the cache of it
    layout     the memory of one world
    mt19937    random numbers, as NumPy's RandomState draws them
    numerics   exp and daylight, the same on every machine
    noise      terrain noise
    worldgen   making a world
    grid       things on cells
    player     what an action does
    creatures  what everything else does
    balance    what appears and disappears
    packing    a world as canonical bytes, and back
    digest     a number for a state
    look       reading a world
    entries    what Python calls: reset and step, one world or many

Each module imports only from those above it. Nothing here checks what it is given: that
is the task of `World`, `Batch` and `snapshot`.
"""
