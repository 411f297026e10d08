"""The verdict of a trial: what limited the trial, the evidence, and a sentence with both."""
