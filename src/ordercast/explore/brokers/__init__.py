"""Every interleaving of the smallest trees of brokers and clients: machines whose connections open, close and break."""
