"""Read samples of CPU and memory that other tools took during a load test."""
