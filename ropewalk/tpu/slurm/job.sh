#!/usr/bin/env bash
# The batch script of tpu/slurm/submit.sh: one process per GPU; requeues a job that ran out of time.
#
# usage: sbatch [flags] tpu/slurm/job.sh PROGRAM ARGUMENTS...
#
#   PROGRAM             a file of this repository, or -m and a module; an argument @ is replaced by
#                       the number of the array's task
#   -n, --dry-run       print the command that the job would run
#   -h, --help          this text

set -euo pipefail
# sbatch runs a copy of this file in the folder from which it was submitted.
source ropewalk/tpu/common.sh

case ${1:---help} in
  -h | --help) usage && exit 0 ;;
  -n | --dry-run) dry_run=true && shift ;;
esac
program=()
for argument in "$@"; do
  [[ $argument != @ ]] || argument=${SLURM_ARRAY_TASK_ID:?"argument @ needs an array job"}
  program+=("$argument")
done

# All processes of a node see its GPUs; JAX gives each process the GPU of its local number. Since SLURM
# 22.05 srun does not inherit the CPUs per task from the job.
cpus=()
[[ -z ${SLURM_CPUS_PER_TASK-} ]] || cpus=("--cpus-per-task=$SLURM_CPUS_PER_TASK")
step=(srun --kill-on-bad-exit=1 ${cpus[@]+"${cpus[@]}"} "${PYTHON:-.venv/bin/python}" "${program[@]}")
if $dry_run; then
  run "${step[@]}"
  exit
fi

export ROPEWALK_GOES_ON='tpu/slurm/job.sh requeues it after a time limit.'
late=false stopping=false terminated=false
trap 'late=true' USR1       # the limit is near
trap 'terminated=true' TERM # preempted, canceled or out of time; the processes get this signal too

# In an array the last task's SLURM_JOB_ID is that of the array, which would address all tasks.
job=$SLURM_JOB_ID
[[ -z ${SLURM_ARRAY_JOB_ID-} ]] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

"${step[@]}" &
pid=$!

stop_step() { # asks the processes to save and end with status 130; fails if SLURM does not answer
  local steps
  steps=$(squeue --noheader --steps --jobs="$job" --format=%i) || return 1
  # If the step does not exist yet, scancel succeeds without effect, so srun is ended instead.
  if [[ $steps == *"$job.0"* ]]; then scancel --signal=TERM "$job.0"; else kill "$pid"; fi
}

while true; do # a signal ends the wait, not the step
  if $late && ! $stopping; then
    if stop_step 2> /dev/null; then stopping=true; else sleep 1; fi
  fi
  if $stopping || ! $late; then wait "$pid" || true; fi
  kill -0 "$pid" 2> /dev/null || break
done
status=0
wait "$pid" || status=$?

# A run that succeeded, or failed by itself (status 1 or 2), is not restarted.
if $late && ((status > 2)); then
  # A job that was canceled while it saved is not requeued.
  if ! $terminated || [[ $(scontrol show job --oneliner "$job") == *Reason=TimeLimit* ]]; then
    echo "back to the queue: the run continues from its checkpoint" >&2
    scontrol requeue "$job"
  fi
elif ((status == 130)); then
  echo "saved; submit the same command again to continue" >&2
fi
exit "$status"
