"""What a run answers: the summary, who is ahead and how sure that is, what warns, what the evidence
says.
"""
