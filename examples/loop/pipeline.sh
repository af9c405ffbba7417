#!/usr/bin/env bash
# The loop one command at a time: traces, training data, a fine-tuned model, an exam, a verdict.
# 'assay loop' does the same, keeps what is done, and resumes; this is for steps of your own.
#
#     examples/loop/pipeline.sh
#     TEACHER=gpt-4o-mini BACKEND=openai STUDENT=gpt-4o-mini examples/loop/pipeline.sh
set -euo pipefail

teacher=${TEACHER:-builtin/expert} backend=${BACKEND:-local} student=${STUDENT:-local/tiny}
worlds=${WORLDS:-40} exam=${EXAM:-20} steps=${STEPS:-150}
export ASSAY_DATABASE=${ASSAY_DATABASE:-pipeline.duckdb}
play=(--difficulty classic --view short --history 1 --actions-per-turn 1 --no-baselines
      --step-limit "$steps" --max-turns "$steps")

echo "== traces"
assay run --models "$teacher" --episodes "$worlds" --seed 100000 "${play[@]}"

echo "== training data"
assay sft filter --min-achievements "${MIN_ACHIEVEMENTS:-3}" --drop-notes --holdout-seeds 10% \
  --models "$teacher" --output pipeline.jsonl

echo "== fine-tuning"
assay finetune start pipeline.jsonl --backend "$backend" --model "$student" --poll-interval 2
model=$(assay finetune status latest --json |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["result_model"])')

echo "== exam"
assay run --models "$student" "$model" builtin/random --episodes "$exam" --seed 900000 \
  --temperature 0.7 --max-tokens 64 "${play[@]}"
assay compare latest --output pipeline.html
