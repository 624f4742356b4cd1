"""Facts of data loading: what a batch costs to make and to hand over, and with what."""
