"""What must hold in every state and at rest, from the definitions."""
