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

# The GPUs stay visible to all processes of a node: JAX gives each the one of its local number.
step=(srun --kill-on-bad-exit=1 "${PYTHON:-.venv/bin/python}" "${program[@]}")
if $dry_run; then
  run "${step[@]}"
  exit
fi

stopping=false
# shellcheck disable=SC2329  # the trap calls it
stop() { # the limit is near: training saves and ends with status 130
  stopping=true
  scancel --signal=TERM "$SLURM_JOB_ID.0"
}
trap stop USR1
trap : TERM # preempted or cancelled: the processes have the signal too, and are waited for

"${step[@]}" &
pid=$!
while true; do # a signal ends the wait, not the step
  status=0
  wait "$pid" || status=$?
  kill -0 "$pid" 2> /dev/null || break
done
if $stopping && ((status)); then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
