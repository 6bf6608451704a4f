"""What the systems share: reading knobs, serving sites, keeping children up, private servers, faults on purpose."""
