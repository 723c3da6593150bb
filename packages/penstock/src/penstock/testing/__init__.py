"""What tests of Penstock, and of what people build on it, may import. Production code imports only `faults`, which is off."""
