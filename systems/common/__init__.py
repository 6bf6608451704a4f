"""Code that the systems share: settings, HTTP helpers, child processes, private servers, injected faults."""
