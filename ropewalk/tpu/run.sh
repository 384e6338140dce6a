#!/usr/bin/env bash
# Starts a program of this repository on every host of a TPU, in the background.
#
# usage: tpu/run.sh NAME [options] -- PROGRAM ARGUMENTS...
#
#   tpu/run.sh my-tpu -- train.py paper_2b --workdir runs/paper_2b mesh.fsdp=-1
#   tpu/run.sh my-tpu -- sweep.py base_125m --workdir runs/bases model.rotary.base=1e2,1e4,1e6
#
#   --tag T             name of the log and process files: run.T.log, run.T.pid (default: main)
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text
#
# The same command continues a stopped run. Next: tpu/logs.sh NAME --follow

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

tag=main
while (($#)); do
  case $1 in
    --tag) value "$@" && tag=$2 && shift 2 ;;
    --) shift && break ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
(($#)) || fail "needs a program after --, such as: -- train.py paper_2b --workdir runs/paper_2b"
locate

log=$(quote "run.$tag.log") pid=$(quote "run.$tag.pid")
on_hosts "$name" all "set -e
cd ropewalk
if [ -e $pid ] && kill -0 \$(cat $pid) 2> /dev/null; then echo 'already running: use tpu/stop.sh first'; exit 1; fi
setsid .venv/bin/python $(quote "$@") > $log 2>&1 < /dev/null &
echo \$! > $pid"
