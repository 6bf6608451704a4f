"""The page and the HTTP API of grading: submissions, their grades, and the operators' routes."""
