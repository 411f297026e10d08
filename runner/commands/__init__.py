"""What each command of `bench` does: it calls a wing and prints what came of it."""
