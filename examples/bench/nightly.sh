#!/usr/bin/env bash
# One benchmark a night: run it, sum it up, and compare it with the rollout tagged "reference".
#
#     examples/bench/nightly.sh configs/nightly.toml
#     0 2 * * * cd /path/to/project && examples/bench/nightly.sh configs/nightly.toml
#
# What it prints also goes to $DATA_DIR/nightly/<date>.log. It locks against itself: while one
# is running, another ends at once with exit code 75. Its exit code is that of the run, which is
# 3 if a trial ended by an infrastructure error; else that of the comparison, which is 1 if an
# arm became worse.
#
#     DATA_DIR    where results go [default: data]
#     REFERENCE   the tag to compare with [default: reference]; nothing is compared until a
#                 rollout has it: assay bench tag my_benchmark reference
set -uo pipefail

config=${1:?usage: nightly.sh CONFIG}
data=${DATA_DIR:-data} reference=${REFERENCE:-reference}
today=$(date -u +%Y%m%d)
name=$(sed -n 's/^name *= *"\([^"]*\)".*/\1/p' "$config" | head -n 1)
if [[ -z $name ]]; then
  echo "nightly: $config has no line such as name = \"my_benchmark\"" >&2
  exit 2
fi
mkdir -p "$data/nightly" || exit 1

# The lock belongs to the open file: it ends with this process, however that ends.
exec 9>"$data/nightly/lock" || exit 1
if ! flock --nonblock 9; then
  echo "nightly: another one is running in $data; nothing was started" >&2
  exit 75
fi

nightly() {
  echo "== $today: $config"
  # What it starts does not inherit the lock, and cannot hold it longer than this script.
  assay bench run "$config" --data-dir "$data" 9>&-
  local ran=$?
  if ((ran != 0 && ran != 3)); then return "$ran"; fi
  assay bench summarize "$name" --latest --data-dir "$data" 9>&- || return
  if ((ran != 0)); then return "$ran"; fi
  if assay bench summarize "$reference" --quiet --data-dir "$data" >/dev/null 2>&1 9>&-; then
    assay bench compare "$reference" "$name" --fail-if-worse --data-dir "$data" 9>&-
  fi
}

nightly 2>&1 | tee -a "$data/nightly/$today.log"
code=${PIPESTATUS[0]}
echo "== $today: exit code $code" | tee -a "$data/nightly/$today.log"
exit "$code"
