"""Every interleaving of small networks whose links open, close and break: protocols that choose their neighbours."""
