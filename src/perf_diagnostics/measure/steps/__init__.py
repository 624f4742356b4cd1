"""Times steps and their phases, and reads beside them what is read once a step."""
