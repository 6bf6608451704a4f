"""`make demo`: a tour of about a minute through outages, crashes and a dead letter, with real processes and real PDFs."""
