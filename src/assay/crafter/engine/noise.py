"""OpenSimplex noise (Spencer 2014) at the points used by world generation.

The terrain always samples thirteen fields at the same 64x64 points; a seed only changes the
gradient of each lattice point. The geometry (which lattice points contribute to a sample, from
where and with what weight) is therefore computed once for all worlds (`geometry`), and a value
is a short weighted sum over it (`noise`). Sums are in the order of the `opensimplex` package,
so that values agree with it to the last bit.
"""

from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from assay.crafter.engine.jit import Ints, Reals, inlined, keep_table, kernel, register, table
from assay.crafter.engine.layout import (
    CAPACITY,
    FLOAT64,
    INT32,
    UINT8,
    UINT16,
    State,
    float64_at,
    int32_at,
    int64_at,
    uint8_at,
    uint16_at,
)
from assay.crafter.engine.layout import FIELDS as THING_FIELDS
from assay.crafter.rules import AREA

BOUND: Final = 1.0
"""Maximum absolute value for any seed; verified by a test."""


class Field(NamedTuple):
    """Sample points of a field: (x * x_scale / size, y * y_scale / size, z)."""

    z: int
    size: int
    x_scale: float = 1
    y_scale: float = 1


FIELDS: Final = {
    "start": Field(8, 3),
    "water": Field(3, 15),
    "water_detail": Field(3, 5),
    "mountain": Field(0, 15),
    "mountain_detail": Field(0, 5),
    "cave": Field(6, 7),
    "tunnel_across": Field(7, 3, 2, 1 / 5),
    "tunnel_down": Field(7, 3, 1 / 5, 2),
    "coal": Field(1, 8),
    "iron": Field(2, 6),
    "lava": Field(6, 5),
    "sand": Field(4, 9),
    "tree": Field(5, 7),
}
"""The fields of the terrain. Field i starts at sample i * AREA * AREA, x-major."""

_STRETCH: Final = -1 / 6
_SQUISH: Final = 1 / 3
_NORM: Final = 103
_SAMPLES: Final = len(FIELDS) * AREA * AREA

_CORNERS: Final = np.array(
    [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 1, 1)]
)

_GRADIENTS: Final = np.array(
    [
        tuple(11 * sign if axis == long else 4 * sign for axis, sign in enumerate(signs))
        for signs in ((x, y, z) for z in (1, -1) for y in (1, -1) for x in (-1, 1))
        for long in range(3)
    ],
    np.float64,
).ravel()
"""24 directions: one long and two short components, in every order of signs."""


def _make_samples() -> NDArray[np.float64]:
    """Return all samples of all fields, shape (13 * 64 * 64, 3)."""
    x, y = (axis.ravel() for axis in np.meshgrid(*2 * [np.arange(AREA)], indexing="ij"))

    def along(cells: NDArray[np.int_], scale: float, size: int) -> NDArray[np.float64]:
        # The reference divides by 5; multiplying by 1/5 would change the last bits.
        return np.asarray((cells * scale if scale >= 1 else cells / (1 / scale)) / size)

    return np.concatenate(
        [
            np.stack(
                [
                    along(x, field.x_scale, field.size),
                    along(y, field.y_scale, field.size),
                    np.full(len(x), float(field.z)),
                ],
                axis=1,
            )
            for field in FIELDS.values()
        ]
    )


def _find_outer_vertices(
    inside: NDArray[np.float64], total: NDArray[np.float64]
) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Return the two lattice points outside its simplex that may contribute to each sample.

    `inside` (n, 3) is the position within the stretched unit cube and `total` (n,) the sum of
    its coordinates. The cube consists of a tetrahedron at each end, mirror images of each
    other, and an octahedron between them.
    """
    row = np.arange(len(inside))
    unit = np.eye(3, dtype=np.int_)
    upper = (total >= 2)[:, None]

    # Tetrahedra: the two nearest of the three neighbours of the end, or the end itself.
    score = np.where(upper, -inside, inside)
    end_score = np.where(upper[:, 0], -(3 - total), 1 - total)
    first, second, third = score.T
    b = np.where((first >= second) & (third > second), 2, 1)
    a = np.where((first < second) & (third > first), 2, 0)
    end_is_near = (end_score > score[row, a]) | (end_score > score[row, b])
    nearest = np.where(score[row, b] > score[row, a], b, a)
    left = np.where(nearest == 0, 1, 0)
    right = np.where(nearest == 2, 1, 2)
    absent = 3 - a - b
    near = end_is_near[:, None]
    tetra0 = np.where(near, unit[nearest] - unit[left], 1 - unit[absent])
    tetra1 = np.where(near, unit[nearest] - unit[right], 1 - 2 * unit[absent])
    tetra0 = np.where(upper, 1 - tetra0, tetra0)
    tetra1 = np.where(upper, 1 - tetra1, tetra1)

    # Octahedron: opposite corners compete per axis; the two clearest winners decide.
    x, y, z = inside.T
    pair = np.stack([y + z, x + z, x + y], axis=1)
    far = pair > 1
    score = np.where(far, pair - 1, 1 - pair)
    a = np.where((score[:, 2] <= score[:, 1]) & (score[:, 2] < score[:, 0]), 0, 2)
    b = np.where((score[:, 2] > score[:, 1]) & (score[:, 1] < score[:, 0]), 0, 1)
    a_far, b_far = far[row, a], far[row, b]
    both, none = (a_far & b_far)[:, None], (~a_far & ~b_far)[:, None]
    absent = 3 - a - b
    octa0 = np.where(both, 1, np.where(none, 0, 1 - 2 * unit[np.where(a_far, a, b)]))
    octa1 = np.where(
        both,
        2 * unit[absent],
        np.where(none, 1 - 2 * unit[absent], 2 * unit[np.where(a_far, b, a)]),
    )
    middle = ((total > 1) & (total < 2))[:, None]
    return np.where(middle, octa0, tetra0), np.where(middle, octa1, tetra1)


class Packed(NamedTuple):
    """The geometry as arrays. Sample i sums over the terms starts[i] to starts[i + 1]."""

    vertices: NDArray[np.uint8]
    """(v, 3): the distinct lattice points, modulo 256."""
    starts: NDArray[np.int32]
    """(samples + 1,)"""
    terms: NDArray[np.uint16]
    """(t,): the vertex whose gradient the term uses."""
    reach: NDArray[np.float64]
    """(t, 4): the weight of a term, and the vector from its vertex to the sample."""


def packed_geometry() -> Packed:
    """Compute which lattice points contribute to which sample, and how."""
    points = _make_samples()
    stretched = points + (points.sum(axis=1) * _STRETCH)[:, None]
    cell = np.floor(stretched)
    inside = stretched - cell
    origin = points - (cell + (cell.sum(axis=1) * _SQUISH)[:, None])
    total = inside.sum(axis=1)
    level = _CORNERS.sum(axis=1)
    in_reach = np.where(
        (total <= 1)[:, None],
        level <= 1,
        np.where((total >= 2)[:, None], level >= 2, (level == 1) | (level == 2)),
    )
    outer = _find_outer_vertices(inside, total)
    corners = [np.broadcast_to(corner, cell.shape) for corner in _CORNERS]
    vertex = np.stack([*corners, *outer], axis=1)  # (samples, 10, 3)
    away = origin[:, None, :] - vertex - (vertex.sum(axis=2) * _SQUISH)[:, :, None]
    squares = away * away
    fade = 2 - squares[..., 0] - squares[..., 1] - squares[..., 2]
    counts = np.concatenate([in_reach, np.ones((_SAMPLES, 2), bool)], axis=1) & (fade > 0)
    fade = (fade * fade) * (fade * fade)
    lattice = (cell[:, None, :] + vertex).astype(np.int64)[counts] & 255
    codes, terms = np.unique(lattice @ np.array([65536, 256, 1]), return_inverse=True)
    vertices = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
    return Packed(
        vertices=vertices.astype(np.uint8),
        starts=np.concatenate([[0], np.cumsum(counts.sum(axis=1))]).astype(np.int32),
        terms=terms.astype(np.uint16),
        reach=np.concatenate([fade[counts][:, None], away[counts]], axis=1),
    )


class Geometry(NamedTuple):
    """The geometry, as kernels see it."""

    vertex_count: int
    vertices: Ints
    starts: Ints
    terms: Ints
    reach: Reals


register(
    Geometry,
    types.NamedTuple([types.int64, UINT8, INT32, UINT16, FLOAT64], Geometry),
)


keep_table("geometry", lambda: packed_geometry()._asdict())


@cache
def _load_geometry() -> tuple[Packed, NDArray[np.int64]]:
    packed = Packed(**table("geometry"))
    assert len(packed.vertices) <= CAPACITY * THING_FIELDS, "scratch memory is too small"
    starts = [array.ctypes.data for array in packed]
    return packed, np.array([*starts, *(array.size for array in packed)], np.int64)


def geometry_address() -> int:
    """Return the address of the geometry for compiled code; valid until the process exits."""
    return int(_load_geometry()[1].ctypes.data)


@inlined
def geometry(address: int) -> Geometry:
    """Return the geometry whose table of addresses and sizes starts at `address`."""
    at = int64_at(address, 8)
    return Geometry(
        at[4] // 3,
        uint8_at(at[0], at[4]),
        int32_at(at[1], at[5]),
        uint16_at(at[2], at[6]),
        float64_at(at[3], at[7]),
    )


@kernel
def choose_gradients(s: State, g: Geometry, seed: int) -> None:
    """Choose the gradient of every lattice point for `seed`.

    `occupants` and `things` are used as scratch memory: the world is still empty.
    """
    permutation, chosen = s.occupants, s.things
    for i in range(256):
        permutation[256 + i] = i
    # Int64 arithmetic wraps around, which the generator of the package relies on.
    for _ in range(3):
        seed = seed * 6364136223846793005 + 1442695040888963407
    for i in range(255, -1, -1):
        seed = seed * 6364136223846793005 + 1442695040888963407
        pick = (seed % (i + 1) + 31) % (i + 1)
        permutation[i] = permutation[256 + pick]
        permutation[256 + pick] = permutation[256 + i]
    for v in range(g.vertex_count):
        code = permutation[g.vertices[3 * v]] + g.vertices[3 * v + 1]
        code = permutation[code & 255] + g.vertices[3 * v + 2]
        chosen[v] = permutation[code & 255] % 24 * 3


@inlined
def noise(s: State, g: Geometry, sample: int) -> float:
    """Return the noise value of a sample, after gradients have been chosen."""
    value = 0.0
    for k in range(g.starts[sample], g.starts[sample + 1]):
        gradient = s.things[g.terms[k]]
        slope = _GRADIENTS[gradient] * g.reach[4 * k + 1]
        slope += _GRADIENTS[gradient + 1] * g.reach[4 * k + 2]
        slope += _GRADIENTS[gradient + 2] * g.reach[4 * k + 3]
        value += g.reach[4 * k] * slope
    return value / _NORM
