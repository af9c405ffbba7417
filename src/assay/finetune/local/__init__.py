"""Local language models, which are trained and run on this machine.

    trained = train("local/tiny", rows, Settings(), seed=0, folder=Path("model"))
    [reply] = load(trained.folder).generate_replies([request])

Needs the extra `local` (torch and safetensors).
"""
