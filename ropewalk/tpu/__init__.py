"""Machines with TPUs and GPUs: jobs on them, and what a step takes before one is started.

create.sh ... delete.sh   a TPU slice: create, set up, run, logs, status, fetch, stop, delete
apply.sh, jobset.py       JobSets on GKE (jobset.yaml is their template)
slurm/                    jobs on a SLURM cluster
aot.py                    compile a step for absent chips: compiled.py compiles it, hlo.py reads
                          its collectives, topology.py has the chips (*.toml)
benchmarks/               speed of a step, of sweeps, and beside transformers
"""
