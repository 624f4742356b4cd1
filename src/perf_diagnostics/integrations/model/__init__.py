"""What is trained: its modules, its batches and masks, its gradients and losses."""
