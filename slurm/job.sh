#!/usr/bin/env bash
# What a job of slurm/submit.sh runs: one process per GPU, and back to the queue if it had to stop.
#
# usage: sbatch [flags] slurm/job.sh PROGRAM ARGUMENTS...
#
#   PROGRAM             a file of this repository, or -m and a module; an argument @ becomes the
#                       number of the array's task
#   -n, --dry-run       print the command that the job would run
#   -h, --help          this text

set -euo pipefail
# sbatch runs a copy of this file, in the folder it was submitted from.
source tpu/common.sh

case ${1:---help} in
  -h | --help) usage && exit 0 ;;
  -n | --dry-run) dry_run=true && shift ;;
esac
program=()
for argument in "$@"; do
  [[ $argument != @ ]] || argument=${SLURM_ARRAY_TASK_ID:?"no array job, and an argument is @"}
  program+=("$argument")
done

# The GPUs stay visible to all processes of a node: JAX gives each the one of its local number. srun
# takes the CPUs of a task from the job by itself up to SLURM 22.02 only.
cpus=()
[[ -z ${SLURM_CPUS_PER_TASK-} ]] || cpus=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
step=(srun --kill-on-bad-exit=1 ${cpus[@]+"${cpus[@]}"} "${PYTHON:-.venv/bin/python}" "${program[@]}")
if $dry_run; then
  run "${step[@]}"
  exit
fi

export ROPEWALK_GOES_ON='slurm/job.sh says how it goes on.'
late=false asked=false told=false
trap 'late=true' USR1 # the limit is near
trap 'told=true' TERM # preempted, cancelled or out of time: the processes have the signal too

# Of an array, the last task's SLURM_JOB_ID is the array's own number, by which SLURM takes all tasks.
job=$SLURM_JOB_ID
[[ -z ${SLURM_ARRAY_JOB_ID-} ]] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

"${step[@]}" &
pid=$!

ask() { # the processes to save and end, with status 130; fails where SLURM does not answer
  local steps
  steps=$(squeue --noheader --steps --jobs="$job" --format=%i) || return 1
  # scancel calls it a success if there is no such step yet: then srun alone is ended.
  if [[ $steps == *"$job.0"* ]]; then scancel --signal=TERM "$job.0"; else kill "$pid"; fi
}

while true; do # a signal ends the wait, not the step
  if $late && ! $asked; then
    if ask 2> /dev/null; then asked=true; else sleep 1; fi
  fi
  if $asked || ! $late; then wait "$pid" || true; fi
  kill -0 "$pid" 2> /dev/null || break
done
status=0
wait "$pid" || status=$?

# A run that ended by itself is not begun again: done, or refused, which it would be again.
if $late && ((status > 2)); then
  # Who cancels a job while it saves does not want it back. SLURM forgets nothing that it can be asked.
  if ! $told || [[ $(scontrol show job --oneliner "$job") == *Reason=TimeLimit* ]]; then
    echo "back to the queue: the run goes on from where it was saved" >&2
    scontrol requeue "$job"
  fi
elif ((status == 130)); then
  echo "saved; submit the same again to go on" >&2
fi
exit "$status"
