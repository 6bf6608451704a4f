"""The HTTP door of the screenshots: ask for one, look at it, fetch it, retry it; figures and promises for those who run it."""
