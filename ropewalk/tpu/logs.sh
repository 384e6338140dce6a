#!/usr/bin/env bash
# Shows the output of a program started by tpu/run.sh.
#
# usage: tpu/logs.sh NAME [options]
#
#   -f, --follow        also show new lines
#   --lines N           only the last N (default: 50)
#   --worker W          number of the host, or all (default: 0)
#   --tag T             as for tpu/run.sh (default: main)
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

tag=main worker=0 lines=50 follow=()
while (($#)); do
  case $1 in
    -f | --follow) follow=(-F) && shift ;;
    --lines) value "$@" && lines=$2 && shift 2 ;;
    --worker) value "$@" && worker=$2 && shift 2 ;;
    --tag) value "$@" && tag=$2 && shift 2 ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
locate

on_hosts "$name" "$worker" "$(quote tail -n "$lines" ${follow[@]+"${follow[@]}"} "ropewalk/run.$tag.log")"
