"""Small pure helpers that every package uses: durations, time zones, addresses, validation, wording."""
