"""Collectives and traffic of small programs, written in XLA's syntax and counted by hand."""

import dataclasses

import pytest

from ropewalk.tpu.hlo import HOST, Collective, Program

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
    collectives = [(c.kind, c.count, c.num_bytes, c.group) for c in Program(TEXT).collectives()]
    assert sorted(collectives) == [
        ("all-gather", 8, 64 * 32 * 2, 4),
        ("all-reduce", 1, 64 * 32 * 4, 2),
        ("collective-permute", 1, 64 * 32 * 4, 2),
        ("collective-permute", 1, 64 * 32 * 4, 2),  # two, although they share a channel
        ("reduce-scatter", 1, 64 * 32 * 4, 4),
    ]


def test_traffic_with_the_memory():
    """In the loop fusions read and write one layer of the stack, 1 KiB of 8; S(1) is free."""
    layer, gathered, x = 16 * 32 * 2, 64 * 32 * 2, 64 * 32 * 4
    in_loop = layer + 4  # the slice and its index
    in_loop += layer + gathered  # the asynchronous gather's beginning
    in_loop += layer + 4 + layer  # read, and written in place
    outside = 4 * (x + x) + (x + x // 4)
    assert Program(TEXT).memory_bytes() == 8 * in_loop + outside


# Asynchronous instructions list their operands among their results, as libtpu 0.0.42.1 writes
# them: a slice of 64 KiB, a copy to another layout, collectives of one array and, as XLA for GPUs
# writes them, of several, and one block of eight sent to the host's memory, S(5), and fetched.
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
  %host = bf16[8,512]{1,0:S(5)} custom-call(), custom_call_target="AllocateBuffer"
  %row = bf16[1,512]{1,0} bitcast(%x)
  %i = s32[]{:S(6)} constant(3)
  %put = ((bf16[8,512]{1,0:S(5)}, bf16[1,512]{1,0}, s32[]{:S(6)}), bf16[8,512]{1,0:S(5)}, \
u32[]{:S(2)}) dynamic-update-slice-start(%host, %row, %i)
  %kept = bf16[8,512]{1,0:S(5)} dynamic-update-slice-done(%put)
  %get = ((bf16[8,512]{1,0:S(5)}, s32[]{:S(6)}), bf16[1,512]{1,0}, u32[]{:S(2)}) \
dynamic-slice-start(%kept, %i), dynamic_slice_sizes={1,512}
  ROOT %got = bf16[1,512]{1,0} dynamic-slice-done(%get)
}
"""


def test_asynchronous_instructions_count_once():
    program = Program(STARTED)
    moved = 1024 + 65536 + 4096 + 262144 + 65536 + 16384
    assert program.memory_bytes() == 4096 + 2 * 65536 + moved + 1024 + 1024
    assert program.memory_bytes(HOST) == 1024 + 1024
    # The type of a start has the operands and the results of all arrays.
    collectives = [(c.kind, c.num_bytes) for c in program.collectives()]
    assert collectives == [("all-gather", 4096 + 262144), ("reduce-scatter", 65536)]


@pytest.mark.parametrize(
    ("groups", "size", "hosts"),
    [  # of 8 chips each
        ("{{0,8},{1,9}}", 2, 2),
        ("[8,16]<=[16,8]T(1,0)", 16, 16),
        ("mesh['a'=4,'b'=16] {'b'}", 16, 2),
        ("mesh['a'=4,'b'=16] {'a','b'}", 64, 8),
        ("mesh['a'=4,'b'=16] {'b':(2)8}", 8, 1),
        ("mesh['a'=4,'b'=16] {'b':(1)2}", 2, 2),  # the outer half: chips 0 and 8
    ],
)
def test_groups_in_each_notation(groups, size, hosts):
    text = TEXT.replace("{{0,1,2,3}}", groups)
    program = Program(text, chips_per_host=8)
    scatters = [c for c in program.collectives() if c.kind == "reduce-scatter"]
    assert [(c.group, c.hosts) for c in scatters] == [(size, hosts)]


def test_bytes_between_chips_and_hosts():
    """32 chips on 4 hosts: a host receives 3 of 4 parts once, which its 8 chips share."""
    gather = Collective(kind="all-gather", count=2, num_bytes=1024, group=32, hosts=4)
    assert gather.network_bytes == 2 * 1024 * 3 / 4 / 8
    assert gather.wire_bytes == 2 * 1024 * 31 / 32
    reduce = dataclasses.replace(gather, kind="all-reduce")
    permute = dataclasses.replace(gather, kind="collective-permute")
    assert reduce.network_bytes == 2 * 2 * 1024 * 3 / 4 / 8
    assert (reduce.wire_bytes, permute.wire_bytes) == (2 * gather.wire_bytes, 2 * 1024)
    assert dataclasses.replace(gather, hosts=1).network_bytes == 0


def test_xla_knows_the_iterations_of_a_loop():
    """On GPUs the comparison is inside a fusion."""
    loop = "condition=%condition, body=%body"
    known = f'{loop}, backend_config={{"known_trip_count":{{"n":"3"}}}}'
    collectives = Program(TEXT.replace(loop, known)).collectives()
    assert [c.count for c in collectives if c.kind == "all-gather"] == [3]
