"""Random faults at random moments, to see whether a campaign loses or leaves anything."""
