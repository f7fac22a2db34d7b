"""The simulated agent: roofline latency with seeded noise, drift and faults."""
