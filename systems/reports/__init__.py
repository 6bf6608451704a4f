"""Reports: a document goes to a language model, and what comes back is checked, written once and paid once."""
