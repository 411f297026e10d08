"""May two cells be compared, and what came out? Every page asks here."""
