"""Find and draw spikes of CPU use, and test which events coincide with them."""
