"""`make demo`: a one-minute tour through outages, crashes and a dead letter, with real processes and PDFs."""
