#!/usr/bin/env bash
# Starts a run or a sweep on TPU slices of a GKE cluster: python -m tpu.jobset, handed to kubectl.
#
# usage: tpu/apply.sh CONFIG --workdir /runs/DIR --topology KIND:SHAPE --image IMAGE [options]
#
#   --mode M            members (default): a JobSet for each member of the sweep, on its own slice;
#                       sweep: one for all members, in one program; run: one for a single run
#   ...                 the rest of tpu.jobset's arguments: python -m tpu.jobset --help
#   -n, --dry-run       print the manifests and the command they would go to, and start nothing
#   -h, --help          this text
#
#   tpu/apply.sh base_30m --workdir /runs/bases --topology v5e:4x4 --image IMAGE \
#     model.rotary.base=1e2,1e4,1e6
#
# The cluster is kubectl's current one, with JobSet installed and node pools of the slice's shape; xpk
# makes such clusters. Look: kubectl get jobsets; logs: kubectl logs -f jobs/NAME-slice-0;
# stop: kubectl delete jobset NAME; the same command starts it again and it goes on.

set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd)
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$folder/common.sh"

arguments=()
for argument in "$@"; do
  case $argument in
    -h | --help) usage && exit 0 ;;
    -n | --dry-run) dry_run=true ;;
    *) arguments+=("$argument") ;;
  esac
done
cd "$folder/.."
manifests=$("${PYTHON:-.venv/bin/python}" -m tpu.jobset ${arguments[@]+"${arguments[@]}"}) || exit 2
! $dry_run || printf '%s\n' "$manifests"
run kubectl apply -f - <<<"$manifests"
