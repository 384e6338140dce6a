#!/usr/bin/env bash
# Stops the program that tpu/run.sh started, after a last checkpoint.
#
# usage: tpu/stop.sh NAME [options]
#
#   --tag T             as for tpu/run.sh (default: main)
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

tag=main
while (($#)); do
  case $1 in
    --tag) value "$@" && tag=$2 && shift 2 ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
locate

on_hosts "$name" all "kill -TERM \$(cat $(quote "ropewalk/run.$tag.pid"))"
