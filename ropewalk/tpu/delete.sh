#!/usr/bin/env bash
# Deletes a queued resource and its VMs, including their disks.
#
# usage: tpu/delete.sh NAME [options]
#
#   --yes               do not ask for confirmation
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

yes=()
while (($#)); do
  case $1 in
    --yes) yes=(--quiet) && shift ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
locate

run gcloud compute tpus queued-resources delete "$name" ${where[@]+"${where[@]}"} --force ${yes[@]+"${yes[@]}"}
