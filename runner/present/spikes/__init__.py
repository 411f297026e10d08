"""Find and draw spikes of CPU use, name their causes, and test which events coincide with them."""
