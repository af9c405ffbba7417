"""Training of policies by PPO, launches and sweeps, and the analysis of training runs.

To train takes the extra `train` (torch and safetensors); to configure, to plan and to read a
run's folder does not.
"""
