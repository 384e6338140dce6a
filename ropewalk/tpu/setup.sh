#!/usr/bin/env bash
# Copies this repository to every host of a TPU and installs its packages.
#
# usage: tpu/setup.sh NAME [options]
#
#   --bucket B          mount this bucket as ~/ropewalk/runs on every host. A slice of several hosts
#                       needs one, because they write one checkpoint together. Use a hierarchical
#                       namespace, in which renaming a folder is atomic
#   --zone Z            or $TPU_ZONE, or gcloud's default
#   --project P         or $TPU_PROJECT, or gcloud's default
#   -n, --dry-run       print the commands and touch nothing
#   -h, --help          this text
#
# Copies the files that git tracks or would add. Installs Python 3.12 by uv, because the VMs have a
# version before 3.11. At the end every host prints the number of chips of the slice.
#
# Next: tpu/run.sh NAME -- train.py paper_2b --workdir runs/paper_2b

set -euo pipefail
folder=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$folder/common.sh"

bucket=''
while (($#)); do
  case $1 in
    --bucket) value "$@" && bucket=$2 && shift 2 ;;
    *) common_option "$@" && shift "$taken" ;;
  esac
done
one_name
bucket=${bucket#gs://}
locate
cd "$folder/../.."

archive=/tmp/ropewalk.tar.gz
if $dry_run; then
  printf 'git ls-files -z --cached --others --exclude-standard | tar --null -T - -czf %s\n' "$archive"
else
  git ls-files -z --cached --others --exclude-standard | tar --null -T - -czf "$archive"
fi
run gcloud compute tpus tpu-vm scp "$archive" "$name:" ${where[@]+"${where[@]}"} --worker=all

# shellcheck disable=SC2016  # expanded there
on_hosts "$name" all 'set -e
mkdir -p ropewalk && tar -xzf ropewalk.tar.gz -C ropewalk && cd ropewalk
python3 -m pip install -q --user uv && uv=~/.local/bin/uv
$uv venv -q --allow-existing --python 3.12 .venv
$uv pip install -q --python .venv --no-deps --require-hashes -r requirements.lock
$uv pip install -q --python .venv "jax[tpu]==$(.venv/bin/python -c "import jax; print(jax.__version__)")"'

if [[ -n $bucket ]]; then
  on_hosts "$name" all "set -e
repository=gcsfuse-\$(lsb_release -cs)
echo \"deb [signed-by=/usr/share/keyrings/cloud.google.asc] https://packages.cloud.google.com/apt \$repository main\" | sudo tee /etc/apt/sources.list.d/gcsfuse.list
curl -sSf https://packages.cloud.google.com/apt/doc/apt-key.gpg | sudo tee /usr/share/keyrings/cloud.google.asc > /dev/null
sudo apt-get -qq update && sudo apt-get -qq install gcsfuse
mkdir -p ropewalk/runs && { mountpoint -q ropewalk/runs || gcsfuse --implicit-dirs $(quote "$bucket") ropewalk/runs; }"
fi

on_hosts "$name" all 'cd ropewalk && .venv/bin/python -c "
import jax
jax.distributed.initialize()
print(jax.process_index(), jax.device_count(), jax.devices()[0].device_kind)"'
