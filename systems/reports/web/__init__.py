"""The HTTP door of the reports: ask for one, look at it, fetch it; captures and figures for those who run it."""
