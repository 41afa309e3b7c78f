"""Daisy chain atomic multicast: the corrected protocol with its three rules, and the one as published."""
