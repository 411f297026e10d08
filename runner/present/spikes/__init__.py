"""Find and draw spikes of CPU use, name causes, and test which events coincide with spikes."""
