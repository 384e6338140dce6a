#!/usr/bin/env bash
# Starts a run or a sweep on TPU slices of a GKE cluster: python -m ropewalk.tpu.jobset | kubectl apply.
#
# usage: tpu/apply.sh CONFIG --workdir /runs/DIR --topology KIND:SHAPE --image IMAGE [options]
#
#   --mode M            members (default): a JobSet for each member of the sweep, on its own slice;
#                       sweep: one for all members, in one program; run: one for a single run
#   --report            wait until all have ended, then evaluate and report, each on a slice of one
#                       host (--report-topology; default: --topology)
#   ...                 other arguments of ropewalk.tpu.jobset: python -m ropewalk.tpu.jobset --help
#   -n, --dry-run       print the manifests and the commands, and start nothing
#   -h, --help          this text
#
#   tpu/apply.sh base_30m --workdir /runs/bases --topology v5e:4x4 --image IMAGE \
#     model.rotary.base=1e2,1e4,1e6
#
# It uses kubectl's current cluster, which needs JobSet and node pools of the slice's shape (xpk creates
# such clusters). List: kubectl get jobsets; logs: kubectl logs -f jobs/NAME-slice-0; stop: kubectl
# delete jobset NAME; the same command starts it again, and the run continues.

set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$folder/common.sh"

arguments=() report=false report_topology=()
while (($#)); do
  case $1 in
    -h | --help) usage && exit 0 ;;
    -n | --dry-run) dry_run=true && shift ;;
    --report) report=true && shift ;;
    --report-topology) value "$@" && report_topology=(--topology "$2") && shift 2 ;;
    *) arguments+=("$1") && shift ;;
  esac
done
cd "$folder/../.."

jobs='' # names
apply() { # FLAG...
  local manifests
  manifests=$("${PYTHON:-.venv/bin/python}" -m ropewalk.tpu.jobset ${arguments[@]+"${arguments[@]}"} "$@") || exit 2
  jobs=$(sed -n 's|^  name: "\(.*\)"$|jobset/\1|p' <<<"$manifests")
  ! $dry_run || printf '%s\n' "$manifests"
  run kubectl apply -f - <<<"$manifests"
}

then_apply() { # MODE
  local names
  mapfile -t names <<<"$jobs"
  # Wait for the end of all jobs, up to a week; then fail unless all succeeded.
  run kubectl wait --timeout=-1s '--for=jsonpath={.status.terminalState}' "${names[@]}"
  run kubectl wait --timeout=0 --for=condition=Completed "${names[@]}"
  apply --mode "$1" ${report_topology[@]+"${report_topology[@]}"}
}

apply
$report || exit 0
then_apply evaluate
then_apply report
