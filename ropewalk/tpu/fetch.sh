#!/usr/bin/env bash
# Copies results from a TPU's first host to this machine.
#
# usage: tpu/fetch.sh NAME SOURCE DESTINATION [options]
#
#   SOURCE              a file or folder within the repository there, such as runs/paper_2b
#   DESTINATION         a local folder, into which SOURCE is copied
#   --no-checkpoints    do not copy checkpoints/
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text
#
# For results in a bucket: gcloud storage rsync -r gs://BUCKET/paper_2b DESTINATION

set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"

exclude=()
while (($#)); do
  case $1 in
    --no-checkpoints) exclude=(--exclude=checkpoints) && shift ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
((${#words[@]} == 3)) || fail "needs NAME SOURCE DESTINATION; see --help"
name=${words[0]} source=${words[1]%/} destination=${words[2]}
locate

# As an archive, so that names keep all characters.
archive=ropewalk-results.tar.gz
on_hosts "$name" 0 "cd ropewalk && $(quote tar -czf "/tmp/$archive" ${exclude[@]+"${exclude[@]}"} -C "$(dirname "$source")" "$(basename "$source")")"
run mkdir -p "$destination"
run gcloud compute tpus tpu-vm scp "$name:/tmp/$archive" "$destination/" ${where[@]+"${where[@]}"} --worker=0
run tar -xzf "$destination/$archive" -C "$destination"
run rm "$destination/$archive"
