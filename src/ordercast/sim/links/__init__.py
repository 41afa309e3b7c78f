"""Protocol machines under virtual time: nodes, the links between them, faults and failure detection."""
