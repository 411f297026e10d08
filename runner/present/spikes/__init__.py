"""Spikes of CPU use: found, drawn, and what coincides with them."""
