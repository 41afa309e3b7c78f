"""Brokers and clients under virtual time: a whole run, from the layout of the tree to the state of rest."""
