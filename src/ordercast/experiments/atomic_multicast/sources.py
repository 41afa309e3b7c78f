"""The documents behind the studies."""

DCC = "[DCC] Louzada, Dotti: Daisy Chain Cast - um protocolo para Multicast Atômico, PUCRS"
