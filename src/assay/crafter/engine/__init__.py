"""The compiled engine: the whole game as numba kernels on flat memory.

    jit        compilation, once per machine, and its cache
    layout     memory layout of one world
    mt19937    random numbers, identical to NumPy's RandomState
    numerics   exp and daylight, identical on every machine
    noise      terrain noise
    worldgen   world generation
    grid       things on cells
    player     actions and needs of the player
    creatures  behaviour of creatures, arrows and plants
    balance    spawning and despawning
    packing    a world as canonical bytes, and back
    digest     hash of a state
    look       reading a world
    entries    functions called from Python: reset and step, for one world or many

Each module imports only from those above it. Arguments are not checked here: `World`, `Batch`
and `snapshot` do that.
"""
