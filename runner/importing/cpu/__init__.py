"""Read samples of CPU and memory that other tools took beside a load test."""
