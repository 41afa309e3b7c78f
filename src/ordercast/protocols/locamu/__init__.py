"""LoCaMu: localized reliable causal multicast on a tree, corrected and as published."""
