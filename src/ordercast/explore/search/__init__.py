"""The searches: breadth first, with faults, node by node, and with the moments of real time."""
