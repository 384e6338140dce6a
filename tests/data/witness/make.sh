#!/usr/bin/env bash
# Made the runs of witness.tar.xz, with the code of version 2 of the rows (`data.packing`; JAX 0.10.2,
# Python 3.11). Each stops short of its end: metrics.jsonl has the losses of the steps that a test trains again.
set -euo pipefail
out=$1
common="data.source=jsonl data.path=tests/data/witness/text.jsonl data.vocab_size=512
  data.context_length=64 data.batch_size=4 model.vocab_size=512 model.embed_dim=6 model.mlp_dim=6
  model.head_dim=8 train.keep=2 train.num_steps=16 train.save_every=12 evals.documents=2"
python sweep.py tiny --workdir "$out/sweep" $common model.num_heads=4 model.num_kv_heads=2 \
  "model.rotary=rope(base=100),[rope(base=30),nope]"
python train.py mla_tiny --workdir "$out/mla" $common model.head_dim=16 model.mla.kv_lora_rank=8 \
  model.mla.q_lora_rank=8 model.mla.qk_nope_head_dim=8 model.mla.qk_rope_head_dim=8 \
  model.mla.v_head_dim=8 \
  "model.rotary=yarn(base=100,factor=4,original_context_length=64,mscale=1,mscale_all_dim=0)"
python train.py tiny --workdir "$out/stages" $common train.num_steps=6 train.save_every=10 \
  "stages=[[data.context_length=96,train.num_steps=6,model.rotary.base=1000]]"
rm -r "$out"/*/checkpoints/16 "$out"/sweep/*/checkpoints/16 "$out"/stages/checkpoints/12
python evaluate.py "$out/sweep" "$out/mla"
python evaluate.py "$out/stages" --step 6,10
tar -C "$out" -cJf tests/data/witness/witness.tar.xz .
