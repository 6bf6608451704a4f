"""Reports: turn a document into JSON with a language model.

Each answer is checked, paid for once and written once.
"""
