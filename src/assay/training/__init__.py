"""Training of policies by PPO, launches and sweeps, and the analysis of training runs.

Training needs the extra `train` (torch and safetensors). Configuring, planning and reading the
folder of a run do not.
"""
