#!/usr/bin/env bash
# Shows the state of the request for a TPU, or waits until the TPU is ready.
#
# usage: tpu/status.sh NAME [options]
#
#   --wait              check every 30 seconds until the TPU is ready; fail if the request fails
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

wait=false
while (($#)); do
  case $1 in
    --wait) wait=true && shift ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
locate

describe() {
  run gcloud compute tpus queued-resources describe "$name" ${where[@]+"${where[@]}"} "$@"
}

if ! $wait; then
  describe
  exit
fi
while true; do
  state=$(describe '--format=value(state.state)')
  printf '%s\n' "$state"
  case $state in
    ACTIVE) exit 0 ;;
    FAILED | SUSPENDING | SUSPENDED | DELETING) fail "$name is $state: tpu/delete.sh $name" ;;
  esac
  ! $dry_run || exit 0
  sleep 30
done
