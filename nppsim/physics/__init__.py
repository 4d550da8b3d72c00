"""Physics of one frame: state, collisions, entities and the ninja.  docs/physics.md specifies the rules."""
