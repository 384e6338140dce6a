"""Collectives of small programs, written in XLA's syntax and counted by hand."""

import dataclasses

from ropewalk.tpu.hlo import Collective, collectives

# Parameters bf16 [64, 32] gathered from 4 chips in a loop of 8, an all-reduce kept in slices, and
# an asynchronous gather that appears in two fusions with one channel.
TEXT = """\
HloModule jit_step, is_scheduled=true

%all-reduce-scatter (input: f32[64,32]) -> f32[16,32] {
  %input = f32[64,32]{1,0} parameter(0)
  %all-reduce.1 = f32[64,32]{1,0} all-reduce(%input), channel_id=3, replica_groups={{0,1,2,3}}
  ROOT %slice = f32[16,32]{1,0} dynamic-slice(%all-reduce.1), dynamic_slice_sizes={16,32}
}

%start (p: bf16[16,32]) -> (bf16[16,32], bf16[64,32]) {
  %p = bf16[16,32]{1,0} parameter(0)
  %all-gather.1 = bf16[64,32] all-gather(%p), channel_id=2, replica_groups=mesh['x'=2,'y'=4] {'y'}
  ROOT %made = (bf16[16,32], bf16[64,32]) custom-call(%all-gather.1)
}

%finish (q: bf16[16,32]) -> bf16[64,32] {
  %q = bf16[16,32]{1,0} parameter(0)
  %all-gather.2 = bf16[64,32] all-gather(%q), channel_id=2, replica_groups=mesh['x'=2,'y'=4] {'y'}
  ROOT %done = bf16[64,32]{1,0} custom-call(%all-gather.2)
}

%take (stack: bf16[8,16,32], index: s32[]) -> bf16[16,32] {
  %stack = bf16[8,16,32]{2,1,0} parameter(0)
  %index = s32[] parameter(1)
  ROOT %taken = bf16[1,16,32]{2,1,0} dynamic-slice(%stack, %index), dynamic_slice_sizes={1,16,32}
}

%outer (stack2: bf16[8,16,32], index2: s32[], new: bf16[1,16,32]) -> bf16[8,16,32] {
  %stack2 = bf16[8,16,32]{2,1,0} parameter(0)
  %index2 = s32[] parameter(1)
  %new = bf16[1,16,32]{2,1,0} parameter(2)
  %same = bf16[8,16,32]{2,1,0} bitcast(%stack2)
  %old = bf16[1,16,32]{2,1,0} fusion(%same, %index2), kind=kLoop, calls=%take
  %both = bf16[1,16,32]{2,1,0} add(%old, %new)
  %put = bf16[8,16,32]{2,1,0} dynamic-update-slice(%stack2, %both, %index2)
  ROOT %put2 = bf16[8,16,32]{2,1,0} bitcast(%put)
}

%condition (s: (s32[], bf16[8,16,32])) -> pred[] {
  %s = (s32[], bf16[8,16,32]{2,1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %eight = s32[] constant(8)
  ROOT %less = pred[] compare(%i, %eight), direction=LT
}

%body (t: (s32[], bf16[8,16,32])) -> (s32[], bf16[8,16,32]) {
  %t = (s32[], bf16[8,16,32]{2,1,0}) parameter(0)
  %j = s32[] get-tuple-element(%t), index=0
  %all = bf16[8,16,32]{2,1,0} get-tuple-element(%t), index=1
  %mine = bf16[1,16,32]{2,1,0:T(8,128)S(1)} fusion(%all, %j), kind=kLoop, calls=%take
  %begun = (bf16[16,32], bf16[64,32]) fusion(%mine), kind=kCustom, calls=%start
  %ended = bf16[64,32]{1,0:T(8,128)S(1)} fusion(%mine), kind=kCustom, calls=%finish
  %changed = bf16[8,16,32]{2,1,0} fusion(%all, %j, %mine), kind=kLoop, calls=%outer
  ROOT %next = (s32[], bf16[8,16,32]{2,1,0}) tuple(%j, %changed)
}

ENTRY %main (x: f32[64,32], w: bf16[8,16,32]) -> f32[16,32] {
  %x = f32[64,32]{1,0} parameter(0)
  %w = bf16[8,16,32]{2,1,0} parameter(1)
  %zero = s32[] constant(0)
  %init = (s32[], bf16[8,16,32]{2,1,0}) tuple(%zero, %w)
  %loop = (s32[], bf16[8,16,32]{2,1,0}) while(%init), condition=%condition, body=%body
  %moved = f32[64,32]{1,0} collective-permute(%x), channel_id=7, source_target_pairs={{0,1},{1,0}}
  %again = f32[64,32]{1,0} collective-permute(%x), channel_id=7, source_target_pairs={{0,1},{1,0}}
  %alone = f32[64,32]{1,0} all-reduce(%moved), channel_id=8, replica_groups={{0},{1}}, to_apply=%add
  %pair = f32[64,32]{1,0} all-reduce(%x), channel_id=9, replica_groups=[4,2]<=[8], to_apply=%add
  ROOT %out = f32[16,32]{1,0} fusion(%pair), kind=kCustom, calls=%all-reduce-scatter
}
"""


def test_collectives_count_once_per_execution():
    assert sorted((c.kind, c.count, c.num_bytes, c.group) for c in collectives(TEXT)) == [
        ("all-gather", 8, 64 * 32 * 2, 4),
        ("all-reduce", 1, 64 * 32 * 4, 2),
        ("collective-permute", 1, 64 * 32 * 4, 2),
        ("collective-permute", 1, 64 * 32 * 4, 2),  # two, although they share a channel
        ("reduce-scatter", 1, 64 * 32 * 4, 4),
    ]


# Asynchronous instructions list their operands among their results, as libtpu 0.0.42.1 writes
# them: a slice of 64 KiB, a copy to another layout, and collectives of one array and, as XLA for
# GPUs writes them, of several.
STARTED = """\
ENTRY %main (x: s8[65536]) -> f32[8] {
  %x = s8[65536]{0} parameter(0)
  %slice = ((s8[65536]{0}), s8[4096]{0:T(1024)S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:4096]}
  %fetched = s8[4096]{0:T(1024)S(1)} slice-done(%slice)
  %turn = (s8[65536]{0:T(128)}, s8[65536]{0}, u32[]{:S(2)}) copy-start(%x)
  %turned = s8[65536]{0:T(128)} copy-done(%turn)
  %both = ((s8[1024], s8[65536]), (s8[4096], s8[262144])) all-gather-start(%row, %turned), \
replica_groups={{0,1,2,3}}
  %gathered = (s8[4096], s8[262144]) all-gather-done(%both)
  %scatter = ((s8[65536]), s8[16384]) reduce-scatter-start(%x), replica_groups={{0,1,2,3}}
  %scattered = s8[16384]{0} reduce-scatter-done(%scatter)
}
"""


def test_asynchronous_instructions_count_once():
    """The type of a start has the operands and the results of all arrays."""
    found = [(c.kind, c.num_bytes) for c in collectives(STARTED)]
    assert found == [("all-gather", 4096 + 262144), ("reduce-scatter", 65536)]


def test_bytes_that_a_chip_receives():
    """A device receives 31 of 32 parts; an all-reduce is a scatter and a gather."""
    gather = Collective(kind="all-gather", count=2, num_bytes=1024, group=32)
    reduce = dataclasses.replace(gather, kind="all-reduce")
    permute = dataclasses.replace(gather, kind="collective-permute")
    assert gather.received == 2 * 1024 * 31 / 32
    assert (reduce.received, permute.received) == (2 * gather.received, 2 * 1024)


def test_xla_knows_the_iterations_of_a_loop():
    """On GPUs the comparison is inside a fusion."""
    loop = "condition=%condition, body=%body"
    known = f'{loop}, backend_config={{"known_trip_count":{{"n":"3"}}}}'
    found = collectives(TEXT.replace(loop, known))
    assert [c.count for c in found if c.kind == "all-gather"] == [3]
