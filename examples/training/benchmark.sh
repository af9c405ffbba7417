#!/usr/bin/env bash
# Two architectures from the sweeps to the verdict; docs/training-benchmark.md explains each step.
# All of it is kept in one folder, and the same command resumes.
#
#     examples/training/benchmark.sh my-benchmark
#     STEPS=1_000_000 SEEDS=30 examples/training/benchmark.sh my-benchmark
#
# CONFIG is a folder with plan.toml and, for each architecture, the space of its sweep.
set -euo pipefail

config=$(cd "${CONFIG:-$(dirname "$0")}" && pwd)
control=${CONTROL:-vit_reset} candidate=${CANDIDATE:-trxl}
seeds=${SEEDS:-15} steps=${STEPS:-131_072}
trials=${TRIALS:-8} sweep_steps=${SWEEP_STEPS:-98_304} fresh_seeds=${FRESH_SEEDS:-2}
mkdir -p "${1:-training-benchmark}"
cd "${1:-training-benchmark}"
export ASSAY_DATABASE=${ASSAY_DATABASE:-benchmark.duckdb}

# A launch that is finished is not done again.
once() {
  [ -e "$1.done" ] || { "${@:2}" && touch "$1.done"; }
}

echo "== the plan, before there is a run to look at"
assay analysis --plan "$config/plan.toml" --register

echo "== hyperparameters: as many trials and steps for the control as for the candidate"
pids=()
# Jobs in the background do not hear Ctrl-C.
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
for architecture in "$control" "$candidate"; do
  assay sweep "$config/$architecture.toml" --folder "sweeps/$architecture" --trials "$trials" \
    --total-steps "$sweep_steps" --fresh-seeds "$fresh_seeds" > "sweep-$architecture.txt" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
cat "sweep-$control.txt" "sweep-$candidate.txt"

echo "== pilot: the control on the fixed seeds"
once control assay launch "sweeps/$control/winner.toml" --total-steps "$steps" --seeds "$seeds" \
  --base-run-name control

echo "== are $seeds seeds enough?"
assay variance $(cat training/control/manifest/run_ids.txt) --threshold 0.05 --output variance.png

echo "== the candidate on the same seeds"
once candidate assay launch "sweeps/$candidate/winner.toml" --total-steps "$steps" --seeds "$seeds" \
  --base-run-name candidate --control control

echo "== the verdict"
assay analysis --plan "$config/plan.toml" --control control --candidate candidate \
  --pair-by-seed --ttest.enabled --power.enabled --power.target_effect_size 0.2 \
  --output.dir analysis --output.report analysis.html
