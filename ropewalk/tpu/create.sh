#!/usr/bin/env bash
# Requests a TPU slice as a queued resource; the request waits until chips are free.
#
# usage: tpu/create.sh NAME --topology KIND:SHAPE [options]
#
#   NAME                of the queued resource and of its TPU
#   --topology T        v5e:8x8, v5p:4x4x4, v6e:4x4 ...; see `python -m ropewalk.tpu.topology T`
#   --spot              cheaper, and may be preempted at any time: the run continues after
#                       another create, setup and run, if runs/ is in a bucket
#   --reserved          use a reservation
#   --valid-until D     cancel the request after this time (6h, 2d)
#   --runtime V         software version of the VMs (default: the chip's own)
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text
#
# Next: tpu/status.sh NAME --wait && tpu/setup.sh NAME

set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$folder/common.sh"

topology='' runtime='' flags=()
while (($#)); do
  case $1 in
    --topology) value "$@" && topology=$2 && shift 2 ;;
    --runtime) value "$@" && runtime=$2 && shift 2 ;;
    --valid-until) value "$@" && flags+=("--valid-until-duration=$2") && shift 2 ;;
    --spot | --reserved) flags+=("$1") && shift ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
[[ -n $topology ]] || fail "needs --topology; see --help"
facts=$(cd "$folder/../.." && "${PYTHON:-python3}" -m ropewalk.tpu.topology "$topology" runtime accelerator_type) || exit 2
{ read -r default_runtime && read -r accelerator_type; } <<<"$facts"
[[ -n ${runtime:-$default_runtime} ]] || fail "$topology has no TPU VMs: use GKE (tpu/apply.sh)"
locate

run gcloud compute tpus queued-resources create "$name" \
  "--node-id=$name" ${where[@]+"${where[@]}"} \
  "--accelerator-type=$accelerator_type" \
  "--runtime-version=${runtime:-$default_runtime}" \
  ${flags[@]+"${flags[@]}"}
