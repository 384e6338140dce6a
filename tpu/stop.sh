#!/usr/bin/env bash
# Asks the program that tpu/run.sh started to save and stop.
#
# usage: tpu/stop.sh NAME [options]
#
#   --tag T             as given to tpu/run.sh (default: main)
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
