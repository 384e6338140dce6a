#!/usr/bin/env bash
# Submits a run or a sweep to a SLURM cluster.
#
# usage: tpu/slurm/submit.sh MODE [options] CONFIG --workdir DIR [dotted.field=value ...]
#
#   MODE                members   an array job: each member of the sweep is a task of its own
#                       sweep     one job for all members, in one program (sweep.py)
#                       run       one job for one run (train.py)
#   --nodes N           of each task or job (default: 1)
#   --gpus N            of each node (default: 8); 0: one process a node, on its CPUs
#   --cpus N            of each process (default: 8; the default of SLURM is one)
#   --at-once N         members: this many tasks at a time (default: all)
#   --report            after all jobs succeeded, evaluate and then report, each in a job that waits
#                       for the previous one; it is canceled if that fails
#   --time T            time limit in a notation of sbatch, 5 minutes or more; at the limit the job
#                       saves and returns to the queue (default: 24:00:00)
#   --own FILE.py       a file of your code that the programs may execute; may be repeated
#   --partition P       partition and account of the cluster
#   --account A
#   --sbatch FLAG       any other flag of sbatch; may be repeated
#   -n, --dry-run       print the command and submit nothing
#   -h, --help          this text
#
#   tpu/slurm/submit.sh members --gpus 1 base_30m --workdir runs/bases model.rotary.base=1e2,1e4,1e6
#   tpu/slurm/submit.sh sweep --nodes 2 base_125m --workdir runs/bases mesh.sweep=2 \
#     model.rotary.base=1e2,1e4
#
# DIR must be on a disk that all nodes share, or in a bucket. There is one process per GPU;
# jax.distributed connects them. A job that is preempted or runs out of time saves, returns to the
# queue and continues.
# Python is .venv/bin/python, or $PYTHON.

set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$folder/../common.sh"

# Sets `margin`: seconds between the signal to a job and its time limit (in a notation of sbatch).
find_margin() { # TIME
  local number='([0-9]+)' seconds
  if [[ $1 =~ ^$number-$number(:$number)?(:$number)?$ ]]; then
    set -- "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[4]:-0}" "${BASH_REMATCH[6]:-0}"
  elif [[ $1 =~ ^$number:$number:$number$ ]]; then
    set -- 0 "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}" "${BASH_REMATCH[3]}"
  elif [[ $1 =~ ^$number(:$number)?$ ]]; then
    set -- 0 0 "${BASH_REMATCH[1]}" "${BASH_REMATCH[3]:-0}"
  elif [[ ${1^^} =~ ^(UNLIMITED|INFINITE)$ ]]; then
    set -- 1 0 0 0
  else
    fail "--time $1 is not a time limit of sbatch, such as 30, 1:00:00 or 2-00:00:00"
  fi
  seconds=$((((10#$1 * 24 + 10#$2) * 60 + 10#$3) * 60 + 10#$4))
  # SLURM may send the signal a minute early, and a start takes a minute.
  ((seconds >= 300)) || fail "--time is shorter than 5 minutes: too short to start, train and save"
  margin=$((seconds / 4 < 600 ? seconds / 4 : 600))
}

number() { # LEAST --OPTION VALUE
  value "${@:2}"
  [[ $3 =~ ^(0|[1-9][0-9]{0,5})$ ]] || fail "$2 $3 is not a whole number"
  (($3 >= $1)) || fail "$2 $3 is below $1"
}

nodes=1 gpus='' cpus=8 at_once='' time=24:00:00 workdir='' flags=() own=() report=false
while (($#)); do
  case $1 in
    --nodes) number 1 "$@" && nodes=$2 && shift 2 ;;
    --gpus) number 0 "$@" && gpus=$2 && shift 2 ;;
    --cpus) number 1 "$@" && cpus=$2 && shift 2 ;;
    --report) report=true && shift ;;
    --at-once) number 1 "$@" && at_once=%$2 && shift 2 ;;
    --time) value "$@" && time=$2 && shift 2 ;;
    --partition | --account) value "$@" && flags+=("$1=$2") && shift 2 ;;
    --sbatch) value "$@" && flags+=("$2") && shift 2 ;;
    --workdir) value "$@" && workdir=$2 && shift 2 ;;
    --own) value "$@" && own+=("$1" "$2") && shift 2 ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
set -- ${words[@]+"${words[@]}"}
(($# >= 2)) && [[ -n $workdir ]] || fail "needs MODE CONFIG --workdir DIR; see --help"
find_margin "$time"
mode=$1 name=$2
arguments=("$name" --workdir "$workdir" "${@:3}" ${own[@]+"${own[@]}"})
cd "$folder/../../.."
export PYTHON=${PYTHON:-.venv/bin/python}

# Check the command line now, not when the job starts.
tasks='' # one name per line
# The machine that submits has other devices than the job, whose processes have one each.
devices=$((nodes * (${gpus:-8} ? ${gpus:-8} : 1)))
check=(--check --devices "$devices" --num-processes "$devices")
case $mode in
  members | sweep)
    tasks=$("$PYTHON" sweep.py --list-members "${arguments[@]}") || exit 2
    program=(sweep.py "${arguments[@]}")
    [[ $mode == sweep ]] || program=(sweep.py --member @ "${arguments[@]}") check+=(--apart)
    "$PYTHON" sweep.py "${check[@]}" "${arguments[@]}" >&2 || exit 2
    ;;
  run)
    "$PYTHON" train.py "${check[@]}" "${arguments[@]}" >&2 || exit 2
    program=(train.py "${arguments[@]}")
    ;;
  *) fail "unknown mode $mode; one of members, sweep, run" ;;
esac
gpus=${gpus:-8}
processes=$((gpus > 1 ? gpus : 1))
array=() log=slurm-%j.log
if [[ $mode == members ]]; then
  log=slurm-%A_%a.log
  array=("--array=0-$(($(wc -l <<<"$tasks") - 1))$at_once")
fi

logs=$workdir # local for a run in a bucket
[[ $workdir != *://* ]] || logs=runs/$(basename "$workdir")

# Submits a job and sets `job`, its number. --signal sends USR1 to the batch script before the limit,
# for the last checkpoint.
submit() { # LOG NODES GPUS PROCESSES PROGRAM... (and `array`)
  local gpu_flags=() answer
  (($3 == 0)) || gpu_flags=("--gpus-per-node=$3")
  local command=(sbatch "--job-name=ropewalk-$(basename "$workdir")" "--output=$logs/$1"
    "--nodes=$2" ${gpu_flags[@]+"${gpu_flags[@]}"} "--ntasks-per-node=$4" "--cpus-per-task=$cpus"
    "--time=$time" --requeue --open-mode=append "--signal=B:USR1@$margin"
    ${array[@]+"${array[@]}"} ${flags[@]+"${flags[@]}"} ropewalk/tpu/slurm/job.sh "${@:5}")
  job=JOB
  if $dry_run; then
    run "${command[@]}"
  else
    answer=$("${command[@]}")
    printf '%s\n' "$answer"
    [[ $answer =~ [0-9]+ ]] && job=${BASH_REMATCH[0]}
  fi
}

run mkdir -p "$logs"
submit "$log" "$nodes" "$gpus" "$processes" "${program[@]}"
$report || exit 0

# A job that saved and was requeued has not ended, so that dependent jobs keep waiting.
after() { # as `submit`, after the previous job has succeeded
  array=("--dependency=afterok:$job" --kill-on-invalid-dep=yes)
  submit "$@"
}
after slurm-evaluate-%j.log 1 "$((gpus > 0))" 1 evaluate.py "$workdir" ${own[@]+"${own[@]}"}
after slurm-report-%j.log 1 0 1 report.py "$workdir" ${own[@]+"${own[@]}"}
