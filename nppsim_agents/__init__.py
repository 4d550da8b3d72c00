"""The console commands that train, evaluate and examine agents, and what an installed nppsim has beside its simulator.

In a checkout ``rl``, ``bc`` and ``hardware`` are packages of their own, and ``scripts`` and ``datasets`` folders beside them.
The wheel holds them all in here (``nppsim_agents.rl``, ``nppsim_agents.datasets``, ...; see ``setup.py``), so that it adds no
top-level names that anybody else might use.
"""
