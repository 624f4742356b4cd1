"""The steps of a trial: the loop that runs and measures them, and one step of a workload under the settings."""
