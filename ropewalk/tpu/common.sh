# shellcheck shell=bash
# Functions of the scripts in this folder; sourced, not run.

dry_run=false
zone=${TPU_ZONE:-}
project=${TPU_PROJECT:-}

usage() { # prints the comment at the head of the script
  sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

fail() {
  printf '%s: error: %s\n' "$(basename "$0")" "$1" >&2
  exit 2
}

# Prints words for a shell, quoted only where necessary.
quote() {
  local word separator=''
  for word in "$@"; do
    [[ $word =~ ^[A-Za-z0-9_@%+=:./-]+$ ]] || word="'${word//\'/\'\\\'\'}'"
    printf '%s%s' "$separator" "$word"
    separator=' '
  done
}

# Runs a command, or prints it.
run() {
  if $dry_run; then
    quote "$@"
    printf '\n'
  else
    "$@"
  fi
}

# The value of an option, as in: --zone) value "$@" && zone=$2 && shift 2.
value() {
  (($# > 1)) || fail "$1 needs a value; see --help"
}

# Reads an option that all scripts have, and sets `taken`, the number of words that the caller must
# shift. Appends other words to `words`.
words=()
# shellcheck disable=SC2034
common_option() {
  taken=1
  case $1 in
    -h | --help) usage && exit 0 ;;
    -n | --dry-run) dry_run=true ;;
    --zone) value "$@" && zone=$2 taken=2 ;;
    --project) value "$@" && project=$2 taken=2 ;;
    -*) fail "unknown option $1; see --help" ;;
    *) words+=("$1") ;;
  esac
}

# Sets `name`, the only word.
# shellcheck disable=SC2034
one_name() {
  ((${#words[@]} == 1)) || fail "needs one NAME, got ${words[*]-none}; see --help"
  name=${words[0]}
}

# Sets `where`: the flags for the zone and project of the TPU.
locate() {
  where=()
  [[ -z $zone ]] || where+=("--zone=$zone")
  [[ -z $project ]] || where+=("--project=$project")
}

# Runs a command line on hosts of a TPU (WORKER: a number, or all).
on_hosts() { # NAME WORKER COMMAND
  run gcloud compute tpus tpu-vm ssh "$1" ${where[@]+"${where[@]}"} "--worker=$2" "--command=$3"
}
