"""NumPy's legacy `RandomState` draws, bit for bit, on the state inside a world.

The generator is MT19937 (Matsumoto and Nishimura 1998). As in NumPy, a block of 624 words is
generated at the first draw that needs it, so that states can be compared word by word.
"""

from assay.crafter.engine.jit import inlined, kernel
from assay.crafter.engine.layout import POSITION, State


@kernel
def seed_generator(s: State, seed: int) -> None:
    """Seed the generator as `RandomState(seed)` does, for a seed below 2^32."""
    word = seed
    s.words[0] = word
    for i in range(1, 624):
        word = (1812433253 * (word ^ (word >> 30)) + i) & 0xFFFFFFFF
        s.words[i] = word
    s.scalars[POSITION] = 624


@inlined
def _twist(current: int, following: int) -> int:
    mixed = (current & 0x80000000) | (following & 0x7FFFFFFF)
    return (mixed >> 1) ^ ((following & 1) * 0x9908B0DF)


@kernel
def _generate_block(s: State) -> None:
    for i in range(227):
        s.words[i] = s.words[i + 397] ^ _twist(s.words[i], s.words[i + 1])
    for i in range(227, 623):
        s.words[i] = s.words[i - 227] ^ _twist(s.words[i], s.words[i + 1])
    s.words[623] = s.words[396] ^ _twist(s.words[623], s.words[0])


@inlined
def _next_word(s: State) -> int:
    position = s.scalars[POSITION]
    if position == 624:
        _generate_block(s)
        position = 0
    s.scalars[POSITION] = position + 1
    word = s.words[position] & 0xFFFFFFFF
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


@kernel
def uniform(s: State) -> float:
    """Draw a float in [0, 1) with 53 random bits."""
    high = _next_word(s) >> 5
    low = _next_word(s) >> 6
    return (high * 67108864.0 + low) / 9007199254740992.0


@kernel
def randint(s: State, count: int) -> int:
    """Draw an integer in [0, count); use no random word if there is only one."""
    highest = count - 1
    if highest == 0:
        return 0
    mask = highest
    mask |= mask >> 1
    mask |= mask >> 2
    mask |= mask >> 4
    mask |= mask >> 8
    mask |= mask >> 16
    while True:
        value = _next_word(s) & mask
        if value <= highest:
            return value
