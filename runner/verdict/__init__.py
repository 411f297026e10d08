"""The verdict of a trial: what limited it, the evidence, and the sentence that says both."""
