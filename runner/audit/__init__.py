"""Check published benchmark tables against laws that need no new measurement."""
