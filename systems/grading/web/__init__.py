"""The API of grading: submissions in, their grades out, and the desk of those who run it."""
