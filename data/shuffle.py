"""Random and interleaved orders of rows, computed for any index without state.

Both orders equal grain's bit for bit, so that rows keep their numbers. Training from a finished
store needs no grain.
"""

import functools
from collections.abc import Sequence

_WORD = 0xFFFFFFFF  # std::seed_seq counts in 32 bits


def shuffled(index: int, count: int, seed: int) -> int:
    """Return element `index` of the permutation of 0 ... count - 1 that `seed` (32 bits) decides.

    Applies four rounds of the Simon cipher (Beaulieu et al., eprint 2013/404) on blocks that hold
    `count`, again and again until the value is below `count`: `grain.experimental.index_shuffle`.
    """
    if count == 1:
        return 0
    # ceil(log2(count - 1)), at least 16 and even, as two words.
    half = max(16, (count - 2).bit_length() + 1) // 2
    mask = (1 << half) - 1

    def mix(x: int) -> int:
        by_1, by_2, by_8 = (x << n | x >> (half - n) for n in (1, 2, 8))  # rotations
        return ((by_1 & by_8) ^ by_2) & mask

    while True:
        left, right = index >> half & mask, index & mask
        for first, second in _round_keys(seed):
            left ^= mix(right) ^ (first & mask)
            right ^= mix(left) ^ (second & mask)
        index = left << half | right
        if index < count:
            return index


@functools.lru_cache(maxsize=64)
def _round_keys(seed: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return four words of C++'s `std::seed_seq` for one word of seed ([rand.util.seedseq])."""
    keys = [0x8B8B8B8B] * 4

    def scrambled(k: int, sign: int) -> int:
        before, word = keys[(k - 1) % 4], keys[k % 4]
        x = word ^ keys[(k + 1) % 4] ^ before if sign > 0 else word + keys[(k + 1) % 4] + before
        return (1664525 if sign > 0 else 1566083941) * (x ^ (x & _WORD) >> 27) & _WORD

    for k in range(4):
        first = scrambled(k, 1)
        second = first + (1 if k == 0 else k + seed if k == 1 else k)
        keys[(k + 1) % 4] = keys[(k + 1) % 4] + first & _WORD
        keys[(k + 2) % 4] = keys[(k + 2) % 4] + second & _WORD
        keys[k] = second & _WORD
    for k in range(4, 8):
        third = scrambled(k, -1)
        fourth = third - k % 4
        keys[(k + 1) % 4] ^= third
        keys[(k + 2) % 4] ^= fourth & _WORD
        keys[k % 4] = fourth & _WORD
    return (keys[0], keys[1]), (keys[2], keys[3])


def interleaved(index: int, weights: Sequence[float]) -> tuple[int, int]:
    """Return the sequence that holds element `index` of a mixture, and the index in that sequence.

    Any stretch of the mixture holds each sequence's share: `grain.MapDataset.mix`.
    """
    counts = [int(weight * (100 / min(weights))) for weight in weights]
    left, count, count_after = sum(counts), index, index + 1
    for sequence, weight in enumerate(counts):
        # How many of the first `count` elements come from later sequences.
        later, later_after = (x * (left - weight) // left for x in (count, count_after))
        if count - later != count_after - later_after:
            return sequence, count - later
        left, count, count_after = left - weight, later, later_after
    raise ValueError(f"weights {weights} have no element {index}")
