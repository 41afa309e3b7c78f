"""The NATS door: clients of NATS core publish and subscribe through the tree of brokers."""
