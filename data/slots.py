"""Key-value documents of version 1 (`data.documents=1`): pairs in slots of two ids.

Kept to the bit, so that runs made with them resume and are asked as before. Distances are odd, and
the number of answers grows with the length up to 64: `data.tasks.kv` makes today's.
"""

import numpy as np

from data.task import Document, TaskContext, distances, possible
from data.tokenizer import NUM_KEYS, NUM_VALUES


def document(context: TaskContext, random: np.random.Generator) -> Document:
    """Slots of two ids: pairs of the wished distances where they fit, filler in the rest."""
    tokenizer = context.tokenizer
    num_slots = context.length // 2
    num_pairs = min(NUM_KEYS, num_slots // 2)
    nearest, farthest = 1, num_slots - 1  # in slots: keys stand 2 tokens a slot apart, less one
    if context.distances is not None:
        low, high = possible(1, 2 * farthest - 1, context.distances)
        nearest, farthest = low // 2 + 1, max(low // 2 + 1, (high + 1) // 2)
    wished = distances(random, num_pairs, nearest, farthest)
    # Far ones first: they have the fewest places.
    slots = place(-np.sort(-wished), num_slots, random)

    keys = tokenizer.keys[random.permutation(NUM_KEYS)[:num_pairs]]
    values = tokenizer.values[random.integers(NUM_VALUES, size=num_pairs)]
    tokens = np.empty(1 + 2 * num_slots, np.int32)
    tokens[0] = tokenizer.bos_id
    if 2 * num_pairs < num_slots:
        fillers = random.integers(len(tokenizer.fillers), size=2 * num_slots)
        tokens[1:] = tokenizer.fillers[fillers]
    first, second = 1 + 2 * slots  # where the keys stand
    for at in (first, second):
        tokens[at], tokens[at + 1] = keys, values
    # The second key's logits must give what follows the first key.
    answers = np.stack([second + 1, np.ones_like(second), second - (first + 1)], axis=1)
    return Document.from_lists(tokens, answers[np.argsort(second)])


def place(wished: np.ndarray, num_slots: int, random: np.random.Generator) -> np.ndarray:
    """Two free slots for every wished distance: int64 `[2, pairs]`, earlier ones first.

    Sets of slots are the bits of one integer, which makes "both ends free" a shift and an and. A
    distance that no longer fits becomes the nearest that does, from the first free slot.
    """
    free = (1 << num_slots) - 1
    pairs = []
    starts = random.integers(num_slots, size=len(wished)).tolist()
    for distance, start in zip(wished.tolist(), starts, strict=True):
        fitting = free & (free >> distance)
        if fitting:
            later = fitting >> start << start  # a random one: the first from a random slot on
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
