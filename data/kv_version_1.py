"""Key-value documents of version 1 (`data.documents=1`): pairs in slots of two ids.

Runs with these documents resume and evaluate bit for bit as before. Distances are odd, and the
number of answers grows with the length up to 64. `data.tasks.kv` makes documents of version 2.
"""

import numpy as np

from data.task import Document, TaskContext, distances, possible
from data.tokenizer import NUM_KEYS, NUM_VALUES


def document(context: TaskContext, random: np.random.Generator) -> Document:
    """Return pairs at random distances, if they fit, and fillers in the other slots."""
    tokenizer = context.tokenizer
    num_slots = context.length // 2
    num_pairs = min(NUM_KEYS, num_slots // 2)
    nearest, farthest = 1, num_slots - 1  # in slots; a distance of n slots is 2 n - 1 tokens
    if context.distances is not None:
        low, high = possible(1, 2 * farthest - 1, context.distances)
        nearest, farthest = low // 2 + 1, max(low // 2 + 1, (high + 1) // 2)
    wanted = distances(random, num_pairs, nearest, farthest)
    # Far distances first, because they have the fewest positions.
    slots = place_pairs(-np.sort(-wanted), num_slots, random)

    keys = tokenizer.keys[random.permutation(NUM_KEYS)[:num_pairs]]
    values = tokenizer.values[random.integers(NUM_VALUES, size=num_pairs)]
    tokens = np.empty(1 + 2 * num_slots, np.int32)
    tokens[0] = tokenizer.bos_id
    if 2 * num_pairs < num_slots:
        fillers = random.integers(len(tokenizer.fillers), size=2 * num_slots)
        tokens[1:] = tokenizer.fillers[fillers]
    first, second = 1 + 2 * slots  # indices of the keys
    for starts in (first, second):
        tokens[starts], tokens[starts + 1] = keys, values
    # The logits at the second key predict the value after the first key.
    answers = np.stack([second + 1, np.ones_like(second), second - (first + 1)], axis=1)
    return Document.from_lists(tokens, answers[np.argsort(second)])


def place_pairs(wanted: np.ndarray, num_slots: int, random: np.random.Generator) -> np.ndarray:
    """Return the first and second slot of every pair, int64 `[2, pairs]`.

    The bits of one integer are a set of slots, so "both ends are free" is a shift and an AND. A
    distance that does not fit becomes the nearest distance that fits from the first free slot.
    """
    free = (1 << num_slots) - 1
    pairs = []
    starts = random.integers(num_slots, size=len(wanted)).tolist()
    for distance, start in zip(wanted.tolist(), starts, strict=True):
        fitting = free & (free >> distance)
        if fitting:
            later = fitting >> start << start  # the first from a random slot on
            slot = _lowest(later or fitting)
        else:
            slot = _lowest(free)
            above = free >> (slot + 1)
            far, near = above >> (distance - 1), above & ((1 << (distance - 1)) - 1)
            gaps = [distance + _lowest(far)] if far else []
            gaps += [near.bit_length()] if near else []
            distance = min(gaps, key=lambda gap: abs(gap - distance))
        free &= ~(1 << slot | 1 << (slot + distance))
        pairs.append((slot, slot + distance))
    return np.array(pairs).T


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1
