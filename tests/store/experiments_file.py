"""An experiments file in the format of users."""

SEED_FILE = {
    "experiments": [
        {
            "name": "baseline-7b",
            "model": "Qwen/Qwen2.5-7B-Instruct",
            "training_data": "crafter_baseline.jsonl",
            "epochs": 3,
            "achievements": [2.1, 2.3, 2.0],
            "instances": ["easy", "medium", "hard"],
            "version": "v1.0",
        },
        {
            "name": "improved-7b",
            "model": "ft:qwen2-5-7b-instruct:org-test123:timestamp",
            "training_data": "crafter_improved.jsonl",
            "epochs": 5,
            "achievements": [3.2, 3.5, 3.1],
            "instances": ["easy", "medium", "hard"],
            "version": "v1.1",
        },
    ]
}
